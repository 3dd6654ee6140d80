"""How wide a number of a KV cache is, by the name of its data type."""

import dataclasses
from collections.abc import Mapping
from typing import Final

from phasewatch.models.costs import KvCache

AUTO: Final = "auto"
"""The data type of a cache that is kept as the model computes."""

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
"""Bytes per element by the name of a cache's data type: vLLM's `--kv-cache-dtype` (0.32) and llama.cpp's
`--cache-type-k`. Types that keep scales or indexes beside the elements in a layout of their own are not in it."""


def is_known_cache_dtype(name: str) -> bool:
    """Whether it is clear what a data type of this name means."""
    return name.lower() in {AUTO, *ELEMENT_BYTES}


def apply_cache_dtype(cache: KvCache, name: str) -> KvCache:
    """A cache whose elements have the data type that the server or the operator names.

    Args:
        cache: with the elements of the model's own type.
        name: such as vLLM's `cache_config_info` gives for `cache_dtype`, or llama.cpp's `--cache-type-k`. One that is
            not known leaves the shape, with elements of unknown size.
    """
    name = name.lower()
    return cache if name == AUTO else dataclasses.replace(cache, bytes_per_element=ELEMENT_BYTES.get(name))
