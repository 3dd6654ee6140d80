"""Sizes of the tensor types of GGUF files, and what the keys of one say of its attention."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, Source
from phasewatch.models.fields import MOST_LAYERS, Fields, brief

TYPE_SIZES: Final[Mapping[str, tuple[int, int]]] = {
    "F64": (8, 1),
    "I64": (8, 1),
    "F32": (4, 1),
    "I32": (4, 1),
    "F16": (2, 1),
    "BF16": (2, 1),
    "I16": (2, 1),
    "I8": (1, 1),
    "Q4_0": (18, 32),
    "Q4_1": (20, 32),
    "Q5_0": (22, 32),
    "Q5_1": (24, 32),
    "Q8_0": (34, 32),
    "Q8_1": (36, 32),
    "Q2_K": (84, 256),
    "Q3_K": (110, 256),
    "Q4_K": (144, 256),
    "Q5_K": (176, 256),
    "Q6_K": (210, 256),
    "Q8_K": (292, 256),
    "IQ1_S": (50, 256),
    "IQ1_M": (56, 256),
    "IQ2_XXS": (66, 256),
    "IQ2_XS": (74, 256),
    "IQ2_S": (82, 256),
    "IQ3_XXS": (98, 256),
    "IQ3_S": (110, 256),
    "IQ4_XS": (136, 256),
    "IQ4_NL": (18, 32),
    "TQ1_0": (54, 256),
    "TQ2_0": (66, 256),
    "MXFP4": (17, 32),
    "NVFP4": (36, 64),
    "Q1_0": (18, 128),
}
"""Bytes of a block and elements in it, by the name of the type (ggml's type table; gguf 0.19 GGML_QUANT_SIZES)."""

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


def layer_count(info: Fields) -> int:
    """Layers of the model itself, without those for speculation, which stand at the end.

    Raises:
        ModelError: it is not told.
    """
    return info.whole("block_count", MOST_LAYERS) - min(
        info.count("nextn_predict_layers"), info.whole("block_count", MOST_LAYERS) - 1
    )


def cache_and_attention(architecture: str, info: Fields) -> tuple[KvCache, tuple[AttentionCosts, ...]]:
    """What is kept of each token, and what attending to it takes.

    Args:
        architecture: as the file calls it.
        info: keys of the file below its name.

    Raises:
        ModelError: the file does not say, or says what is not understood here.
    """
    if info.count("attention.shared_kv_layers"):
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
    return KvCache(kept, CACHE_BYTES, Source.OLLAMA), attention


def _shapes(architecture: str, info: Fields) -> Counter[_Shape]:
    layers = layer_count(info)
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


def _shape(info: Fields, heads: int, key_heads: int, span: int | None) -> _Shape:
    ending = "" if span is None or info.get("attention.key_length_swa") is None else "_swa"
    sizes = sum(_head_size(info, f"attention.{part}_length{ending}", heads) for part in ("key", "value"))
    return heads, key_heads * sizes, sizes, span


def _head_size(info: Fields, key: str, heads: int) -> int:
    told = info.optional_whole(key)
    if told is not None:
        return told
    hidden = info.whole("embedding_length")
    if hidden % heads:
        raise info.error("attention.head_count", f"{heads} does not divide the embedding_length of {hidden}")
    return hidden // heads


def _latent_shapes(info: Fields) -> Counter[_Shape]:
    """Latent attention. Files without `key_length_mla` are from before llama.cpp kept the latent vector alone."""
    layers = layer_count(info)
    sizes = info.whole("attention.key_length_mla") + info.whole("attention.value_length_mla")
    kept = info.whole("attention.kv_lora_rank") + info.whole("rope.dimension_count")
    key_heads = _per_layer(info, "attention.head_count_kv", layers)
    heads = info.whole("attention.head_count")
    return Counter((heads, kept, sizes, None) for present in key_heads if present)


def _attending(architecture: str, info: Fields, layers: int) -> list[bool]:
    """Which layers attend, as far as heads of 0 do not tell."""
    interval = info.optional_whole("full_attention_interval")
    if interval is not None:
        return [(index + 1) % interval == 0 for index in range(layers)]
    recurrent = any(key.startswith(("ssm.", "wkv.", "shortconv.")) for key in info.values)
    listed = isinstance(info.get("attention.head_count_kv"), list)
    if recurrent and not listed and architecture not in _STATE_BESIDE_ATTENTION:
        raise info.error("attention.head_count_kv", "which of the layers attend is not told; expected a list")
    return [True] * layers


def _spans(architecture: str, info: Fields, layers: int) -> list[int | None]:
    key = "attention.sliding_window"
    window = info.optional_whole(key) if info.get(key) != 0 else None
    if info.get("attention.chunk_size") is not None or architecture == "llama4":
        raise info.error("attention.chunk_size", "attention in chunks is not counted yet")
    if window is None:
        return [None] * layers
    pattern = info.get(f"{key}_pattern")
    if isinstance(pattern, list):
        if len(pattern) < layers or not all(isinstance(slides, bool) for slides in pattern):
            raise info.error(f"{key}_pattern", f"expected true or false for each of {layers} layers")
        return [window if slides else None for slides in pattern[:layers]]
    period = info.optional_whole(f"{key}_pattern") or _WINDOW_PERIODS.get(architecture)
    if period is None:
        raise info.error(key, f"which layers of {brief(architecture)} slide is not told")
    return [window if (index + 1) % period else None for index in range(layers)]


def _per_layer(info: Fields, key: str, layers: int) -> tuple[int, ...]:
    """A number of each layer; a list may go on with layers for speculation."""
    told = info.get(key)
    if not isinstance(told, list):
        return (info.count(key),) * layers
    return Fields({key: told[:layers]}, info.place).per_layer(key, layers)
