"""What a model keeps of each token, from the shape of its attention, and how wide a number of it is."""

import math
from collections.abc import Iterator
from typing import Final

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelSource
from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import Architecture, is_empty, read_dtype_bytes
from phasewatch.models.shape.attention import AttentionLayers, read_attention_layers

_SCALED_TOGETHER: Final = 128


def compute_kv_cache(model: Architecture) -> KvCache:
    """What the model keeps of each token, with elements of unknown size where `read_element_bytes` does not know it.

    Raises:
        ModelError: the file does not say.
    """
    layers = tuple(_kept(read_attention_layers(model)))
    if not layers:
        raise model.fields.error("layer_types", "no layer keeps anything of single tokens")
    try:
        size: float | None = read_element_bytes(model)
    except ModelError:
        size = None
    return KvCache(layers, size, ModelSource.CONFIG_JSON)


def compute_attention_costs(model: Architecture) -> tuple[AttentionCosts, ...] | None:
    """Floating point operations of one token per token that it attends to.

    2 for each element of a query against a key and 2 for each element of a value, so 4 x heads x head dimension. Latent
    attention is counted as it is in prefill, with keys and values made of the latent vector. None where tokens are
    chosen by an index.

    Raises:
        ModelError: the file does not say.
    """
    found = []
    for kind in read_attention_layers(model):
        if kind.latent is None:
            found.append(AttentionCosts(4.0 * kind.layers * kind.heads * kind.head_size, kind.span))
        elif kind.latent.chosen is not None or kind.latent.inner_size is None:
            return None
        else:
            found.append(AttentionCosts(2.0 * kind.layers * kind.heads * kind.latent.inner_size))
    return tuple(found)


def _kept(kinds: tuple[AttentionLayers, ...]) -> Iterator[KvLayers]:
    for kind in kinds:
        if kind.latent is None:
            yield KvLayers(2.0 * kind.layers * kind.key_heads * kind.head_size, kind.span)
            continue
        yield KvLayers(float(kind.layers * (kind.latent.rank + kind.latent.position_size)), kind.latent.chosen)
        if kind.latent.index_size:  # of every token: the index is what the choice is made by
            yield KvLayers(0.0, None, kind.layers * _index_bytes(kind.latent.index_size))


def _index_bytes(size: int) -> float:
    """Bytes of the index of one token in one layer: 8 bits an element and a 32-bit scale for each 128 of them, in
    whatever data type the cache is (vLLM 0.32: the indexer's cache of DeepSeek-V3.2).
    """
    return size + 4 * math.ceil(size / _SCALED_TOGETHER)


def read_element_bytes(model: Architecture) -> float:
    """Bytes of an element where the server keeps the cache as the model computes.

    A model in 32 bits is usually served in 16, and some servers follow a checkpoint that asks for a quantised cache:
    neither is known from the file alone.

    Raises:
        ModelError: so it is.
    """
    quantisation = model.read_quantisation_config()
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        if quantisation is not None and not is_empty(quantisation.get(key)):
            raise quantisation.error(key, "whether the server follows it is not known; set model.kv_cache_dtype")
    return read_dtype_bytes(model)
