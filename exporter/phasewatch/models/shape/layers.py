"""What each layer of a model attends to, one by one, from the many ways in which a config.json may say it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.models.errors import shorten
from phasewatch.models.fields import MAX_LAYERS
from phasewatch.models.shape.architecture import Architecture


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A layer that attends to the newest `span` tokens, or to all of them if that is None."""

    span: int | None = None


_ALL: Final = "all"
_WINDOW: Final = "window"
_CHUNK: Final = "chunk"
_NONE: Final = "none"

_WORDS: Final[Mapping[str, str]] = {
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
"""The names that `layer_types` and `layers_block_type` give to layers."""

_LETTERS: Final[Mapping[str, str]] = {"*": _ALL, "M": _NONE, "-": _NONE, "E": _NONE}
"""The same in a `hybrid_override_pattern`."""

_ALL_IN_A_WINDOW: Final = frozenset({"mistral", "mixtral", "phi3", "starcoder2"})
"""Architectures whose layers all slide where `sliding_window` is told and `layer_types` is not."""

_WINDOW_BY_SWITCH: Final = frozenset(
    {"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3", "qwen3_moe"}
)
"""Architectures that slide only if `use_sliding_window` says so."""


def read_layer_kinds(model: Architecture) -> list[LayerKind | None]:
    """What each layer attends to, in order; None for a layer that keeps nothing of single tokens.

    Raises:
        ModelError: the file does not say, or says what is not understood here.
    """
    names = _names(model)
    kinds = {name: _kind(model, name) for name in set(names)}
    return [kinds[name] for name in names]


def _kind(model: Architecture, name: str) -> LayerKind | None:
    if name == _NONE:
        return None
    if name == _WINDOW:
        return LayerKind(model.fields.require_int("sliding_window"))
    if name == _CHUNK:  # at most: a token attends to the part of its chunk that lies before it
        return LayerKind(model.fields.require_int("attention_chunk_size"))
    return LayerKind()


def _names(model: Architecture) -> list[str]:
    told = _told(model)
    if told is not None:
        return told
    fields = model.fields
    layers = fields.require_int("num_hidden_layers", MAX_LAYERS)
    match model.model_type:
        case "jamba":
            period, offset = fields.require_int("attn_layer_period"), fields.get_count("attn_layer_offset")
            return [_ALL if index % period == offset else _NONE for index in range(layers)]
        case "llama4_text":
            return _rotating(model, layers)
        case "nemotron_h" | "granitemoehybrid" | "lfm2" | "lfm2_moe" | "kimi_linear":
            raise fields.error("layer_types", "missing; expected the kind of each layer")
    interval = fields.get_int("full_attention_interval")
    if interval is not None:
        return [_NONE if (index + 1) % interval else _ALL for index in range(layers)]
    return _sliding(model, layers)


def _told(model: Architecture) -> list[str] | None:
    """The layers as the file lists them; None if it does not."""
    fields = model.fields
    for key in ("layer_types", "layers_block_type"):
        words = fields.get_texts(key)
        if words:
            return _named(model, key, words, _WORDS)
    pattern = fields.get_text("hybrid_override_pattern")
    if pattern:
        return _named(model, "hybrid_override_pattern", list(pattern), _LETTERS)
    linear = fields.get_section("linear_attn_config")
    if linear is not None:
        return _listed(model, [index - 1 for index in linear.get_ints("full_attn_layers")])  # counted from 1
    if fields.get("full_attn_idxs") is not None:
        return _listed(model, fields.get_ints("full_attn_idxs"))
    return None


def _named(model: Architecture, key: str, words: list[str], names: Mapping[str, str]) -> list[str]:
    layers = model.fields.get_int("num_hidden_layers", MAX_LAYERS) or len(words)
    if len(words) != layers:
        raise model.fields.error(key, f"expected one entry for each of {layers} layers, found {len(words)}")
    for word in words:
        if word not in names:
            raise model.fields.error(key, f"layers of the kind {shorten(word)} are not known")
    return [names[word] for word in words]


def _listed(model: Architecture, attending: list[int]) -> list[str]:
    layers = model.fields.require_int("num_hidden_layers", MAX_LAYERS)
    return [_ALL if index in frozenset(attending) else _NONE for index in range(layers)]


def _rotating(model: Architecture, layers: int) -> list[str]:
    """Llama 4: layers that know positions attend within a chunk, the others to everything."""
    told = model.fields.get_ints("no_rope_layers")
    if told and len(told) != layers:
        raise model.fields.error("no_rope_layers", f"expected one entry for each of {layers} layers, found {len(told)}")
    interval = model.fields.require_int("no_rope_layer_interval")
    rotated = told or [(index + 1) % interval for index in range(layers)]
    return [_CHUNK if rotates else _ALL for rotates in rotated]


def _sliding(model: Architecture, layers: int) -> list[str]:
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
    if model.model_type in _ALL_IN_A_WINDOW:
        return [_WINDOW] * layers
    raise fields.error("sliding_window", "which layers slide is not told; expected layer_types")
