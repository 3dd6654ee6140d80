"""Tensor types of GGUF files and their sizes."""

from collections.abc import Mapping
from typing import Final

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
"""Bytes and elements of a block, by tensor type (ggml's type table; gguf 0.19 GGML_QUANT_SIZES)."""
