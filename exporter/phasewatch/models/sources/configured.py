"""What the operator says of a model, which beats everything that was found out."""

import dataclasses
import math

from phasewatch.models.costs import WEIGHT_TOLERANCE, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from phasewatch.models.settings import ModelSettings
from phasewatch.models.shape.cache_types import apply_cache_dtype


def apply_model_settings(costs: ModelCosts, told: ModelSettings) -> ModelCosts:
    """The costs of a model with the operator's figures in place of those found out."""
    weights, source = costs.weight_bytes, costs.weight_source
    if told.weights is not None:
        weights, source = told.weights, ModelSource.CONFIG
    elif _contradicts_mixture(costs, told):
        weights, source = None, None
    return dataclasses.replace(
        costs,
        weight_bytes=weights,
        weight_source=source,
        reads=_with_parameters(_reads(costs, told), told),
        kv_cache=_kv_cache(costs.kv_cache, told),
        sparse=_is_sparse(costs, told, weights),
    )


def describe_unfit_parameters(costs: ModelCosts, told: ModelSettings) -> str | None:
    """Why the operator's number of parameters is not used, in plain words; None if it is, or there is none."""
    reads = _reads(costs, told)
    if told.active_parameters is None or reads is None or _with_parameters(reads, told) is not reads:
        return None
    return (
        f"model.active_parameters: not used: {told.active_parameters:.3g} are no more than the "
        f"{reads.head_parameters:.3g} of the output head alone; expected all that a token is multiplied with"
    )


def _contradicts_mixture(costs: ModelCosts, told: ModelSettings) -> bool:
    """Whether the operator's word on a mixture means that it is stored in another format than the one found.

    Then what was found of its weights as a whole is not true of it either.
    """
    if told.weights_read is None or costs.reads is None or not costs.reads.experts:
        return False
    return not math.isclose(costs.reads.bytes_per_step(), told.weights_read, rel_tol=WEIGHT_TOLERANCE)


def _is_sparse(costs: ModelCosts, told: ModelSettings, weights: float | None) -> bool:
    """No dense model leaves half of its weights alone, so one that does is a mixture, whether or not it says so."""
    half_is_read = told.weights_read is None or weights is None or 2 * told.weights_read >= weights
    return costs.sparse or not half_is_read or (costs.reads is not None and bool(costs.reads.experts))


def _reads(costs: ModelCosts, told: ModelSettings) -> WeightReads | None:
    found = costs.reads
    if told.weights_read is not None:
        return WeightReads(told.weights_read, None) if found is None else _scaled(found, told.weights_read)
    if told.weights is not None and found is not None:
        return _of_other_weights(found, costs.weight_bytes, told.weights)
    return found


def _scaled(found: WeightReads, read: float) -> WeightReads:
    """The same parts in another format, of which one stream reads so much: as if it changed all of them alike."""
    scale = read / found.bytes_per_step()
    experts = tuple(dataclasses.replace(group, bytes_each=group.bytes_each * scale) for group in found.experts)
    return dataclasses.replace(found, dense_bytes=found.dense_bytes * scale, experts=experts)


def _of_other_weights(found: WeightReads, found_total: float | None, weights: float) -> WeightReads | None:
    """What a step reads of weights that the operator gives: all but what is not read of those found.

    Not known for a mixture of another size: how much of the difference is in its experts is not told.
    """
    if found_total is None:
        return None
    if math.isclose(found_total, weights, rel_tol=WEIGHT_TOLERANCE):
        return found
    read = weights - (found_total - found.dense_bytes)
    if found.experts or read <= 0:
        return None
    return dataclasses.replace(found, dense_bytes=read)


def _with_parameters(reads: WeightReads | None, told: ModelSettings) -> WeightReads | None:
    """Only the sum is told, so all of it stands with the dense part. There is more to a model than its output head."""
    if reads is None or told.active_parameters is None or told.active_parameters <= reads.head_parameters:
        return reads
    experts = tuple(dataclasses.replace(group, parameters_each=0.0) for group in reads.experts)
    return dataclasses.replace(reads, dense_parameters=told.active_parameters, experts=experts)


def _kv_cache(found: KvCache | None, told: ModelSettings) -> KvCache | None:
    if told.kv_cache_bytes_per_token is not None:
        if found is None:
            return KvCache((KvLayers(told.kv_cache_bytes_per_token),), 1.0, ModelSource.CONFIG)
        # Each kind of layers keeps its share, in the data type that was found or else in 16 bits.
        size = found.bytes_per_element or 2.0
        shares = [size * kind.elements_per_token + kind.fixed_bytes_per_token for kind in found.layers]
        layers = tuple(KvLayers(share, kind.span) for share, kind in zip(shares, found.layers, strict=True))
        return KvCache(layers, told.kv_cache_bytes_per_token / sum(shares), ModelSource.CONFIG)
    if told.kv_cache_dtype is not None and found is not None:
        return apply_cache_dtype(found, told.kv_cache_dtype)
    return found
