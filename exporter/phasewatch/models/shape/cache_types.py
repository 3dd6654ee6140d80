"""Data types of the KV cache and the size of their elements."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from phasewatch.models.costs import KvCache

AUTO: Final = "auto"
"""The data type of a cache in the data type of the model."""

ELEMENT_BYTES: Final[Mapping[str, float]] = {
    "float32": 4.0,
    "f32": 4.0,
    "float16": 2.0,
    "half": 2.0,
    "f16": 2.0,
    "bfloat16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "int8": 1.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""Bytes per element by data type, as named by vLLM's `--kv-cache-dtype` (0.32) and llama.cpp's `--cache-type-k`.
Types with a layout of their own, such as scales or indexes beside the elements, are left out."""


def is_known_cache_dtype(name: str) -> bool:
    """Whether the element size of a data type is known; case does not matter."""
    return name.lower() in {AUTO, *ELEMENT_BYTES}


def apply_cache_dtype(cache: KvCache, name: str) -> KvCache:
    """The cache with its elements in another data type.

    Args:
        cache: the cache in the model's data type.
        name: such as `cache_dtype` of vLLM's `cache_config_info`, or llama.cpp's `--cache-type-k`. For an unknown data
            type the element size becomes unknown.
    """
    name = name.lower()
    return cache if name == AUTO else dataclasses.replace(cache, bytes_per_element=ELEMENT_BYTES.get(name))
