"""What is known of devices and models, and what is not: the tables that explain an empty ceiling."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dashboards.generate.model import Column, Query, Shown, Table
from dashboards.generate.pack import OF_ENGINE, OF_MODEL, of_engine, of_model, of_target

_SOURCES: Final[Mapping[str, Shown]] = {
    "config": Shown("configuration"),
    "table": Shown("table of devices"),
    "driver": Shown("driver"),
    "measured": Shown("measured"),
    "safetensors": Shown("weight files"),
    "index": Shown("index of the weights"),
    "config_json": Shown("config.json"),
    "ollama": Shown("Ollama"),
}
_ENGINE: Final = "target, model_name, engine"


@dataclass(frozen=True, slots=True)
class _Gap:
    """A fact that may be missing.

    Attributes:
        engines: for which it is, as PromQL.
        known: those that have it, empty for none.
        fact: its name, and what cannot be shown without it.
        remedy: what to set.
    """

    engines: str
    known: str
    fact: str
    remedy: str


_VLLM: Final = of_engine("llm_saturation_state")
_OLLAMA: Final = f"({of_model('llm_model_loaded')} == 1)"
_OLLAMA_WEIGHTS: Final = of_model("llm_weight_bytes", backend="ollama")
_GAPS: Final = (
    _Gap(
        _VLLM,
        of_engine("llm_device_memory_bandwidth_bytes_per_second"),
        "Memory bandwidth: no MBU, no decode ceiling",
        "device: {name: NVIDIA L40S}, or {memory_bandwidth: 864GB/s}",
    ),
    _Gap(
        _VLLM,
        of_engine("llm_device_flops_per_second"),
        "Operations per second: no MFU, no prefill ceiling",
        "device: {name: NVIDIA L40S} and model: {path: /models/...}, or device: {flops: 362TFLOPS}",
    ),
    _Gap(
        _VLLM,
        of_engine("llm_weight_bytes"),
        "Weights: no ceilings, no MBU",
        "model: {path: /models/...}, or {weights: 16.06GB}",
    ),
    _Gap(
        _VLLM,
        of_engine("llm_kv_cache_bytes_per_token"),
        "KV cache per token: no MBU, no decode ceiling of basis read",
        "model: {path: /models/...}, or {kv_cache_bytes_per_token: 131072B}",
    ),
    _Gap(
        f"({of_engine('llm_device_flops_per_second')} and {of_engine('llm_prefill_tokens_per_second')})",
        of_engine("llm_prefill_ceiling_tokens_per_second"),
        "Parameters that a token is multiplied with: no MFU, no prefill ceiling",
        "model: {path: /models/...}, or {active_parameters: 7.5e9}",
    ),
    _Gap(
        of_engine("llm_kv_cache_usage_ratio"),
        of_engine("llm_kv_cache_capacity_tokens"),
        "Size of the KV cache: no MBU, no decode ceiling of basis read",
        "No key: the server does not tell it. Start vLLM with --enable-mfu-metrics, and it counts MBU itself",
    ),
    _Gap(
        f"({_OLLAMA} and {_OLLAMA_WEIGHTS})",
        of_model("llm_decode_ceiling_tokens_per_second", backend="ollama", basis="weights"),
        "Memory bandwidth of device or host: no decode ceiling",
        "device: {name: NVIDIA L40S}, and in it cpu_memory_bandwidth: 90GB/s for what is in the host's memory",
    ),
    _Gap(
        _OLLAMA,
        _OLLAMA_WEIGHTS,
        "Weights: no decode ceiling",
        "No key: an Ollama tells them itself. The log of PhaseWatch says why not (msg=model)",
    ),
)
_NOTHING: Final = f"absent({_VLLM}\n    or {_OLLAMA})"
_ANSWERING: Final = f"({of_target('llm_target_up')} == 1)"
_NOBODY: Final = (
    _Gap(
        f"{_NOTHING}\n    unless on () {_ANSWERING}",
        "",
        "No server answers, so nothing can be said",
        "Is the server up, and PhaseWatch? See the board Exporter",
    ),
    _Gap(
        f"{_NOTHING}\n    and on () {_ANSWERING}",
        "",
        "No such engine answers and no such model is in memory, so nothing can be said",
        "No key. Of an Ollama there are facts while a model is in memory; of a vLLM, once it tells of its engines",
    ),
)
"""Where there is no engine that could lack anything: an empty table would look as if all were known."""


def facts() -> Table:
    """What the ceilings of each engine are computed from, and who says so."""
    return Table(
        title="Facts",
        description=(
            "What ceilings, MBU and MFU are computed from, of all devices that serve the engine together. A wrong fact makes "
            "every percentage wrong: compare with the data sheet and the size of the model's files. The keys device and "
            "model of the configuration beat what was found."
        ),
        queries=(
            Query(_VLLM, name="engines"),
            Query(_OLLAMA, name="models"),
            Query(f"max by ({_ENGINE}, device, count) ({_told('llm_device_info')})", name="devices"),
            Query(_sourced("llm_device_memory_bandwidth_bytes_per_second", "bandwidth_source"), name="bandwidth"),
            Query(_sourced("llm_device_flops_per_second", "flops_source"), name="flops"),
            Query(_sourced("llm_weight_bytes", "weights_source"), name="weights"),
            Query(_sourced("llm_kv_cache_bytes_per_token", "cache_source"), name="cache"),
        ),
        columns=(
            Column("target", "Target"),
            Column("model_name", "Model"),
            Column("engine", "Engine", width=65),
            Column("device", "Device"),
            Column("count", "Count", width=60),
            Column("bandwidth", "Bandwidth", unit="Bps", width=95),
            Column("bandwidth_source", "from", mappings=_SOURCES),
            Column("flops", "Compute", unit="flops", width=105),
            Column("flops_source", "from ", mappings=_SOURCES),
            Column("weights", "Weights", unit="decbytes", width=85),
            Column("weights_source", "from  ", mappings=_SOURCES),
            Column("cache", "KV / token", unit="decbytes", width=90),
            Column("cache_source", "from   ", mappings=_SOURCES),
        ),
        width=24,
        height=7,
        empty="No engine answers, and no model of an Ollama is in memory",
        sorted_by=("Target", False),
    )


def _told(name: str) -> str:
    """Of the chosen engines, and of an Ollama, which has none, whichever are chosen."""
    return f'({name}{{{OF_ENGINE}}} or {name}{{{OF_MODEL}, backend="ollama"}})'


def _sourced(name: str, label: str) -> str:
    """A fact whose label `source` gets a name of its own, since a row of the table has several of them."""
    renamed = f'label_replace({_told(name)}, "{label}", "$1", "source", "(.*)")'
    return f"max by ({_ENGINE}, {label}) ({renamed})"


def missing() -> Table:
    """What to set where a ceiling is empty."""
    return Table(
        title="Facts that are missing",
        description=(
            "Good is an empty table. A row says what cannot be shown, and the key of the target to set in the configuration "
            "of PhaseWatch; `phasewatch devices NAME` tells whether a name is known. Its log says the same, once for each target."
        ),
        queries=(Query(_gaps()),),
        columns=(
            Column("target", "Target", width=130),
            Column("model_name", "Model", width=180),
            Column("engine", "Engine", width=65),
            Column("fact", "What is missing", wrapped=True),
            Column("remedy", "What to set", wrapped=True),
        ),
        width=24,
        height=5,
        empty="Nothing is missing",
    )


def _gaps() -> str:
    """A series for each fact that an engine lacks, with the words about it as labels."""
    return "\nor ".join(_worded(gap) for gap in (*_GAPS, *_NOBODY))


def _worded(gap: _Gap) -> str:
    lacking = f"{gap.engines}\n    unless {gap.known}" if gap.known else gap.engines
    return f'label_replace(label_replace(\n    {lacking},\n  "fact", "{gap.fact}", "", ""), "remedy", "{gap.remedy}", "", "")'
