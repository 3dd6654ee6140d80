"""Phases: what is known about devices and models, and which missing fact leaves a ceiling empty."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dashboards.generate.model import Column, Query, Table, ValueMapping
from dashboards.generate.queries import (
    BY_ENGINE,
    ENGINE_MATCHERS,
    MODEL_MATCHERS,
    select_engines,
    select_models,
    select_targets,
)

_SOURCES: Final[Mapping[str, ValueMapping]] = {
    "config": ValueMapping("configuration"),
    "table": ValueMapping("table of devices"),
    "driver": ValueMapping("driver"),
    "measured": ValueMapping("measured"),
    "safetensors": ValueMapping("weight files"),
    "index": ValueMapping("index of the weights"),
    "config_json": ValueMapping("config.json"),
    "ollama": ValueMapping("Ollama"),
    "llamacpp": ValueMapping("llama-server"),
}


@dataclass(frozen=True, slots=True)
class _Gap:
    """A fact that may be missing.

    Attributes:
        engines: PromQL for the engines that need it.
        with_fact: PromQL for those that have it; empty if none can.
        fact: its name, and what cannot be shown without it.
        remedy: what to set.
    """

    engines: str
    with_fact: str
    fact: str
    remedy: str


_ENGINES: Final = f'max by ({BY_ENGINE}) (llm_saturation_state{{{ENGINE_MATCHERS}, backend!="ollama"}})'
_OLLAMA: Final = f"({select_models('llm_model_loaded')} == 1)"
_OLLAMA_WEIGHTS: Final = select_models("llm_weight_bytes", backend="ollama")
_GAPS: Final = (
    _Gap(
        _ENGINES,
        select_engines("llm_device_memory_bandwidth_bytes_per_second"),
        "Memory bandwidth: no MBU, no decode ceiling",
        "device: {name: NVIDIA L40S}, or {memory_bandwidth: 864GB/s}",
    ),
    _Gap(
        _ENGINES,
        select_engines("llm_device_flops_per_second"),
        "Operations per second: no MFU, no prefill ceiling",
        "device: {name: NVIDIA L40S} and model: {path: /models/...}, or device: {flops: 362TFLOPS}",
    ),
    _Gap(
        _ENGINES,
        select_engines("llm_weight_bytes"),
        "Weights: no ceilings, no MBU",
        "model: {path: /models/...}, or {weights: 16.06GB}",
    ),
    _Gap(
        _ENGINES,
        select_engines("llm_kv_cache_bytes_per_token"),
        "KV cache per token: no MBU, no decode ceiling of basis read",
        "model: {path: /models/...}, or {kv_cache_bytes_per_token: 131072B}",
    ),
    _Gap(
        f"({select_engines('llm_device_flops_per_second')} and {select_engines('llm_prefill_tokens_per_second')})",
        select_engines("llm_prefill_ceiling_tokens_per_second"),
        "Parameters that a token is multiplied with: no MFU, no prefill ceiling",
        "model: {path: /models/...}, or {active_parameters: 7.5e9}",
    ),
    _Gap(
        select_engines("llm_kv_cache_usage_ratio"),
        select_engines("llm_kv_cache_capacity_tokens"),
        "Size of the KV cache: no MBU, no decode ceiling of basis read",
        "No key: the server does not report it. Start vLLM with --enable-mfu-metrics, and it counts MBU itself",
    ),
    _Gap(
        select_engines("llm_weight_bytes", backend="llamacpp"),
        select_engines("llm_weight_read_bytes"),
        "Weights that a step reads: no MBU, no decode ceiling of basis read",
        "model: {weights_read: 15.01GB}; all of them, if the model is dense and its output head is its input table",
    ),
    _Gap(
        select_engines("llm_kv_cache_used_tokens", backend="llamacpp"),
        select_engines("llm_kv_cache_capacity_tokens"),
        "Size of the KV cache: no share in use, no state KV cache full",
        "server: {kv_unified: true} if its slots share one cache (--kv-unified), otherwise {kv_unified: false}",
    ),
    _Gap(
        f"({_OLLAMA} and {_OLLAMA_WEIGHTS})",
        select_models("llm_decode_ceiling_tokens_per_second", backend="ollama", basis="weights"),
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
_NO_ENGINE_OR_MODEL: Final = f"absent({_ENGINES}\n    or {_OLLAMA})"
_TARGETS_UP: Final = f"({select_targets('llm_target_up')} == 1)"
_NO_ENGINES: Final = (
    _Gap(
        f"{_NO_ENGINE_OR_MODEL}\n    unless on () {_TARGETS_UP}",
        "",
        "No server answers, so nothing can be said",
        "Is the server up, and PhaseWatch? See the board Exporter",
    ),
    _Gap(
        f"{_NO_ENGINE_OR_MODEL}\n    and on () {_TARGETS_UP}",
        "",
        "No such engine answers and no such model is in memory, so nothing can be said",
        "No key. An Ollama has facts while a model is in memory; another server, once it shows its engines",
    ),
)
"""Rows for the case that there is no engine at all: an empty table would look as if nothing were missing."""


def build_facts() -> Table:
    """The inputs of each engine's ceilings, and their sources."""
    return Table(
        title="Facts",
        description=(
            "What ceilings, MBU and MFU are computed from, of all devices that serve the engine together. A wrong fact makes "
            "every percentage wrong: compare with the data sheet and the size of the model's files. The keys device and "
            "model of the configuration beat what was found."
        ),
        queries=(
            Query(_ENGINES, ref_id="engines"),
            Query(_OLLAMA, ref_id="models"),
            Query(f"max by ({BY_ENGINE}, device, count) ({_select_with_labels('llm_device_info')})", ref_id="devices"),
            Query(
                _select_source("llm_device_memory_bandwidth_bytes_per_second", "bandwidth_source"), ref_id="bandwidth"
            ),
            Query(_select_source("llm_device_flops_per_second", "flops_source"), ref_id="flops"),
            Query(_select_source("llm_weight_bytes", "weights_source"), ref_id="weights"),
            Query(_select_source("llm_kv_cache_bytes_per_token", "cache_source"), ref_id="cache"),
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
        no_value="No engine answers, and no model of an Ollama is in memory",
        sort_by=("Target", False),
    )


def _select_with_labels(name: str) -> str:
    """A metric of the chosen engines with all its labels; Ollama models, which have no engine, are always included."""
    return f'({name}{{{ENGINE_MATCHERS}}} or {name}{{{MODEL_MATCHERS}, backend="ollama"}})'


def _select_source(name: str, label: str) -> str:
    """A fact with its label `source` renamed, since a row of the table joins several facts."""
    renamed = f'label_replace({_select_with_labels(name)}, "{label}", "$1", "source", "(.*)")'
    return f"max by ({BY_ENGINE}, {label}) ({renamed})"


def build_missing_facts() -> Table:
    """What to set where a ceiling is empty."""
    return Table(
        title="Facts that are missing",
        description=(
            "Good is an empty table. A row says what cannot be shown, and the key of the target to set in the configuration "
            "of PhaseWatch; `phasewatch devices NAME` tells whether a name is known. Its log says the same, once for each target."
        ),
        queries=(Query(_query_gaps()),),
        columns=(
            Column("target", "Target", width=175),
            Column("model_name", "Model", width=180),
            Column("engine", "Engine", width=65),
            Column("fact", "What is missing", wrap_text=True),
            Column("remedy", "What to set", wrap_text=True),
        ),
        width=24,
        height=5,
        no_value="Nothing is missing",
    )


def _query_gaps() -> str:
    """PromQL: a series for each fact that an engine lacks, with its description and remedy as labels."""
    return "\nor ".join(_query_gap(gap) for gap in (*_GAPS, *_NO_ENGINES))


def _query_gap(gap: _Gap) -> str:
    without_fact = f"{gap.engines}\n    unless {gap.with_fact}" if gap.with_fact else gap.engines
    return f'label_replace(label_replace(\n    {without_fact},\n  "fact", "{gap.fact}", "", ""), "remedy", "{gap.remedy}", "", "")'
