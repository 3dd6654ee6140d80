"""The pages of a simulated llama-server, field by field those of llama.cpp b10434."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from phasewatch.demo.llamacpp.counters import Counters
from phasewatch.demo.llamacpp.settings import LlamaServerSettings
from phasewatch.demo.llamacpp.slot_view import SlotView

BUILD: Final = "b1-simulated"
"""`build_info` of /props."""

_PREFIX: Final = "llamacpp:"

_SAMPLING: Final[Mapping[str, Any]] = {
    "seed": 4294967295,
    "temperature": 0.800000011920929,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.949999988079071,
    "min_p": 0.05000000074505806,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.10000000149011612,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.10000000149011612,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.8999999761581421,
    "max_tokens": -1,
    "n_predict": -1,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": False,
    "stream": False,
    "n_probs": 0,
    "min_keep": 0,
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
    "speculative.types": "none",
    "timings_per_token": False,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}
"""Sampling settings of a request that sets none."""

_TEMPLATE: Final = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def render_metrics(counters: Counters, averages: tuple[float, float], *, processing: int, deferred: int) -> str:
    """The page of /metrics.

    Args:
        counters: the counters.
        averages: prompt and generated tokens per second since the last scrape.
        processing: busy slots.
        deferred: requests that wait for a slot.
    """
    prompts, streams = averages
    busy = counters.busy_slots / counters.decodes if counters.decodes else 0
    rows: Sequence[tuple[str, str, str, float]] = (
        (
            "prompt_tokens_total",
            "counter",
            "Number of prompt tokens processed, excluding cached tokens",
            counters.prompt_tokens,
        ),
        (
            "prompt_tokens_cached_total",
            "counter",
            "Number of prompt tokens reused from the cache",
            counters.cached_tokens,
        ),
        ("prompt_seconds_total", "counter", "Total time spent processing prompts", counters.prompt_seconds),
        ("tokens_predicted_total", "counter", "Number of generation tokens processed", counters.predicted_tokens),
        ("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens", counters.predicted_seconds),
        (
            "n_decode_total",
            "counter",
            "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding",
            counters.decodes,
        ),
        (
            "n_tokens_max",
            "counter",
            "Largest observed sequence length (prompt + generation)",
            counters.longest_sequence,
        ),
        ("spec_decode_num_draft_tokens_total", "counter", "Speculative: Total draft tokens generated", 0),
        (
            "spec_decode_num_accepted_tokens_total",
            "counter",
            "Speculative: Total draft tokens accepted by the target model",
            0,
        ),
        (
            "spec_decode_num_drafts_total",
            "counter",
            "Speculative: Total speculative decoding verification steps",
            0,
        ),
        ("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s", prompts),
        ("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s", streams),
        ("requests_processing", "gauge", "Number of requests processing", processing),
        ("requests_deferred", "gauge", "Number of requests deferred", deferred),
        ("n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call", busy),
    )
    # Six significant digits, as C++ streams print them.
    return "".join(
        f"# HELP {_PREFIX}{name} {about}\n# TYPE {_PREFIX}{name} {kind}\n{_PREFIX}{name} {value:g}\n"
        for name, kind, about, value in rows
    )


def build_slots(slots: Sequence[SlotView], settings: LlamaServerSettings) -> list[dict[str, Any]]:
    """The body of /slots. A slot without a request yet has four fields only."""
    return [_build_slot(number, slot, settings) for number, slot in enumerate(slots)]


def _build_slot(number: int, slot: SlotView, settings: LlamaServerSettings) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": number,
        "n_ctx": settings.slot_context,
        "speculative": False,
        "is_processing": slot.is_processing,
    }
    if slot.task is None:
        return body
    remaining = slot.limit - slot.decoded if slot.is_processing and slot.limit >= 0 else -1
    return body | {
        "id_task": slot.task,
        "n_prompt_tokens": slot.held,
        "n_prompt_tokens_processed": slot.processed,
        "n_prompt_tokens_cache": slot.cached,
        "params": _build_parameters(slot.limit, stream=True, reasoning_format="deepseek"),
        "next_token": [
            {
                "has_next_token": slot.has_next,
                "has_new_line": False,
                "n_remain": remaining,
                "n_decoded": slot.decoded,
            }
        ],
    }


def _build_parameters(limit: int, **changes: Any) -> dict[str, Any]:
    """The sampling settings with a limit on the generated tokens."""
    return {**_SAMPLING, "max_tokens": limit, "n_predict": limit, **changes}


def build_props(settings: LlamaServerSettings, *, is_sleeping: bool) -> dict[str, Any]:
    """The body of /props."""
    return {
        "default_generation_settings": {"params": dict(_SAMPLING), "n_ctx": settings.slot_context},
        "total_slots": settings.slots,
        "model_alias": settings.alias,
        "model_ftype": settings.ftype,
        "model_path": settings.model_path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": "<__media__>",
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": settings.has_metrics,
        "ui": True,
        "ui_settings": {},
        "chat_template": _TEMPLATE,
        "chat_template_caps": {
            "supports_object_arguments": False,
            "supports_parallel_tool_calls": False,
            "supports_preserve_reasoning": False,
            "supports_reasoning_effort": False,
            "supports_string_content": True,
            "supports_system_role": True,
            "supports_tool_calls": False,
            "supports_tools": False,
            "supports_typed_content": False,
        },
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": BUILD,
        "is_sleeping": is_sleeping,
        "cors_proxy_enabled": False,
    }


def build_model_list(settings: LlamaServerSettings, created: int) -> dict[str, Any]:
    """The body of /v1/models.

    Args:
        settings: settings of the server.
        created: Unix time of the response, seconds.
    """
    details = {"parent_model": "", "format": "gguf", "family": "", "families": [""]}
    model = {
        "name": settings.alias,
        "model": settings.alias,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": {**details, "parameter_size": "", "quantization_level": ""},
    }
    meta = {
        "vocab_type": 2,
        "n_vocab": settings.vocabulary,
        "n_ctx": settings.slot_context,
        "n_ctx_train": settings.train_context,
        "n_embd": settings.width,
        "n_params": settings.parameters,
        "size": settings.weight_bytes,
        "ftype": settings.ftype,
    }
    data = {
        "id": settings.alias,
        "aliases": [settings.alias],
        "tags": [],
        "object": "model",
        "created": created,
        "owned_by": "llamacpp",
        "meta": meta,
    }
    return {"models": [model], "object": "list", "data": [data]}
