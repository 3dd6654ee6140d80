"""KV cache and attention operations per token, from the attention layers of a config.json."""

import math
from collections.abc import Iterator
from typing import Final

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelSource
from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import Architecture, is_empty, read_dtype_bytes
from phasewatch.models.shape.attention import AttentionLayers, read_attention_layers

_INDEX_SCALE_GROUP: Final = 128
"""Elements of a sparse attention index that share a scale."""


def compute_kv_cache(model: Architecture) -> KvCache:
    """The KV cache of a model; the element size is None where `read_element_bytes` raises.

    Raises:
        ModelError: the file does not determine the shape.
    """
    layers = tuple(_compute_kv_layers(read_attention_layers(model)))
    if not layers:
        raise model.fields.error("layer_types", "no layer keeps anything of single tokens")
    try:
        size: float | None = read_element_bytes(model)
    except ModelError:
        size = None
    return KvCache(layers, size, ModelSource.CONFIG_JSON)


def compute_attention_costs(model: Architecture) -> tuple[AttentionCosts, ...] | None:
    """Floating point operations of one token per token that it attends to, grouped by layers.

    2 for each element of query times key and 2 for each element of score times value: 4 x heads x head dimension.
    Latent attention is counted as in prefill, with keys and values expanded from the latent vector. None if an index
    selects the tokens.

    Raises:
        ModelError: the file does not determine the attention.
    """
    costs = []
    for group in read_attention_layers(model):
        if group.latent is None:
            costs.append(AttentionCosts(4.0 * group.layers * group.heads * group.head_size, group.span))
        elif group.latent.selected_tokens is not None or group.latent.expanded_size is None:
            return None
        else:
            costs.append(AttentionCosts(2.0 * group.layers * group.heads * group.latent.expanded_size))
    return tuple(costs)


def _compute_kv_layers(attention: tuple[AttentionLayers, ...]) -> Iterator[KvLayers]:
    for group in attention:
        latent = group.latent
        if latent is None:
            yield KvLayers(2.0 * group.layers * group.key_heads * group.head_size, group.span)
            continue
        yield KvLayers(float(group.layers * (latent.rank + latent.position_size)), latent.selected_tokens)
        if latent.index_size:  # read for every token, as it selects the tokens that are attended to
            yield KvLayers(0.0, None, group.layers * _compute_index_bytes(latent.index_size))


def _compute_index_bytes(size: int) -> float:
    """Bytes of one token's index entry in one layer: 8 bits per element and a 32-bit scale per 128 elements.

    Independent of the data type of the cache (vLLM 0.32: the indexer cache of DeepSeek-V3.2).
    """
    return size + 4 * math.ceil(size / _INDEX_SCALE_GROUP)


def read_element_bytes(model: Architecture) -> float:
    """Bytes of an element of a cache in the model's data type.

    Raises:
        ModelError: the file does not determine it: a model in 32 bits is usually served in 16, and some servers
            honour a checkpoint that asks for a quantised cache.
    """
    quantisation = model.read_quantisation_config()
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        if quantisation is not None and not is_empty(quantisation.get(key)):
            raise quantisation.error(key, "whether the server follows it is not known; set model.kv_cache_dtype")
    return read_dtype_bytes(model)
