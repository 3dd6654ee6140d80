"""Total weight size and bytes read per step, computed from config.json alone."""

from phasewatch.models.costs import Experts, WeightReads
from phasewatch.models.shape.architecture import Architecture, is_empty
from phasewatch.models.shape.parameters import ParameterCounts, count_parameters
from phasewatch.models.shape.quantisation import BITS16, Quantisation, read_quantisation


def compute_weights(model: Architecture) -> tuple[float, WeightReads]:
    """Total weight size of the language model in bytes, and the weights that a step reads.

    Raises:
        ModelError: a key is missing or wrong, or the architecture or the weight format is not supported.
    """
    _refuse_uneven_formats(model)
    counts, quantisation = count_parameters(model), read_quantisation(model)
    reads = _compute_reads(counts, quantisation)
    routed = sum(group.total * group.bytes_each for group in reads.experts)
    table = 0.0 if counts.tied else counts.table * BITS16 / 8
    return reads.dense_bytes + routed + table, reads


def _compute_reads(counts: ParameterCounts, quantisation: Quantisation) -> WeightReads:
    head_bits = quantisation.bits if quantisation.head and not counts.tied else BITS16
    attention_bits = quantisation.bits if quantisation.attention else BITS16
    bits = (
        counts.head * head_bits
        + counts.attention * attention_bits
        + counts.feed_forward * quantisation.bits
        + counts.small * BITS16
    )
    experts = counts.experts
    return WeightReads(
        dense_bytes=bits / 8,
        dense_parameters=float(counts.count_dense()),
        head_parameters=float(counts.head),
        experts=()
        if experts is None
        else (Experts(experts.total, experts.per_token, experts.each * quantisation.bits / 8, float(experts.each)),),
    )


def _refuse_uneven_formats(model: Architecture) -> None:
    """Refuse formats whose weight size does not follow from one width per parameter.

    Raises:
        ModelError: modules have different widths (GPTQModel's `dynamic`), or zeros are not stored (2:4 sparsity).
    """
    fields = model.read_quantisation_config()
    if fields is None:
        return
    if not is_empty(fields.get("dynamic")):
        raise fields.error("dynamic", "modules of different widths are not counted")
    sparsity = fields.get_section("sparsity_config")
    if sparsity is not None and sparsity.values and sparsity.get_text("format") != "dense":
        raise fields.error("sparsity_config", "weights without their zeros are not counted")
