from dataclasses import replace

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.analysis.phases import Phases
from phasewatch.backends import find_backend
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.web.landing.phase_bars import render_phase_bars
from tests.support.live_page import KNOWN, OLLAMA
from tests.support.markup import Markup

(STREAM,) = OLLAMA.engines
BANDWIDTH = {"table": 864e9}
FLOPS = {"table": 362e12}


def drawn(engine: EngineSnapshot, backend: str = "vllm", gpu_ratio: float | None = None) -> Markup:
    return Markup("".join(render_phase_bars(engine, ModelSnapshot("m", gpu_ratio=gpu_ratio), find_backend(backend))))


def against(ceiling: Ceiling, backend: str = "vllm", gpu_ratio: float | None = None) -> list[str]:
    """What is said of both ceilings."""
    return drawn(replace(KNOWN, ceiling=ceiling), backend, gpu_ratio).texts("p", "against")


def widths(markup: Markup) -> list[tuple[str, float]]:
    return [(rect.attributes["class"], float(rect.attributes["width"])) for rect in markup.all("rect")]


def test_each_phase_is_a_bar_against_its_ceiling_and_memory_one_against_its_bandwidth() -> None:
    bars = drawn(KNOWN)
    assert widths(bars) == [("fill prefill", 27.2), ("fill decode", 68.6), ("fill memory", 71.0)]
    assert bars.texts("p", "what") == [
        "Prefill one request6,120 tok/s",
        "Decode one stream33.2 tok/s",
        "Memory bandwidth used71 %",
    ]
    assert bars.texts("p", "against") == ["27 % of its ceiling, 22,500 tok/s", "69 % of its ceiling, 48.4 tok/s"]


def test_every_bar_says_what_it_shows() -> None:
    assert [bar.attributes["aria-label"] for bar in drawn(replace(KNOWN, ceiling=Ceiling())).all("svg")] == [
        "Prefill: 6,120 tokens per second, no ceiling: set device and model in the configuration",
        "Decode: 33.2 tokens per second, no ceiling: set device and model in the configuration",
    ]
    assert drawn(KNOWN).all("svg")[2].attributes["aria-label"] == "memory bandwidth used: 71 %"


def test_the_most_exact_ceiling_counts_and_without_it_the_other() -> None:
    rough = replace(
        KNOWN.ceiling,
        decode_ceiling_tokens_per_second={"weights": 57.6},
        decode_ceiling_ratio={"weights": 0.577},
        memory_bandwidth_utilization_ratio={"engine": 0.9},
    )
    bars = drawn(replace(KNOWN, ceiling=rough))
    assert widths(bars)[1:] == [("fill decode", 57.7), ("fill memory", 90.0)]
    assert bars.texts("p", "against")[1] == "58 % of its ceiling, 57.6 tok/s"


def test_a_speed_above_its_ceiling_is_shown_with_what_may_explain_it() -> None:
    above = replace(KNOWN.ceiling, decode_ceiling_ratio={"read": 1.31}, prefill_ceiling_ratio=1.004)
    prefill, decode = against(above)
    assert decode == "131 % of its ceiling, 48.4 tok/s: speculation, or a wrong fact"
    assert prefill == "100 % of its ceiling, 22,500 tok/s"


def test_a_ceiling_is_shown_before_there_is_a_speed() -> None:
    idle = replace(KNOWN.ceiling, decode_ceiling_ratio={}, prefill_ceiling_ratio=None)
    bars = drawn(replace(KNOWN, phases=Phases(), ceiling=idle))
    assert bars.texts("p", "against") == ["ceiling 22,500 tok/s", "ceiling 48.4 tok/s"]
    assert bars.texts("b")[:2] == ["–", "–"]  # noqa: RUF001  # an en dash on purpose
    assert [bar.attributes["class"] for bar in bars.all("svg")] == ["bar empty", "bar empty", "bar"]


def test_a_missing_ceiling_names_the_configuration_key_that_would_give_it() -> None:
    for ceiling, prefill, decode in (
        (Ceiling(), "`device` and `model`", "`device` and `model`"),
        (Ceiling(weight_read_bytes=15e9), "`device`", "`device`"),
        (Ceiling(device_memory_bandwidth_bytes_per_second=BANDWIDTH), "`model`", "`model`"),
        (
            Ceiling(device_memory_bandwidth_bytes_per_second=BANDWIDTH, weight_bytes={"config": 16e9}),
            "`device.flops`",
            "`model`",
        ),
        (
            Ceiling(
                device_memory_bandwidth_bytes_per_second=BANDWIDTH,
                device_flops_per_second=FLOPS,
                weight_read_bytes=15e9,
            ),
            "`model.path`",
            "`model`",
        ),
    ):
        expected = [f"no ceiling: set {keys.replace('`', '')} in the configuration" for keys in (prefill, decode)]
        assert against(ceiling) == expected, (ceiling, prefill)
        bars = drawn(replace(KNOWN, ceiling=ceiling))
        assert bars.texts("code") == [
            key for key in f"{prefill} and {decode}".split("`") if key not in {"", " and "}
        ], (ceiling, prefill)


def test_a_server_that_reads_no_prompt_has_a_ceiling_as_soon_as_it_does() -> None:
    known = Ceiling(
        device_memory_bandwidth_bytes_per_second=BANDWIDTH, device_flops_per_second=FLOPS, weight_read_bytes=15e9
    )
    idle = drawn(replace(KNOWN, phases=Phases(), ceiling=known))
    assert idle.texts("p", "against")[0] == "no ceiling while no prompt is read"


def test_an_ollama_has_a_ceiling_for_decode_alone() -> None:
    bars = drawn(STREAM, "ollama", 1.0)
    assert bars.texts("p", "against") == ["an Ollama's prefill has no ceiling", "72 % of its ceiling, 30.0 tok/s"]
    assert widths(bars) == [("fill decode", 72.3)]


def test_a_missing_ceiling_of_an_ollama_names_the_key_of_the_device_or_of_the_host_memory() -> None:
    for ceiling, gpu_ratio, text in [
        (Ceiling(), None, "no ceiling is known for this model"),
        (Ceiling(weight_bytes={"server": 9e9}), 1.0, "no ceiling: set device in the configuration"),
        (Ceiling(weight_bytes={"server": 9e9}), 0.5, "no ceiling: set device in the configuration"),
        (
            Ceiling(weight_bytes={"server": 9e9}),
            0.0,
            "no ceiling: set device.cpu_memory_bandwidth in the configuration",
        ),
        (
            Ceiling(device_memory_bandwidth_bytes_per_second=BANDWIDTH, weight_bytes={"server": 9e9}),
            0.5,
            "no ceiling: set device.cpu_memory_bandwidth in the configuration",
        ),
        (Ceiling(device_memory_bandwidth_bytes_per_second=BANDWIDTH), 1.0, "no ceiling is known for this model"),
    ]:
        assert against(ceiling, "ollama", gpu_ratio)[1] == text, (ceiling, gpu_ratio)
