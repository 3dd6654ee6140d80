"""Published measurements against our ceilings: the percent that others computed is the percent that we show.

Each measurement names who published it. Bandwidths are the vendors'. Percent of what is read (weights without an input
table that is not the output head, only the experts in use) unless said otherwise; contexts are short enough to be left
out unless given.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

from phasewatch.analysis.ceiling import Ceiling, compute_single_stream_ceiling
from phasewatch.hardware.facts import DeviceFacts, DeviceLayout, DeviceSource
from phasewatch.hardware.resolve import ResolvedDevice, resolve_device
from phasewatch.models.costs import Experts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from tests.support.paths import ROOT
from tests.support.steady_load import Steady, measured

GB = 1e9
HBM = "data-centre accelerators (HBM)"
GDDR = "consumer, workstation and data-centre cards (GDDR)"
APPLE = "Apple"
LPDDR = "GB10 and Jetson (LPDDR)"

DEVICES: Final[dict[str, tuple[float, str]]] = {
    "A100 PCIe 80GB": (1935, HBM),
    "A100 SXM4 80GB": (2039, HBM),
    "A40": (696, GDDR),
    "Apple M1": (68.25, APPLE),
    "Apple M1 Max": (400, APPLE),
    "Apple M1 Pro": (200, APPLE),
    "Apple M2 Ultra": (800, APPLE),
    "Apple M3 Max (40-core GPU)": (400, APPLE),
    "Apple M3 Pro": (150, APPLE),
    "Apple M3 Ultra": (819, APPLE),
    "DGX Spark GB10": (273, LPDDR),
    "GeForce RTX 2080": (448, GDDR),
    "GeForce RTX 3060": (360, GDDR),
    "GeForce RTX 3070": (448, GDDR),
    "GeForce RTX 3080 (10GB)": (760, GDDR),
    "GeForce RTX 3090": (936, GDDR),
    "GeForce RTX 4070 Ti": (504, GDDR),
    "GeForce RTX 4080": (716.8, GDDR),
    "GeForce RTX 4090": (1008, GDDR),
    "GeForce RTX 5090": (1792, GDDR),
    "H100 PCIe": (2000, HBM),
    "H100 SXM5 80GB": (3350, HBM),
    "Instinct MI250X (one GCD)": (1638, HBM),
    "Jetson Orin Nano 8GB (Super)": (102, LPDDR),
    "L40S": (864, GDDR),
    "RTX 4000 Ada": (360, GDDR),
    "RTX 5000 Ada": (576, GDDR),
    "RTX 6000 Ada": (960, GDDR),
    "RTX A4000": (448, GDDR),
    "RTX A6000": (768, GDDR),
    "Radeon AI PRO R9700": (640, GDDR),
    "Radeon RX 7900 XTX": (960, GDDR),
    "Tesla P40": (347, GDDR),
}
"""GB per second of one, and its class."""


@dataclass(frozen=True)
class Model:
    """Bits of a weight; GB of the file, where it is known, and of what one stream reads; KV bytes of a token."""

    bits: int
    file: float | None
    read: float
    kv: float = 0.0
    experts: tuple[Experts, ...] = ()

    def costs(self) -> ModelCosts:
        """As the exporter holds it."""
        dense = self.read * GB - sum(group.per_token * group.bytes_each for group in self.experts)
        return ModelCosts(
            weight_bytes=self.file and self.file * GB,
            weight_source=ModelSource.CONFIG,
            reads=WeightReads(dense, None, experts=self.experts),
            kv_cache=KvCache((KvLayers(self.kv / 2),), 2.0, ModelSource.CONFIG),
        )


MODELS: Final = {
    "CodeLlama-7B F16": Model(16, 13.48, 13.21),
    "CodeLlama-7B Q8_0": Model(8, None, 7.02),
    "DeepSeek-R1-14B Q4_K_M": Model(4, 8.99, 8.55),
    "Gemma-3-4B Q4_0": Model(4, 2.52, 2.52),
    "Llama-2-70B bf16": Model(16, 137.9, 137.4),
    "Llama-2-70B int4": Model(4, None, 43.47),
    "Llama-2-70B int8": Model(8, None, 69.14),
    "Llama-2-7B Q4_0": Model(4, 3.82, 3.75),
    "Llama-2-7B bf16": Model(16, 13.48, 13.21),
    "Llama-2-7B int4": Model(4, None, 4.38),
    "Llama-2-7B int8": Model(8, None, 6.87),
    "Llama-3-70B Q4_K_M": Model(4, 42.5, 41.92),
    "Llama-3-8B F16": Model(16, 16.06, 15.01, kv=131072),
    "Llama-3-8B Q4_0": Model(4, None, 4.36, kv=131072),
    "Llama-3-8B Q4_K_M": Model(4, 4.92, 4.62, kv=131072),
    "Llama-3-8B Q8_0": Model(8, 8.54, 7.98, kv=131072),
    "Llama-3.1-70B bf16": Model(16, 141.1, 139.0),
    "Llama-3.1-70B int8": Model(8, None, 69.5),
    "Llama-3.1-8B int4": Model(4, None, 4.2),
    "Llama-3.1-8B int8": Model(8, None, 7.49),
    "Llama-3.2-3B Q4_K_M": Model(4, 2.02, 2.02),
    "Llama-3.3-70B FP8": Model(8, None, 72.3),
    "Qwen2.5-Coder-7B Q8_0": Model(8, 8.10, 7.52, kv=57344),
    "Qwen3-0.6B bf16": Model(16, 1.19, 1.19),
    "Qwen3-32B bf16": Model(16, 65.52, 63.97),
    "Qwen3-32B Q4_K_M": Model(4, None, 19.8),
    "Qwen3-8B bf16": Model(16, 16.38, 15.14),
    # Mixtures: one expert is 24.9 million parameters in each of 24 or 36 layers at 4.25 bits, or 4.72 million in each
    # of 48 at 8.5 bits.
    "gpt-oss-20b MXFP4": Model(4, 12.1, 2.57, experts=(Experts(32, 4, 24.9e6 * 24 * 4.25 / 8, None),)),
    "gpt-oss-120b MXFP4": Model(4, 63.4, 3.55, kv=36864, experts=(Experts(128, 4, 24.9e6 * 36 * 4.25 / 8, None),)),
    "Qwen3-30B-A3B Q8_0": Model(8, 32.5, 3.23, kv=98304, experts=(Experts(128, 8, 4.72e6 * 48 * 8.5 / 8, None),)),
}


@dataclass(frozen=True)
class Published:
    """One stream on its own: tokens per second, and the percent of the ceiling that they are.

    `file` is the percent with the bytes of the whole file, where somebody computed it.
    """

    source: str
    engine: str
    device: str
    model: str
    speed: float
    percent: float
    file: float | None = None
    count: int = 1
    layout: DeviceLayout = DeviceLayout.TENSOR

    def facts(self) -> DeviceFacts:
        """The devices, as the exporter holds them."""
        bandwidth, _ = DEVICES[self.device]
        return devices(self.device, bandwidth, self.count, self.layout)


def test_the_bandwidths_are_those_of_the_shipped_table() -> None:
    for name, (bandwidth, _) in DEVICES.items():
        device = resolve_device(name)
        assert isinstance(device, ResolvedDevice), name
        assert device.memory_bandwidth == pytest.approx(bandwidth * GB), name


def devices(name: str, bandwidth: float, count: int = 1, layout: DeviceLayout = DeviceLayout.TENSOR) -> DeviceFacts:
    return DeviceFacts(name, count, layout, bandwidth * GB, DeviceSource.TABLE)


SCOREBOARD = "XiongjieDai/GPU-Benchmarks-on-LLM-Inference @ aa72e0e, tg1024"
GPT_FAST = "pytorch-labs/gpt-fast README @ 32971d3"
SPARK = "ggml-org/llama.cpp benches/dgx-spark.md @ 4c7e989"
GEERLING = "geerlingguy/ai-benchmarks @ bdf9441"

# Speed and percent of Llama-3-8B Q4_K_M, Llama-3-8B F16 and Llama-3-70B Q4_K_M.
_SCORES: Final[dict[str, tuple[tuple[float, float] | None, ...]]] = {
    "GeForce RTX 3070": ((70.94, 73), None, None),
    "GeForce RTX 3080 (10GB)": ((106.40, 65), None, None),
    "GeForce RTX 4070 Ti": ((82.21, 75), None, None),
    "GeForce RTX 4080": ((106.22, 68), (40.29, 84), None),
    "RTX 4000 Ada": ((58.59, 75), (20.85, 87), None),
    "GeForce RTX 3090": ((111.74, 55), (46.51, 75), None),
    "GeForce RTX 4090": ((127.74, 59), (54.34, 81), None),
    "RTX 5000 Ada": ((89.87, 72), (32.67, 85), None),
    "RTX A6000": ((102.22, 62), (40.25, 79), (14.58, 80)),
    "RTX 6000 Ada": ((130.99, 63), (51.97, 81), (18.36, 80)),
    "A40": ((88.95, 59), (33.95, 73), (12.08, 73)),
    "L40S": ((113.60, 61), (43.42, 75), (15.31, 74)),
    "A100 PCIe 80GB": ((138.31, 33), (54.56, 42), (22.11, 48)),
    "A100 SXM4 80GB": ((133.38, 30), (53.18, 39), (24.33, 50)),
    "H100 PCIe": ((144.49, 33), (67.79, 51), (25.01, 51)),
    "Apple M1": ((9.72, 66), None, None),
    "Apple M1 Max": ((34.49, 40), (18.43, 69), (4.09, 43)),
    "Apple M2 Ultra": ((76.28, 44), (36.25, 68), (12.13, 64)),
    "Apple M3 Max (40-core GPU)": ((50.74, 59), (22.39, 84), (7.53, 79)),
}


def _scoreboard() -> Iterator[Published]:
    models = ("Llama-3-8B Q4_K_M", "Llama-3-8B F16", "Llama-3-70B Q4_K_M")
    for device, scores in _SCORES.items():
        for model, score in zip(models, scores, strict=True):
            if score is not None:
                yield Published(SCOREBOARD, "llama.cpp, 2024", device, model, *score)


PUBLISHED: Final = (
    *_scoreboard(),
    Published(
        SCOREBOARD, "llama.cpp, 2024", "GeForce RTX 3090", "Llama-3-70B Q4_K_M", 16.29, 73, 74, 2, DeviceLayout.PIPELINE
    ),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-2-7B bf16", 104.9, 68, 69),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-2-7B int8", 155.58, 52),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-2-7B int4", 196.80, 42),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-2-70B int8", 19.13, 65),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-2-70B int4", 25.25, 54),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-3-8B F16", 93.89, 69, 74),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-3.1-8B int8", 137.64, 51),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-3.1-70B int8", 18.04, 61),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-2-70B bf16", 21.32, 72, 72, 2),
    Published(GPT_FAST, "gpt-fast", "A100 SXM4 80GB", "Llama-3.1-70B bf16", 58.78, 50, 51, 8),
    Published(GPT_FAST, "gpt-fast", "Instinct MI250X (one GCD)", "Llama-2-7B bf16", 76.33, 62, 63),
    Published("inference-perf demo @ 7de5ef2, stage 0", "vLLM", "H100 SXM5 80GB", "Llama-3-8B F16", 136.4, 61),
    Published("inference-perf demo @ 7de5ef2, chunked", "vLLM", "H100 SXM5 80GB", "Llama-3-8B F16", 135.0, 60),
    Published("inferguard packet_b", "vLLM", "H100 SXM5 80GB", "Qwen3-8B bf16", 145.8, 66),
    Published("inferguard packet_a", "vLLM", "H100 SXM5 80GB", "Qwen3-8B bf16", 146.5, 66),
    Published("inferguard packet_h1", "vLLM", "H100 SXM5 80GB", "Qwen3-0.6B bf16", 282, 10),
    Published(
        "docs.nvidia.com NIM performance", "TensorRT-LLM", "H100 SXM5 80GB", "Llama-3.3-70B FP8", 53.8, 58, None, 2
    ),
    Published("lyb.re, 2026-03", "vLLM", "DGX Spark GB10", "Qwen3-8B bf16", 13.1, 73),
    Published("lyb.re, 2026-03", "vLLM", "DGX Spark GB10", "Qwen3-32B bf16", 3.7, 87),
    Published("llama.cpp #4766", "llama.cpp", "GeForce RTX 4090", "CodeLlama-7B F16", 61.03, 80),
    Published("llama.cpp #4766", "llama.cpp", "GeForce RTX 4090", "CodeLlama-7B Q8_0", 98.13, 68),
    Published("llama.cpp #4766", "llama.cpp", "Tesla P40", "Llama-2-7B Q4_0", 56.79, 61, 63),
    Published("llama.cpp #19053", "llama.cpp", "RTX 6000 Ada", "Llama-3-8B Q4_0", 168.87, 77),
    Published("llama.cpp #26284", "llama.cpp", "Radeon RX 7900 XTX", "Llama-3-8B Q4_K_M", 105.75, 51, 54),
    Published("gist of andrewginns", "llama.cpp", "Apple M1 Pro", "Llama-2-7B bf16", 12.75, 84, 86),
    Published("gist of andrewginns", "llama.cpp", "Apple M3 Pro", "Llama-2-7B bf16", 9.89, 87, 89),
    Published("csabakecskemeti on huggingface.co", "llama.cpp", "GeForce RTX 5090", "Llama-3-8B Q8_0", 143.18, 64, 68),
    Published(
        "dmatora/LLM-inference-speed-benchmarks #12",
        "Ollama",
        "GeForce RTX 3080 (10GB)",
        "Llama-3-8B Q4_K_M",
        111.95,
        68,
        72,
    ),
    Published("llmfit #773", "llama.cpp", "GeForce RTX 2080", "Llama-3-8B Q4_K_M", 71.9, 74, 79),
    Published("NVIDIA blog", "MLC", "Jetson Orin Nano 8GB (Super)", "Llama-3.1-8B int4", 19.14, 79),
    Published(GEERLING, "Ollama", "GeForce RTX 4090", "Llama-3.2-3B Q4_K_M", 334.67, 67),
    Published(GEERLING, "Ollama", "RTX A4000", "Llama-3.2-3B Q4_K_M", 149.44, 67),
    Published(GEERLING, "Ollama", "DGX Spark GB10", "Llama-3.2-3B Q4_K_M", 97.93, 72),
    Published(GEERLING, "Ollama", "Apple M3 Ultra", "Llama-3.2-3B Q4_K_M", 154.60, 38),
    Published(GEERLING, "Ollama", "Apple M3 Ultra", "Llama-3-70B Q4_K_M", 14.08, 72),
    Published(GEERLING, "Ollama", "DGX Spark GB10", "Llama-3-70B Q4_K_M", 4.71, 72),
    Published(GEERLING, "Ollama", "Apple M1 Max", "Llama-3-70B Q4_K_M", 7.25, 76),
    Published(GEERLING, "llama.cpp", "Radeon AI PRO R9700", "DeepSeek-R1-14B Q4_K_M", 53.7, 72, 75),
    Published(GEERLING, "llama.cpp", "Apple M3 Ultra", "DeepSeek-R1-14B Q4_K_M", 51.9, 54, 57),
    Published(GEERLING, "llama.cpp", "GeForce RTX 3060", "DeepSeek-R1-14B Q4_K_M", 29.8, 71, 74),
    Published("ollama #14740, before", "Ollama", "GeForce RTX 3090", "Qwen3-32B Q4_K_M", 35, 74),
    Published(SPARK, "llama.cpp", "DGX Spark GB10", "Qwen2.5-Coder-7B Q8_0", 29.30, 81, 87),
    Published(SPARK, "llama.cpp", "DGX Spark GB10", "Gemma-3-4B Q4_0", 78.97, 73, 73),
    Published(SPARK, "llama.cpp", "DGX Spark GB10", "Qwen3-30B-A3B Q8_0", 60.92, 72),
    Published(SPARK, "llama.cpp", "DGX Spark GB10", "gpt-oss-20b MXFP4", 84.10, 79),
    Published(SPARK, "llama.cpp", "DGX Spark GB10", "gpt-oss-120b MXFP4", 59.02, 77),
)


def alone(row: Published, *, context: float = 0.0) -> Ceiling:
    return compute_single_stream_ceiling(
        row.facts(),
        MODELS[row.model].costs(),
        decode_tokens_per_second=row.speed,
        context_tokens=context,
        gpu_share=None,
    )


def label(row: Published) -> str:
    return f"{row.count}x {row.device}, {row.model}, {row.engine}"


def test_a_single_stream_is_at_the_published_percent_of_what_it_reads() -> None:
    for row in PUBLISHED:
        assert alone(row).decode_ceiling_ratio["read"] * 100 == pytest.approx(row.percent, abs=1.5), label(row)


def test_a_single_stream_is_at_the_published_percent_of_the_whole_file() -> None:
    for row in [row for row in PUBLISHED if row.file]:
        assert alone(row).decode_ceiling_ratio["weights"] * 100 == pytest.approx(row.file, abs=1), label(row)


def test_there_are_enough_measurements_of_every_class() -> None:
    assert len(PUBLISHED) > 80
    assert {DEVICES[row.device][1] for row in PUBLISHED} == {HBM, GDDR, APPLE, LPDDR}


def test_long_contexts_are_read_as_well() -> None:
    for length, speed, weights, percent in ((512, 130.58, 60, 60), (8192, 110.66, 51, 57)):
        row = Published(SCOREBOARD, "llama.cpp, 2024", "GeForce RTX 4090", "Llama-3-8B Q4_K_M", speed, percent)
        assert alone(row).decode_ceiling_ratio["read"] * 100 == pytest.approx(weights, abs=1), length
        assert alone(row, context=length / 2).decode_ceiling_ratio["read"] * 100 == pytest.approx(percent, abs=1), (
            length
        )


def test_a_layer_split_is_held_against_one_card_and_not_against_the_sum() -> None:
    (row,) = (row for row in PUBLISHED if row.layout is DeviceLayout.PIPELINE)
    sum_of_both = replace(row, layout=DeviceLayout.TENSOR)
    assert alone(sum_of_both).decode_ceiling_ratio["read"] * 100 == pytest.approx(36, abs=1)
    assert alone(row).decode_ceiling_ratio["read"] * 100 == pytest.approx(73, abs=1)


def test_a_model_that_is_partly_on_the_cpu_is_held_against_both_memories() -> None:
    """geerlingguy/ai-benchmarks @ bdf9441: llama3.1:70b on an RTX 4090 with DDR5 of about 83 GB per second.

    21.5 of its 41.92 GB are taken to be on the card.
    """
    model = MODELS["Llama-3-70B Q4_K_M"]
    host = replace(devices("GeForce RTX 4090", 1008), cpu_memory_bandwidth=83 * GB)
    reading = compute_single_stream_ceiling(
        host, model.costs(), decode_tokens_per_second=3.10, context_tokens=0.0, gpu_share=21.5 / model.read
    )
    assert reading.decode_ceiling_tokens_per_second["read"] == pytest.approx(3.75, abs=0.01)
    assert reading.decode_ceiling_ratio["read"] * 100 == pytest.approx(83, abs=0.5)
    as_if_on_the_card = compute_single_stream_ceiling(
        host, model.costs(), decode_tokens_per_second=3.10, context_tokens=0.0, gpu_share=None
    )
    assert as_if_on_the_card.decode_ceiling_ratio["read"] * 100 == pytest.approx(13, abs=0.5)


# Batches


BODY_F16 = replace(MODELS["Llama-3-8B F16"], read=13.96)
"""Prompts in small batches do not read the output head."""
BODY_Q4 = replace(MODELS["Llama-3-8B Q4_0"], read=3.93)
H100_CONTEXT = 230.0
"""The report of inference-perf does not tell contexts. This many tokens a stream make one of its three points right,
and then the other two are."""


@dataclass(frozen=True)
class Batch:
    """Streams in step: tokens per second of all together, and two percents of the bandwidth.

    `naive` is what tokens per second x bytes of the weights would make of it, `percent` what is really read.
    """

    source: str
    device: str
    model: Model
    streams: int
    speed: float
    naive: float
    percent: float
    context: float = 0.0
    steps: float | None = None

    def found(self) -> Ceiling:
        """What the exporter makes of it."""
        load = Steady(
            streams=self.streams,
            steps_per_second=self.steps or self.speed / self.streams,
            context=self.context,
        )
        return measured(load.history(), devices(self.device, DEVICES[self.device][0]), self.model.costs())

    def naive_percent(self) -> float:
        """Tokens per second x bytes / bandwidth."""
        return self.speed * self.model.read / DEVICES[self.device][0] * 100


BATCHES: Final = (
    Batch("llama.cpp #15131", "GeForce RTX 4090", BODY_F16, 1, 65.20, 90, 90),
    Batch("llama.cpp #15131", "GeForce RTX 4090", BODY_F16, 8, 457.75, 634, 79),
    Batch("llama.cpp #15131", "GeForce RTX 3090", BODY_F16, 8, 390.73, 583, 73),
    Batch("llama.cpp #15131", "GeForce RTX 3090", BODY_F16, 16, 739.00, 1102, 69),
    Batch("llama.cpp #17505", "GeForce RTX 4090", BODY_Q4, 1, 98.14, 38, 80, 32768 + 256),
    Batch(
        "inference-perf, st1", "H100 SXM5 80GB", MODELS["Llama-3-8B F16"], 20, 2366, 1060, 54, H100_CONTEXT, 1 / 0.00862
    ),
    Batch(
        "inference-perf, st3", "H100 SXM5 80GB", MODELS["Llama-3-8B F16"], 172, 6956, 3117, 24, H100_CONTEXT, 1 / 0.0251
    ),
    Batch(
        "inference-perf, chunked",
        "H100 SXM5 80GB",
        MODELS["Llama-3-8B F16"],
        125,
        10794,
        4837,
        48,
        H100_CONTEXT,
        1 / 0.0118,
    ),
    Batch(SPARK, "DGX Spark GB10", MODELS["Qwen2.5-Coder-7B Q8_0"], 1, 29.24, 81, 81, 528),
    Batch(SPARK, "DGX Spark GB10", MODELS["Qwen2.5-Coder-7B Q8_0"], 32, 593.27, 1634, 58, 528),
)


def test_a_batch_is_measured_by_its_steps_and_never_by_its_tokens() -> None:
    for batch in BATCHES:
        assert batch.naive_percent() == pytest.approx(batch.naive, abs=1), batch
        percent = batch.found().memory_bandwidth_utilization_ratio["derived"] * 100
        assert percent == pytest.approx(batch.percent, abs=1.5), batch
        assert percent < 100, batch


def test_a_batch_of_a_mixture_is_an_estimate_from_above_and_is_not_clipped() -> None:
    """The batched table of ggml-org/llama.cpp benches/dgx-spark.md @ 4c7e989, prompts of 512 tokens."""
    for model, streams, speed, percent in (
        ("gpt-oss-120b MXFP4", 1, 57.28, 75),
        ("gpt-oss-120b MXFP4", 8, 146.65, 104),
        ("gpt-oss-120b MXFP4", 16, 220.02, 132),
        ("gpt-oss-120b MXFP4", 32, 312.56, 148),
        ("Qwen3-30B-A3B Q8_0", 8, 154.91, 100),
        ("Qwen3-30B-A3B Q8_0", 32, 345.01, 118),
    ):
        batch = Batch(SPARK, "DGX Spark GB10", MODELS[model], streams, speed, 0, percent, 528)
        shown = batch.found().memory_bandwidth_utilization_ratio["derived"] * 100
        assert shown == pytest.approx(percent, abs=2), (model, streams)


def test_a_mixture_is_not_held_against_experts_that_it_does_not_use() -> None:
    for device, model, speed, naive, percent in (
        ("GeForce RTX 4090", "gpt-oss-20b MXFP4", 279.65, 336, 71),
        ("DGX Spark GB10", "gpt-oss-20b MXFP4", 84.10, 373, 79),
        ("DGX Spark GB10", "gpt-oss-120b MXFP4", 59.02, 1370, 77),
        ("DGX Spark GB10", "Qwen3-30B-A3B Q8_0", 60.92, 725, 72),
    ):
        row = Published(SPARK, "llama.cpp", device, model, speed, percent)
        file = MODELS[model].file
        assert file, (device, model)
        assert speed * file / DEVICES[device][0] * 100 == pytest.approx(naive, abs=5), (device, model)
        ratios = alone(row).decode_ceiling_ratio
        assert ratios["read"] * 100 == pytest.approx(percent, abs=1), (device, model)
        assert ratios["read"] < ratios["weights"] < 1, (device, model)


# What docs/ceiling.md says of all of them


def band(row: Published) -> tuple[str, str]:
    _, group = DEVICES[row.device]
    model = MODELS[row.model]
    if model.read < 2:
        return "any", "below 2 GB"
    old = group == HBM and row.engine == "llama.cpp, 2024"
    return f"{group}, llama.cpp of 2024" if old else group, f"{model.bits} bit"


def test_the_healthy_bands_of_the_docs_are_those_of_the_measurements() -> None:
    computed: dict[tuple[str, str], list[int]] = {}
    for row in PUBLISHED:
        computed.setdefault(band(row), []).append(round(alone(row).decode_ceiling_ratio["read"] * 100))
    text = (ROOT / "docs" / "ceiling.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| devices \| weights \|.+\n\|[-|]+\n((?:\|.+\n)+)", text, re.MULTILINE)
    documented = {
        (devices, weights): (int(rows), lowest, highest)
        for devices, weights, rows, lowest, highest in (
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        )
    }
    assert documented == {
        key: (len(percents), f"{min(percents)} %", f"{max(percents)} %") for key, percents in computed.items()
    }
