"""Which layers of a model attend, to what, and with how many heads: from the keys of its config.json."""

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
"""Architectures that servers keep one latent vector of per token instead of keys and values."""

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
"""Architectures whose keys are known to say all there is to say about grouped-query attention."""

_ONE_KEY_HEAD_EACH: Final = frozenset({"llama", "gpt_neox", "opt"})
"""Architectures that have as many heads of keys as of queries where the file does not say otherwise."""

_NEVER: Final[Mapping[str, str]] = {
    "num_kv_shared_layers": "layers that share keys and values are not counted yet",
    "block_configs": "layers of different shapes are not counted yet",
    "compress_rates": "compressed keys and values are not counted yet",
    "compress_ratios": "compressed keys and values are not counted yet",
    "is_encoder_decoder": "models with an encoder are not counted",
}

_REFUSED_TYPES: Final = frozenset({"gemma3n_text", "deepseek_v4"})
"""Architectures that share or compress even where their file leaves the keys out."""

_PECULIAR: Final = re.compile(
    r"sliding|window|swa|local_(?!experts)|global|chunk|linear_|mamba|ssm|conv|recurrent|kv_share|share_kv|shared_kv"
    r"|use_cla|cla_share|latent|kv_lora|v_head_dim|value_size|kv_channels|index_|compress|sparse_att|cross_att|encoder"
    r"|hybrid|pattern|period|interval|types|block_type|no_rope|multi_query"
)
"""Keys that say of an unknown architecture that its attention is not the plain one."""

_UNDERSTOOD: Final = frozenset({"use_sliding_window", "max_window_layers", "sliding_window", "layer_types"})
"""Of these, the ones that mean the same in every architecture."""

_LONGEST_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """The shape of multi-head latent attention.

    Attributes:
        rank: of the vector that is kept of a token.
        position_size: kept beside it, and the part of a head that knows of positions.
        index_size: kept of a token to choose by, where not all tokens are attended to; 0 otherwise.
        chosen: how many are; None for all.
        inner_size: of the key and the value that a head makes of the vector, together; None if that is not told.
    """

    rank: int
    position_size: int
    index_size: int
    chosen: int | None
    inner_size: int | None


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers that attend alike.

    Attributes:
        layers: how many there are.
        heads: of queries.
        key_heads: of keys, and of values.
        head_size: of one of them.
        span: how many of the newest tokens are attended to; None for all.
        latent: what is kept instead of keys and values, if so.
    """

    layers: int
    heads: int
    key_heads: int
    head_size: int
    span: int | None = None
    latent: LatentAttention | None = None


def read_attention_layers(model: Architecture) -> tuple[AttentionLayers, ...]:
    """The layers that keep something of every token, those that attend alike together.

    Raises:
        ModelError: the file does not say, or says what is not understood here.
    """
    _refuse(model)
    if model.model_type in _LATENT:
        return _latent_layers(model)
    if model.model_type not in _GROUPED:
        _refuse_peculiar(model)
    kinds = read_layer_kinds(model)
    fields, layers = model.fields, len(kinds)
    heads = fields.require_per_layer("num_attention_heads", layers)
    if fields.get("num_key_value_heads") is None and model.model_type in _ONE_KEY_HEAD_EACH and not model.nested:
        key_heads = heads
    else:
        key_heads = fields.require_per_layer("num_key_value_heads", layers)
    shapes = Counter(
        _shape(model, kind, *numbers)
        for kind, *numbers in zip(kinds, heads, key_heads, strict=True)
        if kind is not None and all(numbers)
    )
    return tuple(AttentionLayers(count, *shape) for shape, count in shapes.items())


def _shape(model: Architecture, kind: LayerKind, heads: int, key_heads: int) -> tuple[int, int, int, int | None]:
    """Heads, heads of keys, their size and the span of one layer."""
    fields = model.fields
    if model.model_type == "gemma4_text" and kind.span is None:
        # Layers that attend to everything have wider heads, and fewer where keys serve as values too.
        if fields.get_bool("attention_k_eq_v", default=False):
            key_heads = fields.require_int("num_global_key_value_heads")
        size = fields.require_int("global_head_dim")
    else:
        size = _head_size(model, heads)
    if heads % key_heads:
        raise fields.error("num_key_value_heads", f"{key_heads} does not divide the {heads} of num_attention_heads")
    return heads, key_heads, size, kind.span


def _head_size(model: Architecture, heads: int) -> int:
    fields = model.fields
    told = fields.get_int("head_dim")
    if told is not None:
        return told
    if model.model_type == "gemma4_text" or (model.nested and model.model_type not in _GROUPED):
        raise fields.error("head_dim", "missing; its default in this architecture is not known")
    hidden = fields.require_int("hidden_size")
    if hidden % heads:
        raise fields.error("num_attention_heads", f"{heads} does not divide the hidden_size of {hidden}")
    return hidden // heads


def _latent_layers(model: Architecture) -> tuple[AttentionLayers, ...]:
    fields = model.fields
    chosen = fields.get_int("index_topk")
    key_size, value_size = fields.get_int("qk_nope_head_dim"), fields.get_int("v_head_dim")
    position_size = fields.require_int("qk_rope_head_dim")
    latent = LatentAttention(
        rank=fields.require_int("kv_lora_rank"),
        position_size=position_size,
        index_size=0 if chosen is None else fields.require_int("index_head_dim"),
        chosen=chosen,
        inner_size=None if key_size is None or value_size is None else key_size + position_size + value_size,
    )
    for key in fields.values:
        if key.startswith("index") and key not in {"index_topk", "index_head_dim", "index_n_heads"}:
            raise fields.error(key, "attention that shares or skips its index is not counted yet")
    attending = sum(kind is not None for kind in read_layer_kinds(model))
    heads = fields.require_int("num_attention_heads")
    return (AttentionLayers(attending, heads, heads, latent.rank + latent.position_size, None, latent),)


def _refuse(model: Architecture) -> None:
    if model.model_type in _REFUSED_TYPES:
        raise model.fields.error("model_type", f"the attention of {model.model_type} is not counted yet")
    for key, reason in _NEVER.items():
        if not is_empty(model.fields.get(key)):
            raise model.fields.error(key, reason)


def _refuse_peculiar(model: Architecture) -> None:
    """An unknown architecture is taken for a plain one only if no key speaks against it."""
    told = f"the architecture {model.model_type[:_LONGEST_NAME]!r} is not known, so what this says is not either"
    for key, value in model.fields.values.items():
        if key not in _UNDERSTOOD and not is_empty(value) and _PECULIAR.search(key):
            raise model.fields.error(key, told)
