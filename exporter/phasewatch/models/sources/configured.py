"""Apply the configured settings of a model, which override all other sources."""

import dataclasses
import math

from phasewatch.models.costs import WEIGHT_TOLERANCE, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from phasewatch.models.settings import ModelSettings
from phasewatch.models.shape.cache_types import apply_cache_dtype


def apply_model_settings(costs: ModelCosts, settings: ModelSettings) -> ModelCosts:
    """The costs of a model with configured figures in place of those from its files or server."""
    weights, source = costs.weight_bytes, costs.weight_source
    if settings.weights is not None:
        weights, source = settings.weights, ModelSource.CONFIG
    elif _contradicts_mixture(costs, settings):
        weights, source = None, None
    return dataclasses.replace(
        costs,
        weight_bytes=weights,
        weight_source=source,
        reads=_apply_active_parameters(_apply_to_reads(costs, settings), settings),
        kv_cache=_apply_to_kv_cache(costs.kv_cache, settings),
        sparse=_is_sparse(costs, settings, weights),
    )


def describe_unfit_parameters(costs: ModelCosts, settings: ModelSettings) -> str | None:
    """Why the configured number of active parameters is not used; None if it is used or not configured."""
    reads = _apply_to_reads(costs, settings)
    if settings.active_parameters is None or reads is None or _apply_active_parameters(reads, settings) is not reads:
        return None
    return (
        f"model.active_parameters: not used: {settings.active_parameters:.3g} are no more than the "
        f"{reads.head_parameters:.3g} of the output head alone; expected all that a token is multiplied with"
    )


def _contradicts_mixture(costs: ModelCosts, settings: ModelSettings) -> bool:
    """Whether the configured `weights_read` of a mixture of experts implies another weight format than its files have.

    Then their total weight size does not apply either.
    """
    if settings.weights_read is None or costs.reads is None or not costs.reads.experts:
        return False
    return not math.isclose(costs.reads.compute_bytes_per_step(), settings.weights_read, rel_tol=WEIGHT_TOLERANCE)


def _is_sparse(costs: ModelCosts, settings: ModelSettings, weights: float | None) -> bool:
    """Whether the model is sparse. No dense model skips half of its weights, so one that does is a mixture."""
    half_is_read = settings.weights_read is None or weights is None or 2 * settings.weights_read >= weights
    return costs.sparse or not half_is_read or (costs.reads is not None and bool(costs.reads.experts))


def _apply_to_reads(costs: ModelCosts, settings: ModelSettings) -> WeightReads | None:
    reads = costs.reads
    if settings.weights_read is not None:
        return WeightReads(settings.weights_read, None) if reads is None else _scale(reads, settings.weights_read)
    if settings.weights is not None and reads is not None:
        return _adjust_to_total(reads, costs.weight_bytes, settings.weights)
    return reads


def _scale(reads: WeightReads, step_bytes: float) -> WeightReads:
    """The same weights in another format, all scaled alike so that a step of one token reads `step_bytes`."""
    scale = step_bytes / reads.compute_bytes_per_step()
    experts = tuple(dataclasses.replace(group, bytes_each=group.bytes_each * scale) for group in reads.experts)
    return dataclasses.replace(reads, dense_bytes=reads.dense_bytes * scale, experts=experts)


def _adjust_to_total(reads: WeightReads, total: float | None, configured_total: float) -> WeightReads | None:
    """The weights that a step reads if the total has the configured size: the weights it does not read keep theirs.

    None for a mixture of another size, as it is unknown how much of the difference is in its experts.
    """
    if total is None:
        return None
    if math.isclose(total, configured_total, rel_tol=WEIGHT_TOLERANCE):
        return reads
    dense_bytes = configured_total - (total - reads.dense_bytes)
    if reads.experts or dense_bytes <= 0:
        return None
    return dataclasses.replace(reads, dense_bytes=dense_bytes)


def _apply_active_parameters(reads: WeightReads | None, settings: ModelSettings) -> WeightReads | None:
    """Count all active parameters as dense, since only their sum is configured.

    A sum that does not exceed the parameters of the output head is ignored: no model consists of its head alone.
    """
    if reads is None or settings.active_parameters is None or settings.active_parameters <= reads.head_parameters:
        return reads
    experts = tuple(dataclasses.replace(group, parameters_each=0.0) for group in reads.experts)
    return dataclasses.replace(reads, dense_parameters=settings.active_parameters, experts=experts)


def _apply_to_kv_cache(cache: KvCache | None, settings: ModelSettings) -> KvCache | None:
    if settings.kv_cache_bytes_per_token is not None:
        if cache is None:
            return KvCache((KvLayers(settings.kv_cache_bytes_per_token),), 1.0, ModelSource.CONFIG)
        # Each group of layers keeps its share, in the data type of the cache or else in 16 bits.
        size = cache.bytes_per_element or 2.0
        shares = [size * group.elements_per_token + group.fixed_bytes_per_token for group in cache.layers]
        layers = tuple(KvLayers(share, group.span) for share, group in zip(shares, cache.layers, strict=True))
        return KvCache(layers, settings.kv_cache_bytes_per_token / sum(shares), ModelSource.CONFIG)
    if settings.kv_cache_dtype is not None and cache is not None:
        return apply_cache_dtype(cache, settings.kv_cache_dtype)
    return cache
