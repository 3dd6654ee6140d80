"""What the operator says of a model, which beats everything that was found out."""

import dataclasses
import math

from phasewatch.models.costs import KvCache, KvLayers, ModelCosts, Source, WeightReads
from phasewatch.models.folder import AGREEMENT
from phasewatch.models.kv import with_cache_dtype
from phasewatch.models.settings import ModelSettings


def with_configuration(costs: ModelCosts, told: ModelSettings) -> ModelCosts:
    """The costs of a model with the operator's figures in place of those found out."""
    known = dataclasses.replace(costs, reads=_reads(costs, told), kv_cache=_kv_cache(costs.kv_cache, told))
    if told.weights is None:
        return known
    return dataclasses.replace(known, weight_bytes=told.weights, weight_source=Source.CONFIG)


def _reads(costs: ModelCosts, told: ModelSettings) -> WeightReads | None:
    found = costs.reads
    if told.weights_read is not None:
        reads: WeightReads | None = WeightReads(
            dense_bytes=told.weights_read,
            dense_parameters=None if found is None else found.active_parameters(),
            head_parameters=0.0 if found is None else found.head_parameters,
        )
    elif told.weights is not None and found is not None:
        reads = _of_other_weights(found, costs.weight_bytes, told.weights)
    else:
        reads = found
    if reads is None or told.active_parameters is None:
        return reads
    # Only the sum is told, so all of it stands with the dense part.
    experts = tuple(dataclasses.replace(group, parameters_each=0.0) for group in reads.experts)
    return dataclasses.replace(reads, dense_parameters=told.active_parameters, experts=experts)


def _of_other_weights(found: WeightReads, found_total: float | None, weights: float) -> WeightReads | None:
    """What a step reads of weights that the operator gives: all but what is not read of those found.

    Not known for a mixture of another size: how much of the difference is in its experts is not told.
    """
    if found_total is None:
        return None
    if math.isclose(found_total, weights, rel_tol=AGREEMENT):
        return found
    read = weights - (found_total - found.dense_bytes)
    if found.experts or read <= 0:
        return None
    return dataclasses.replace(found, dense_bytes=read)


def _kv_cache(found: KvCache | None, told: ModelSettings) -> KvCache | None:
    if told.kv_cache_bytes_per_token is not None:
        if found is None:
            return KvCache((KvLayers(told.kv_cache_bytes_per_token),), 1.0, Source.CONFIG)
        elements = sum(kind.elements_per_token for kind in found.layers)
        return KvCache(found.layers, told.kv_cache_bytes_per_token / elements, Source.CONFIG)
    if told.kv_cache_dtype is not None and found is not None:
        return with_cache_dtype(found, told.kv_cache_dtype)
    return found
