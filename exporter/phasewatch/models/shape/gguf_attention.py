"""KV cache and attention operations of a model, from the keys of its GGUF file."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelSource
from phasewatch.models.errors import shorten
from phasewatch.models.fields import MAX_LAYERS, JsonFields

ELEMENT_BYTES: Final = 2.0
"""Bytes of an element of the KV cache. OLLAMA_KV_CACHE_TYPE may change it, but no endpoint reports that."""

_WINDOW_PERIODS: Final[Mapping[str, int]] = {
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
    "gptoss": 2,
    "cohere2": 4,
    "olmo2": 4,
    "exaone4": 4,
}
"""Architectures with a global layer in every n-th place if the file has a sliding window but no pattern."""

_STATE_BESIDE_ATTENTION: Final = frozenset({"falcon-h1"})
"""Architectures with both recurrent state and attention in every layer."""


class _LayerShape(NamedTuple):
    """Attention of one layer.

    Attributes:
        heads: query heads.
        cached_elements: elements cached per token.
        head_elements: elements of a key and a value together.
        span: number of most recent tokens that are attended to; None for all.
    """

    heads: int
    cached_elements: int
    head_elements: int
    span: int | None


def count_layers(info: JsonFields) -> int:
    """Number of layers of the model itself, without the layers for speculative decoding at the end.

    Raises:
        ModelError: a key is missing or wrong.
    """
    return info.require_int("block_count", MAX_LAYERS) - min(
        info.get_count("nextn_predict_layers"), info.require_int("block_count", MAX_LAYERS) - 1
    )


def compute_cache_and_attention(architecture: str, info: JsonFields) -> tuple[KvCache, tuple[AttentionCosts, ...]]:
    """The KV cache and the operations of attention.

    Args:
        architecture: its name in the file.
        info: keys of the file below that name.

    Raises:
        ModelError: a key is missing or wrong, or the attention is not supported.
    """
    if info.get_count("attention.shared_kv_layers"):
        raise info.error("attention.shared_kv_layers", "layers that share keys and values are not counted yet")
    if any(key.startswith("attention.indexer.") for key in info.values):
        raise info.error("attention.indexer", "attention that chooses tokens by an index is not counted yet")
    has_latent = info.get("attention.kv_lora_rank") is not None
    shapes = _read_latent_shapes(info) if has_latent else _read_shapes(architecture, info)
    if not shapes:
        raise info.error("attention.head_count_kv", "no layer keeps anything of single tokens")
    elements: Counter[int | None] = Counter()
    operations: Counter[int | None] = Counter()
    for shape, layers in shapes.items():
        elements[shape.span] += layers * shape.cached_elements
        operations[shape.span] += 2 * layers * shape.heads * shape.head_elements
    cached = tuple(KvLayers(float(count), span) for span, count in elements.items())
    attention = tuple(AttentionCosts(float(count), span) for span, count in operations.items())
    return KvCache(cached, ELEMENT_BYTES, ModelSource.OLLAMA), attention


def _read_shapes(architecture: str, info: JsonFields) -> Counter[_LayerShape]:
    layers = count_layers(info)
    heads = _read_per_layer(info, "attention.head_count", layers)
    has_key_heads = info.get("attention.head_count_kv") is not None
    key_heads = _read_per_layer(info, "attention.head_count_kv", layers) if has_key_heads else heads
    spans = _read_spans(architecture, info, layers)
    attending = _read_attending(architecture, info, layers)
    return Counter(
        _read_shape(info, *layer)
        for layer, attends in zip(zip(heads, key_heads, spans, strict=True), attending, strict=True)
        if attends and layer[0] and layer[1]
    )


def _read_shape(info: JsonFields, heads: int, key_heads: int, span: int | None) -> _LayerShape:
    ending = "" if span is None or info.get("attention.key_length_swa") is None else "_swa"
    head_elements = sum(_read_head_size(info, f"attention.{part}_length{ending}", heads) for part in ("key", "value"))
    return _LayerShape(heads, key_heads * head_elements, head_elements, span)


def _read_head_size(info: JsonFields, key: str, heads: int) -> int:
    head_size = info.get_int(key)
    if head_size is not None:
        return head_size
    hidden = info.require_int("embedding_length")
    if hidden % heads:
        raise info.error("attention.head_count", f"{heads} does not divide the embedding_length of {hidden}")
    return hidden // heads


def _read_latent_shapes(info: JsonFields) -> Counter[_LayerShape]:
    """Latent attention. Files without `key_length_mla` predate llama.cpp's caching of the latent vector alone."""
    layers = count_layers(info)
    head_elements = info.require_int("attention.key_length_mla") + info.require_int("attention.value_length_mla")
    cached_elements = info.require_int("attention.kv_lora_rank") + info.require_int("rope.dimension_count")
    key_heads = _read_per_layer(info, "attention.head_count_kv", layers)
    heads = info.require_int("attention.head_count")
    return Counter(_LayerShape(heads, cached_elements, head_elements, None) for present in key_heads if present)


def _read_attending(architecture: str, info: JsonFields, layers: int) -> list[bool]:
    """Whether each layer has attention, apart from layers whose number of heads is 0."""
    interval = info.get_int("full_attention_interval")
    if interval is not None:
        return [(index + 1) % interval == 0 for index in range(layers)]
    recurrent = any(key.startswith(("ssm.", "wkv.", "shortconv.")) for key in info.values)
    listed = isinstance(info.get("attention.head_count_kv"), list)
    if recurrent and not listed and architecture not in _STATE_BESIDE_ATTENTION:
        raise info.error("attention.head_count_kv", "which of the layers attend is not told; expected a list")
    return [True] * layers


def _read_spans(architecture: str, info: JsonFields, layers: int) -> list[int | None]:
    key = "attention.sliding_window"
    window = info.get_int(key) if info.get(key) != 0 else None
    if info.get("attention.chunk_size") is not None or architecture == "llama4":
        raise info.error("attention.chunk_size", "attention in chunks is not counted yet")
    if window is None:
        return [None] * layers
    pattern = info.get(f"{key}_pattern")
    if isinstance(pattern, list):
        if len(pattern) < layers or not all(isinstance(slides, bool) for slides in pattern):
            raise info.error(f"{key}_pattern", f"expected true or false for each of {layers} layers")
        return [window if slides else None for slides in pattern[:layers]]
    period = info.get_int(f"{key}_pattern") or _WINDOW_PERIODS.get(architecture)
    if period is None:
        raise info.error(key, f"which layers of {shorten(architecture)} slide is not told")
    return [window if (index + 1) % period else None for index in range(layers)]


def _read_per_layer(info: JsonFields, key: str, layers: int) -> tuple[int, ...]:
    """A number for each layer; a list may have further entries for layers of speculative decoding."""
    value = info.get(key)
    if not isinstance(value, list):
        return (info.get_count(key),) * layers
    return JsonFields({key: value[:layers]}, info.place).require_per_layer(key, layers)
