"""Attention layers of a model: number, heads, head size and span, from the keys of its config.json."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.models.shape.architecture import Architecture, is_empty
from phasewatch.models.shape.layers import LayerKind, read_layer_kinds

_LATENT: Final = frozenset(
    {
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "kimi_k2",
        "kimi_linear",
        "mistral4",
    }
)
"""Architectures with multi-head latent attention: one latent vector is cached per token instead of keys and values."""

_GROUPED: Final = frozenset(
    {
        *("llama", "mistral", "ministral", "ministral3", "mixtral", "phi3", "granite", "starcoder2", "seed_oss"),
        *("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
        *("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
        *("gemma", "gemma2", "gemma3_text", "gemma4_text", "cohere", "cohere2", "olmo2", "olmo3", "smollm3"),
        *("gpt_oss", "glm4", "glm4_moe", "llama4_text", "minimax_m2"),
        *("jamba", "nemotron_h", "granitemoehybrid", "lfm2", "lfm2_moe", "falcon_h1"),
    }
)
"""Architectures with grouped-query attention that is fully described by the keys read here."""

_MULTI_HEAD_BY_DEFAULT: Final = frozenset({"llama", "gpt_neox", "opt"})
"""Architectures with as many key heads as query heads if `num_key_value_heads` is missing."""

_REFUSED_KEYS: Final[Mapping[str, str]] = {
    "num_kv_shared_layers": "layers that share keys and values are not counted yet",
    "block_configs": "layers of different shapes are not counted yet",
    "compress_rates": "compressed keys and values are not counted yet",
    "compress_ratios": "compressed keys and values are not counted yet",
    "is_encoder_decoder": "models with an encoder are not counted",
}
"""Keys of unsupported features, with the message for each."""

_REFUSED_TYPES: Final = frozenset({"gemma3n_text", "deepseek_v4"})
"""Architectures that share or compress keys and values even if their file omits the keys."""

_SPECIAL_ATTENTION: Final = re.compile(
    r"sliding|window|swa|local_(?!experts)|global|chunk|linear_|mamba|ssm|conv|recurrent|kv_share|share_kv|shared_kv"
    r"|use_cla|cla_share|latent|kv_lora|v_head_dim|value_size|kv_channels|index_|compress|sparse_att|cross_att|encoder"
    r"|hybrid|pattern|period|interval|types|block_type|no_rope|multi_query"
)
"""Keys that mean that an unknown architecture does not have plain grouped-query attention."""

_COMMON_KEYS: Final = frozenset({"use_sliding_window", "max_window_layers", "sliding_window", "layer_types"})
"""Those of them that have the same meaning in every architecture."""

_MAX_NAME_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """The shape of multi-head latent attention.

    Attributes:
        rank: elements of the latent vector that is cached per token.
        position_size: elements cached beside it, the rotary part of a head.
        index_size: elements of a token's entry in the index that selects tokens; 0 without an index.
        selected_tokens: number of tokens that the index selects; None if all are attended to.
        expanded_size: elements of the key and value that a head expands from the vector, together; None if unknown.
    """

    rank: int
    position_size: int
    index_size: int
    selected_tokens: int | None
    expanded_size: int | None


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers with identical attention.

    Attributes:
        layers: number of layers.
        heads: query heads.
        key_heads: key heads; there are as many value heads.
        head_size: elements of one head.
        span: number of most recent tokens that are attended to; None for all.
        latent: shape of latent attention; None for keys and values.
    """

    layers: int
    heads: int
    key_heads: int
    head_size: int
    span: int | None = None
    latent: LatentAttention | None = None


def read_attention_layers(model: Architecture) -> tuple[AttentionLayers, ...]:
    """The layers that cache something for every token, grouped by identical attention.

    Raises:
        ModelError: a key is missing or wrong, or the attention is not supported.
    """
    _refuse_unsupported(model)
    if model.model_type in _LATENT:
        return _read_latent_layers(model)
    if model.model_type not in _GROUPED:
        _refuse_special_attention(model)
    kinds = read_layer_kinds(model)
    fields, layers = model.fields, len(kinds)
    heads = fields.require_per_layer("num_attention_heads", layers)
    if fields.get("num_key_value_heads") is None and model.model_type in _MULTI_HEAD_BY_DEFAULT and not model.nested:
        key_heads = heads
    else:
        key_heads = fields.require_per_layer("num_key_value_heads", layers)
    shapes = Counter(
        _read_shape(model, kind, *head_counts)
        for kind, *head_counts in zip(kinds, heads, key_heads, strict=True)
        if kind is not None and all(head_counts)
    )
    return tuple(AttentionLayers(count, *shape) for shape, count in shapes.items())


def _read_shape(model: Architecture, kind: LayerKind, heads: int, key_heads: int) -> tuple[int, int, int, int | None]:
    """Query heads, key heads, head size and span of one layer."""
    fields = model.fields
    if model.model_type == "gemma4_text" and kind.span is None:
        # Global layers have larger heads, and fewer of them where keys serve as values too.
        if fields.get_bool("attention_k_eq_v", default=False):
            key_heads = fields.require_int("num_global_key_value_heads")
        size = fields.require_int("global_head_dim")
    else:
        size = _read_head_size(model, heads)
    if heads % key_heads:
        raise fields.error("num_key_value_heads", f"{key_heads} does not divide the {heads} of num_attention_heads")
    return heads, key_heads, size, kind.span


def _read_head_size(model: Architecture, heads: int) -> int:
    fields = model.fields
    head_size = fields.get_int("head_dim")
    if head_size is not None:
        return head_size
    if model.model_type == "gemma4_text" or (model.nested and model.model_type not in _GROUPED):
        raise fields.error("head_dim", "missing; its default in this architecture is not known")
    hidden = fields.require_int("hidden_size")
    if hidden % heads:
        raise fields.error("num_attention_heads", f"{heads} does not divide the hidden_size of {hidden}")
    return hidden // heads


def _read_latent_layers(model: Architecture) -> tuple[AttentionLayers, ...]:
    fields = model.fields
    selected_tokens = fields.get_int("index_topk")
    key_size, value_size = fields.get_int("qk_nope_head_dim"), fields.get_int("v_head_dim")
    position_size = fields.require_int("qk_rope_head_dim")
    latent = LatentAttention(
        rank=fields.require_int("kv_lora_rank"),
        position_size=position_size,
        index_size=0 if selected_tokens is None else fields.require_int("index_head_dim"),
        selected_tokens=selected_tokens,
        expanded_size=None if key_size is None or value_size is None else key_size + position_size + value_size,
    )
    for key in fields.values:
        if key.startswith("index") and key not in {"index_topk", "index_head_dim", "index_n_heads"}:
            raise fields.error(key, "attention that shares or skips its index is not counted yet")
    attending = sum(kind is not None for kind in read_layer_kinds(model))
    heads = fields.require_int("num_attention_heads")
    return (AttentionLayers(attending, heads, heads, latent.rank + latent.position_size, None, latent),)


def _refuse_unsupported(model: Architecture) -> None:
    if model.model_type in _REFUSED_TYPES:
        raise model.fields.error("model_type", f"the attention of {model.model_type} is not counted yet")
    for key, reason in _REFUSED_KEYS.items():
        if not is_empty(model.fields.get(key)):
            raise model.fields.error(key, reason)


def _refuse_special_attention(model: Architecture) -> None:
    """Refuse an unknown architecture if any of its keys describes special attention."""
    message = f"the architecture {model.model_type[:_MAX_NAME_LENGTH]!r} is not known, so what this says is not either"
    for key, value in model.fields.values.items():
        if key not in _COMMON_KEYS and not is_empty(value) and _SPECIAL_ATTENTION.search(key):
            raise model.fields.error(key, message)
