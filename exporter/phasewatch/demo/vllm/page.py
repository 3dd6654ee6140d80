"""Responses of the simulated vLLM: /metrics with the names, labels and buckets of 0.32, /v1/models and /server_info."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from phasewatch.demo.vllm.counters import Counters, HistogramCounts, MetricFamily
from phasewatch.demo.vllm.settings import SimulatedVllmSettings

VERSION: Final = "0.32.0+simulated"

HELP: Final = "Simulated by phasewatch demo: nothing here was measured."

LOADING_SECONDS: Final = 40.0
"""Time from the start of the process to the creation of its counters, spent on loading the model."""


def render_metrics(counters: Counters, settings: SimulatedVllmSettings, created: float) -> str:
    """The current metrics page, in text format 0.0.4.

    Args:
        counters: the values.
        settings: settings of the server.
        created: Unix time at which its counters were created; the process started `LOADING_SECONDS` earlier.
    """
    process_start = created - LOADING_SECONDS
    lines = [*_render_header("process_start_time_seconds", "gauge"), f"process_start_time_seconds {process_start!r}"]
    for family in counters.families:
        lines += _render_family(family, counters, _render_labels(family, settings), created)
    lines += _render_http_requests(counters.http_requests, created)
    lines += _render_header("vllm:cache_config_info", "gauge")
    lines.append(f"vllm:cache_config_info{{{_render_cache_config(settings)}}} 1.0")
    return "\n".join(lines) + "\n"


def build_model_list(settings: SimulatedVllmSettings, now: float) -> dict[str, Any]:
    """Body of /v1/models. As in vLLM, `created` is the time of the request."""
    name = settings.served_model_name
    model = {
        "id": name,
        "object": "model",
        "created": int(now),
        "owned_by": "phasewatch demo",
        "root": f"simulated/{name}",
        "parent": None,
        "max_model_len": settings.max_model_len,
    }
    return {"object": "list", "data": [model]}


def build_server_info(settings: SimulatedVllmSettings) -> dict[str, Any]:
    """Body of /server_info?config_format=json (development mode), limited to what PhaseWatch reads."""
    return {
        "vllm_config": {
            "model_config": {"model": settings.served_model_name, "max_model_len": settings.max_model_len},
            "scheduler_config": {
                "max_num_seqs": settings.max_num_seqs,
                "max_num_batched_tokens": settings.max_num_batched_tokens,
            },
        }
    }


def _render_header(name: str, metric_type: str) -> tuple[str, str]:
    return f"# HELP {name} {HELP}", f"# TYPE {name} {metric_type}"


def _render_labels(family: MetricFamily, settings: SimulatedVllmSettings) -> str:
    model = f'model_name="{settings.served_model_name}"'
    return f'engine="0",{model}' if family.has_engine_label else model


def _render_family(family: MetricFamily, counters: Counters, labels: str, created: float) -> Iterator[str]:
    name = f"vllm:{family.name}"
    if family.type == "histogram":
        yield from _render_header(name, "histogram")
        yield from _render_histogram(name, labels, counters.histograms[family.name])
    else:
        sample_name = f"{name}_total" if family.type == "counter" else name
        yield from _render_header(sample_name, family.type)
        for label_value in family.label_values:
            value = float(counters.values[family.name, label_value])
            yield f"{sample_name}{{{_add_label(labels, family, label_value)}}} {value!r}"
    if family.type != "gauge":
        yield from _render_header(f"{name}_created", "gauge")
        for label_value in family.label_values:
            yield f"{name}_created{{{_add_label(labels, family, label_value)}}} {created!r}"


def _add_label(labels: str, family: MetricFamily, label_value: str) -> str:
    return f'{labels},{family.label}="{label_value}"' if family.label else labels


def _render_histogram(name: str, labels: str, histogram: HistogramCounts) -> Iterator[str]:
    total = 0
    for bound, total in zip((*histogram.upper_bounds, "+Inf"), histogram.accumulate_counts(), strict=True):
        yield f'{name}_bucket{{{labels},le="{bound}"}} {total}.0'
    yield f"{name}_count{{{labels}}} {total}.0"
    yield f"{name}_sum{{{labels}}} {float(histogram.sum)!r}"


def _render_http_requests(counts: Mapping[str, int], created: float) -> Iterator[str]:
    """The counter of the web framework: a class of status is there once it has occurred."""
    for name, kind in (("http_requests_total", "counter"), ("http_requests_created", "gauge")):
        yield from _render_header(name, kind)
        for status, count in counts.items():
            value = float(count) if kind == "counter" else created
            yield f'{name}{{handler="/v1/completions",method="POST",status="{status}"}} {value!r}'


def _render_cache_config(settings: SimulatedVllmSettings) -> str:
    """Labels of `cache_config_info`, which lists the configuration of the cache (0.32)."""
    concurrency = settings.kv_cache_size_tokens / settings.max_model_len
    labels = {
        "_block_size_resolved": "True",
        "block_size": settings.block_size,
        "cache_dtype": "auto",
        "cache_hit_alignment_tokens": "None",
        "effective_attention_block_size": settings.block_size,
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": "True",
        "engine": "0",
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "hash_block_size": "None",
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_layout": "None",
        "kv_cache_max_concurrency": f"{concurrency:.2f}",
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": settings.kv_cache_size_tokens,
        "kv_offloading_backend": "native",
        "kv_offloading_size": "None",
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": settings.num_gpu_blocks,
        "num_gpu_blocks_override": "None",
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": "None",
        "replayssm_buffer_len": "16",
        "skip_page_size_padded": "None",
        "sliding_window": "None",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": "False",
    }
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
