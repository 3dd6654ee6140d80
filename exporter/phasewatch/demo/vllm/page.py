"""The simulated vLLM's pages: /metrics in the names, labels and buckets of 0.32, and what it says of itself."""

from collections.abc import Iterator
from typing import Any, Final

from phasewatch.demo.vllm.counters import Counters, Distribution, Family
from phasewatch.demo.vllm.settings import Settings

VERSION: Final = "0.32.0+simulated"

HELP: Final = "Simulated by phasewatch demo: nothing here was measured."

LOADING_SECONDS: Final = 40.0
"""From the start of the process to that of its counters: loading the model takes so long."""


def metrics_page(counters: Counters, settings: Settings, started: float) -> str:
    """The page of metrics as it is now, in the text format 0.0.4.

    Args:
        counters: the numbers.
        settings: of the server.
        started: Unix time from which its counters count; its process is older by the time that loading took.
    """
    lines = [*_head("process_start_time_seconds", "gauge"), f"process_start_time_seconds {started - LOADING_SECONDS!r}"]
    for family in counters.families:
        lines += _family(family, counters, _labels(family, settings), started)
    lines += _head("vllm:cache_config_info", "gauge")
    lines.append(f"vllm:cache_config_info{{{_cache_config(settings)}}} 1.0")
    return "\n".join(lines) + "\n"


def models(settings: Settings, now: float) -> dict[str, Any]:
    """What /v1/models answers: `created` is the time of the request there, too."""
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


def server_info(settings: Settings) -> dict[str, Any]:
    """What /server_info?config_format=json answers in development mode, as far as PhaseWatch reads it."""
    return {
        "vllm_config": {
            "model_config": {"model": settings.served_model_name, "max_model_len": settings.max_model_len},
            "scheduler_config": {
                "max_num_seqs": settings.max_num_seqs,
                "max_num_batched_tokens": settings.max_num_batched_tokens,
            },
        }
    }


def _head(name: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {HELP}", f"# TYPE {name} {kind}"


def _labels(family: Family, settings: Settings) -> str:
    model = f'model_name="{settings.served_model_name}"'
    return f'engine="0",{model}' if family.of_engine else model


def _family(family: Family, counters: Counters, labels: str, created: float) -> Iterator[str]:
    name = f"vllm:{family.name}"
    if family.kind == "histogram":
        yield from _head(name, "histogram")
        yield from _histogram(name, labels, counters.histograms[family.name])
    else:
        shown = f"{name}_total" if family.kind == "counter" else name
        yield from _head(shown, family.kind)
        for value in family.values:
            yield f"{shown}{{{_with(labels, family, value)}}} {float(counters.numbers[family.name, value])!r}"
    if family.kind != "gauge":
        yield from _head(f"{name}_created", "gauge")
        for value in family.values:
            yield f"{name}_created{{{_with(labels, family, value)}}} {created!r}"


def _with(labels: str, family: Family, value: str) -> str:
    return f'{labels},{family.label}="{value}"' if family.label else labels


def _histogram(name: str, labels: str, counted: Distribution) -> Iterator[str]:
    total = 0
    for edge, total in zip((*counted.edges, "+Inf"), counted.cumulative(), strict=True):
        yield f'{name}_bucket{{{labels},le="{edge}"}} {total}.0'
    yield f"{name}_count{{{labels}}} {total}.0"
    yield f"{name}_sum{{{labels}}} {float(counted.sum)!r}"


def _cache_config(settings: Settings) -> str:
    """Labels of `cache_config_info`, a dump of the configuration of the cache (0.32)."""
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
