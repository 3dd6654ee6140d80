"""Sizes of the tensor types of GGUF files, and what the keys of one say of its attention."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelSource
from phasewatch.models.errors import shorten
from phasewatch.models.fields import MAX_LAYERS, JsonFields

CACHE_BYTES: Final = 2.0
"""Bytes of an element of the KV cache unless OLLAMA_KV_CACHE_TYPE says otherwise, which no endpoint tells."""

_WINDOW_PERIODS: Final[Mapping[str, int]] = {
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
    "gptoss": 2,
    "cohere2": 4,
    "olmo2": 4,
    "exaone4": 4,
}
"""Architectures whose every n-th layer attends to everything where the file has a window but no pattern."""

_STATE_BESIDE_ATTENTION: Final = frozenset({"falcon-h1"})
"""Architectures with a recurrent state in every layer, and attention too."""

_Shape = tuple[int, int, int, int | None]
"""Heads, elements kept of a token, sizes of a key and a value together, and the span of a layer."""


def count_layers(info: JsonFields) -> int:
    """Layers of the model itself, without those for speculation, which stand at the end.

    Raises:
        ModelError: it is not told.
    """
    return info.require_int("block_count", MAX_LAYERS) - min(
        info.get_count("nextn_predict_layers"), info.require_int("block_count", MAX_LAYERS) - 1
    )


def compute_cache_and_attention(architecture: str, info: JsonFields) -> tuple[KvCache, tuple[AttentionCosts, ...]]:
    """What is kept of each token, and what attending to it takes.

    Args:
        architecture: as the file calls it.
        info: keys of the file below its name.

    Raises:
        ModelError: the file does not say, or says what is not understood here.
    """
    if info.get_count("attention.shared_kv_layers"):
        raise info.error("attention.shared_kv_layers", "layers that share keys and values are not counted yet")
    if any(key.startswith("attention.indexer.") for key in info.values):
        raise info.error("attention.indexer", "attention that chooses tokens by an index is not counted yet")
    shapes = _latent_shapes(info) if info.get("attention.kv_lora_rank") is not None else _shapes(architecture, info)
    if not shapes:
        raise info.error("attention.head_count_kv", "no layer keeps anything of single tokens")
    elements: Counter[int | None] = Counter()
    operations: Counter[int | None] = Counter()
    for (heads, size, sizes, span), layers in shapes.items():
        elements[span] += layers * size
        operations[span] += 2 * layers * heads * sizes
    kept = tuple(KvLayers(float(count), span) for span, count in elements.items())
    attention = tuple(AttentionCosts(float(count), span) for span, count in operations.items())
    return KvCache(kept, CACHE_BYTES, ModelSource.OLLAMA), attention


def _shapes(architecture: str, info: JsonFields) -> Counter[_Shape]:
    layers = count_layers(info)
    heads = _per_layer(info, "attention.head_count", layers)
    told = info.get("attention.head_count_kv") is not None
    key_heads = _per_layer(info, "attention.head_count_kv", layers) if told else heads
    spans = _spans(architecture, info, layers)
    attending = _attending(architecture, info, layers)
    return Counter(
        _shape(info, *layer)
        for layer, attends in zip(zip(heads, key_heads, spans, strict=True), attending, strict=True)
        if attends and layer[0] and layer[1]
    )


def _shape(info: JsonFields, heads: int, key_heads: int, span: int | None) -> _Shape:
    ending = "" if span is None or info.get("attention.key_length_swa") is None else "_swa"
    sizes = sum(_head_size(info, f"attention.{part}_length{ending}", heads) for part in ("key", "value"))
    return heads, key_heads * sizes, sizes, span


def _head_size(info: JsonFields, key: str, heads: int) -> int:
    told = info.get_int(key)
    if told is not None:
        return told
    hidden = info.require_int("embedding_length")
    if hidden % heads:
        raise info.error("attention.head_count", f"{heads} does not divide the embedding_length of {hidden}")
    return hidden // heads


def _latent_shapes(info: JsonFields) -> Counter[_Shape]:
    """Latent attention. Files without `key_length_mla` are from before llama.cpp kept the latent vector alone."""
    layers = count_layers(info)
    sizes = info.require_int("attention.key_length_mla") + info.require_int("attention.value_length_mla")
    kept = info.require_int("attention.kv_lora_rank") + info.require_int("rope.dimension_count")
    key_heads = _per_layer(info, "attention.head_count_kv", layers)
    heads = info.require_int("attention.head_count")
    return Counter((heads, kept, sizes, None) for present in key_heads if present)


def _attending(architecture: str, info: JsonFields, layers: int) -> list[bool]:
    """Which layers attend, as far as heads of 0 do not tell."""
    interval = info.get_int("full_attention_interval")
    if interval is not None:
        return [(index + 1) % interval == 0 for index in range(layers)]
    recurrent = any(key.startswith(("ssm.", "wkv.", "shortconv.")) for key in info.values)
    listed = isinstance(info.get("attention.head_count_kv"), list)
    if recurrent and not listed and architecture not in _STATE_BESIDE_ATTENTION:
        raise info.error("attention.head_count_kv", "which of the layers attend is not told; expected a list")
    return [True] * layers


def _spans(architecture: str, info: JsonFields, layers: int) -> list[int | None]:
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


def _per_layer(info: JsonFields, key: str, layers: int) -> tuple[int, ...]:
    """A number of each layer; a list may go on with layers for speculation."""
    told = info.get(key)
    if not isinstance(told, list):
        return (info.get_count(key),) * layers
    return JsonFields({key: told[:layers]}, info.place).require_per_layer(key, layers)
