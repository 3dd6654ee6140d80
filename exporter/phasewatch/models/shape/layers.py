"""The attention span of each layer of a model, from the various keys of a config.json that describe it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.models.errors import shorten
from phasewatch.models.fields import MAX_LAYERS
from phasewatch.models.shape.architecture import Architecture


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A layer that attends to the `span` most recent tokens; None for all tokens."""

    span: int | None = None


_ALL: Final = "all"
_WINDOW: Final = "window"
_CHUNK: Final = "chunk"
_NONE: Final = "none"

_KINDS_BY_NAME: Final[Mapping[str, str]] = {
    "full_attention": _ALL,
    "attention": _ALL,
    "indexed_attention": _ALL,
    "sliding_attention": _WINDOW,
    "chunked_attention": _CHUNK,
    "linear_attention": _NONE,
    "mamba": _NONE,
    "mamba2": _NONE,
    "conv": _NONE,
    "mlp": _NONE,
    "moe": _NONE,
}
"""Kinds of layers by their name in `layer_types` and `layers_block_type`."""

_KINDS_BY_LETTER: Final[Mapping[str, str]] = {"*": _ALL, "M": _NONE, "-": _NONE, "E": _NONE}
"""Kinds of layers by their letter in `hybrid_override_pattern`."""

_WINDOW_IN_ALL_LAYERS: Final = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})
"""Architectures with a sliding window in all layers if `sliding_window` is set and `layer_types` is not."""

_WINDOW_BY_SWITCH: Final = frozenset(
    {"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3", "qwen3_moe"}
)
"""Architectures with a sliding window only if `use_sliding_window` is true."""


def read_layer_kinds(model: Architecture) -> list[LayerKind | None]:
    """The kind of each layer in order; None for a layer that caches nothing per token.

    Raises:
        ModelError: a key is missing or wrong, or a kind of layer is not supported.
    """
    names = _read_kind_names(model)
    kinds = {name: _read_kind(model, name) for name in set(names)}
    return [kinds[name] for name in names]


def _read_kind(model: Architecture, name: str) -> LayerKind | None:
    if name == _NONE:
        return None
    if name == _WINDOW:
        return LayerKind(model.fields.require_int("sliding_window"))
    if name == _CHUNK:  # upper bound: a token attends to the part of its chunk before it
        return LayerKind(model.fields.require_int("attention_chunk_size"))
    return LayerKind()


def _read_kind_names(model: Architecture) -> list[str]:
    listed = _read_listed_kinds(model)
    if listed is not None:
        return listed
    fields = model.fields
    layers = fields.require_int("num_hidden_layers", MAX_LAYERS)
    match model.model_type:
        case "jamba":
            period, offset = fields.require_int("attn_layer_period"), fields.get_count("attn_layer_offset")
            return [_ALL if index % period == offset else _NONE for index in range(layers)]
        case "llama4_text":
            return _read_llama4_kinds(model, layers)
        case "nemotron_h" | "granitemoehybrid" | "lfm2" | "lfm2_moe" | "kimi_linear":
            raise fields.error("layer_types", "missing; expected the kind of each layer")
    interval = fields.get_int("full_attention_interval")
    if interval is not None:
        return [_NONE if (index + 1) % interval else _ALL for index in range(layers)]
    return _read_sliding_kinds(model, layers)


def _read_listed_kinds(model: Architecture) -> list[str] | None:
    """The kinds of layers as listed in the file; None if it has no list."""
    fields = model.fields
    for key in ("layer_types", "layers_block_type"):
        words = fields.get_texts(key)
        if words:
            return _translate(model, key, words, _KINDS_BY_NAME)
    pattern = fields.get_text("hybrid_override_pattern")
    if pattern:
        return _translate(model, "hybrid_override_pattern", list(pattern), _KINDS_BY_LETTER)
    linear = fields.get_section("linear_attn_config")
    if linear is not None:
        return _mark_attending(model, [index - 1 for index in linear.get_ints("full_attn_layers")])  # counted from 1
    if fields.get("full_attn_idxs") is not None:
        return _mark_attending(model, fields.get_ints("full_attn_idxs"))
    return None


def _translate(model: Architecture, key: str, words: list[str], kinds: Mapping[str, str]) -> list[str]:
    layers = model.fields.get_int("num_hidden_layers", MAX_LAYERS) or len(words)
    if len(words) != layers:
        raise model.fields.error(key, f"expected one entry for each of {layers} layers, found {len(words)}")
    for word in words:
        if word not in kinds:
            raise model.fields.error(key, f"layers of the kind {shorten(word)} are not known")
    return [kinds[word] for word in words]


def _mark_attending(model: Architecture, attending: list[int]) -> list[str]:
    layers = model.fields.require_int("num_hidden_layers", MAX_LAYERS)
    return [_ALL if index in frozenset(attending) else _NONE for index in range(layers)]


def _read_llama4_kinds(model: Architecture, layers: int) -> list[str]:
    """Llama 4: layers with rotary positions attend within a chunk, the others to all tokens."""
    flags = model.fields.get_ints("no_rope_layers")
    if flags and len(flags) != layers:
        raise model.fields.error(
            "no_rope_layers", f"expected one entry for each of {layers} layers, found {len(flags)}"
        )
    interval = model.fields.require_int("no_rope_layer_interval")
    rotated = flags or [(index + 1) % interval for index in range(layers)]
    return [_CHUNK if rotates else _ALL for rotates in rotated]


def _read_sliding_kinds(model: Architecture, layers: int) -> list[str]:
    fields = model.fields
    window = fields.get("sliding_window")
    if window in (None, 0) or not fields.get_bool(
        "use_sliding_window", default=model.model_type not in _WINDOW_BY_SWITCH
    ):
        return [_ALL] * layers
    pattern = fields.get_int("sliding_window_pattern")
    if pattern is not None:
        return [_WINDOW if (index + 1) % pattern else _ALL for index in range(layers)]
    if model.model_type in _WINDOW_BY_SWITCH:
        first = fields.get_count("max_window_layers")
        return [_ALL] * min(first, layers) + [_WINDOW] * max(0, layers - first)
    if model.model_type in _WINDOW_IN_ALL_LAYERS:
        return [_WINDOW] * layers
    raise fields.error("sliding_window", "which layers slide is not told; expected layer_types")
