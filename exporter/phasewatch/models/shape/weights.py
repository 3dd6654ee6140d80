"""Weights of a model and what a step reads of them, computed from its config.json alone."""

from phasewatch.models.costs import Experts, WeightReads
from phasewatch.models.shape.architecture import Architecture, is_empty
from phasewatch.models.shape.parameters import ParameterCounts, count_parameters
from phasewatch.models.shape.quantisation import BITS16, Quantisation, read_quantisation


def compute_weights(model: Architecture) -> tuple[float, WeightReads]:
    """Bytes of all weights of the language model, and what a step reads of them.

    Raises:
        ModelError: the file does not say, or the architecture or the format is not counted here.
    """
    _refuse_uneven_formats(model)
    counted, stored = count_parameters(model), read_quantisation(model)
    reads = _reads(counted, stored)
    routed = sum(group.total * group.bytes_each for group in reads.experts)
    table = 0.0 if counted.tied else counted.table * BITS16 / 8
    return reads.dense_bytes + routed + table, reads


def _reads(counted: ParameterCounts, stored: Quantisation) -> WeightReads:
    head_bits = stored.bits if stored.head and not counted.tied else BITS16
    attention_bits = stored.bits if stored.attention else BITS16
    bits = (
        counted.head * head_bits
        + counted.attention * attention_bits
        + counted.feed_forward * stored.bits
        + counted.small * BITS16
    )
    experts = counted.experts
    return WeightReads(
        dense_bytes=bits / 8,
        dense_parameters=float(counted.dense()),
        head_parameters=float(counted.head),
        experts=()
        if experts is None
        else (Experts(experts.total, experts.per_token, experts.each * stored.bits / 8, float(experts.each)),),
    )


def _refuse_uneven_formats(model: Architecture) -> None:
    """Refuse formats whose weights take other room than their widths say.

    Raises:
        ModelError: modules have widths of their own (GPTQModel's `dynamic`), or zeros are left out (2:4).
    """
    fields = model.read_quantisation_config()
    if fields is None:
        return
    if not is_empty(fields.get("dynamic")):
        raise fields.error("dynamic", "modules of different widths are not counted")
    sparsity = fields.get_section("sparsity_config")
    if sparsity is not None and sparsity.values and sparsity.get_text("format") != "dense":
        raise fields.error("sparsity_config", "weights without their zeros are not counted")
