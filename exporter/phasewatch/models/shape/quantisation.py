"""Bits per parameter of quantised weights, from the `quantization_config` of a config.json.

Quantised formats apply to linear layers. Input embedding, norms and routers stay in 16 bits, and so does the output
head unless the file says otherwise. Widths include scales and zero points, for example 4 + (16 + 4)/128 for AWQ and
GPTQ in groups of 128, 4 + 8/16 for NVFP4, 4 + 8/32 for MXFP4.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from phasewatch.hardware.facts import Precision
from phasewatch.models.errors import shorten
from phasewatch.models.fields import JsonFields
from phasewatch.models.shape.architecture import Architecture, read_dtype_bytes

BITS16: Final = 16.0

_EXCLUSION_KEYS: Final = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
)

_HEAD: Final = re.compile(r"lm_head")
_ATTENTION: Final = re.compile(r"^[^0-9]*self_attn\W*$")
"""Attention of all layers, such as `model.layers.*.self_attn`. Attention of single layers does not match."""
_IRRELEVANT: Final = re.compile(
    r"(?:norm\w*|embed_tokens|wte|gate|router|shared_expert_gate|indexer\w*|weights_proj)\W*$"
    r"|vis(?:ion|ual)|audio|projector|patch_merger|mtp|nextn|eh_proj"
)
"""Modules that stay in 16 bits anyway, or that no step reads."""

_INT8_BITS: Final = 8
_FP4_BITS: Final = 4


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Storage format of the weights of a model.

    Attributes:
        bits: per parameter of a quantised layer, including scales; 16 if nothing is quantised.
        attention: whether the matrices of attention are quantised.
        head: whether the output head is quantised.
        precision: number format in which engines multiply these weights; None if that depends on the engine.
    """

    bits: float = BITS16
    attention: bool = True
    head: bool = False
    precision: Precision | None = Precision.BITS16


def read_quantisation(model: Architecture) -> Quantisation:
    """The storage format of the weights.

    Raises:
        ModelError: a key is missing or wrong, or the format is not supported.
    """
    read_dtype_bytes(model)
    fields = model.read_quantisation_config()
    if fields is None:
        return Quantisation()
    bits, precision = _read_width(fields)
    attention, head = True, _is_head_quantised(fields)
    for module in _read_excluded_modules(fields):
        if _HEAD.search(module):
            head = False
        elif _ATTENTION.search(module):
            attention = False
        elif not _IRRELEVANT.search(module):
            raise fields.error(
                next(key for key in _EXCLUSION_KEYS if fields.get(key)),
                f"what {shorten(module)} leaves out is not counted",
            )
    return Quantisation(bits, attention, head, precision)


def _read_width(fields: JsonFields) -> tuple[float, Precision | None]:
    """Bits per parameter of a quantised layer, and the precision of its multiplication."""
    method = fields.get_text("quant_method")
    match method:
        case "fp8":
            block = fields.get_ints("weight_block_size")
            scales = 32 / (block[0] * block[1]) if len(block) == 2 and min(block) > 0 else 0.0  # noqa: PLR2004  # rows, columns
            return 8 + scales, Precision.FP8
        case "awq" | "gptq":
            bits = fields.require_int("bits", 8)
            return bits + _compute_scale_bits(fields, bits), Precision.BITS16
        case "bitsandbytes":
            return _read_bitsandbytes(fields)
        case "mxfp4":
            return 4 + 8 / 32, None
        case "compressed-tensors":
            return _read_compressed_tensors(fields)
        case "modelopt" | "modelopt_fp4":
            return _read_modelopt(fields)
    raise fields.error("quant_method", f"the format {shorten(method)} is not known")


def _compute_scale_bits(fields: JsonFields, zero_point_bits: int) -> float:
    """Bits per parameter for the 16-bit scale and the zero point of each group."""
    if fields.get("group_size") == -1:  # one group per output, of thousands of parameters: negligible
        return 0.0
    return (16 + zero_point_bits) / fields.require_int("group_size")


def _read_bitsandbytes(fields: JsonFields) -> tuple[float, Precision | None]:
    if fields.get_bool("load_in_8bit", default=False):
        return 8.0, None  # a few columns are multiplied in 16 bits
    if not fields.get_bool("load_in_4bit", default=False):
        raise fields.error("load_in_4bit", "expected this or load_in_8bit to be true")
    double_quantised = fields.get_bool("bnb_4bit_use_double_quant", default=False)
    return 4 + (8 / 64 + 32 / (64 * 256) if double_quantised else 32 / 64), Precision.BITS16


def _read_compressed_tensors(fields: JsonFields) -> tuple[float, Precision | None]:
    groups = fields.get_section("config_groups")
    if groups is None or not groups.values:
        raise fields.error("config_groups", "missing; expected at least one group")
    widths = set()
    for name in groups.values:
        group = groups.get_section(name)
        weights = None if group is None else group.get_section("weights")
        if group is None or weights is None:
            raise groups.error(f"{name}.weights", "missing; expected what weights are quantised to")
        if group.get_texts("targets") != ["Linear"]:
            raise group.error("targets", "only groups of all linear layers are counted")
        widths.add(_read_group_width(weights, group.get_section("input_activations")))
    if len(widths) > 1:
        raise fields.error("config_groups", "groups of different widths are not counted")
    return widths.pop()


def _read_group_width(weights: JsonFields, activations: JsonFields | None) -> tuple[float, Precision | None]:
    bits, number_type = weights.require_int("num_bits", 16), weights.get_text("type") or "int"
    size = weights.get_int("group_size") if weights.get("group_size") != -1 else None
    scale_bits = 8 if (bits, number_type) == (_FP4_BITS, "float") else 16
    zero_point_bits = 0 if weights.get_bool("symmetric", default=True) else bits
    width = bits + (0.0 if size is None else (scale_bits + zero_point_bits) / size)
    if activations is None:
        return width, Precision.BITS16
    if bits == _INT8_BITS and activations.get_int("num_bits") == bits and activations.get_text("type") == number_type:
        return width, Precision.FP8 if number_type == "float" else Precision.INT8
    return width, None


def _read_modelopt(fields: JsonFields) -> tuple[float, Precision | None]:
    algorithm = fields.get_text("quant_algo")
    match algorithm:
        case "FP8":
            return 8.0, Precision.FP8
        case "NVFP4":
            return 4 + 8 / 16, None
    raise fields.error("quant_algo", f"the format {shorten(algorithm)} is not known")


def _is_head_quantised(fields: JsonFields) -> bool:
    """Whether the head is quantised, unless it is among the excluded modules."""
    return fields.get_bool("lm_head", default=False) or fields.get_text("quant_method") == "compressed-tensors"


def _read_excluded_modules(fields: JsonFields) -> Iterator[str]:
    for key in _EXCLUSION_KEYS:
        yield from fields.get_texts(key)
