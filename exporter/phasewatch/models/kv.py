"""What a model keeps of each token, from the shape of its attention, and how wide a number of it is."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from phasewatch.models.architecture import Architecture, is_empty
from phasewatch.models.attention import AttentionLayers, attention_layers
from phasewatch.models.costs import KvCache, KvLayers, Source
from phasewatch.models.fields import ModelError, brief

AUTO: Final = "auto"
"""The data type of a cache that is kept as the model computes."""

_CACHE_BYTES: Final[Mapping[str, float]] = {
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

_MODEL_BYTES: Final = frozenset({"bfloat16", "float16", "half"})


def with_cache_dtype(cache: KvCache, name: str) -> KvCache | None:
    """A cache whose elements have the data type that the server names.

    Args:
        cache: with the elements of the model's own type.
        name: such as vLLM's `cache_config_info` gives for `cache_dtype`, or llama.cpp's `--cache-type-k`.

    Returns:
        None for a name that is not known.
    """
    name = name.lower()
    if name == AUTO:
        return cache
    size = _CACHE_BYTES.get(name)
    return None if size is None else dataclasses.replace(cache, bytes_per_element=size)


def kv_cache(model: Architecture, cache_dtype: str = AUTO) -> KvCache:
    """What the model keeps of each token.

    Args:
        model: the language model of a config.json.
        cache_dtype: as the server was told, see `with_cache_dtype`.

    Raises:
        ModelError: the file does not say, or the data type is not known.
    """
    layers = tuple(_kept(attention_layers(model)))
    if not layers:
        raise model.fields.error("layer_types", "no layer keeps anything of single tokens")
    size = _element_bytes(model) if cache_dtype.lower() == AUTO else _CACHE_BYTES.get(cache_dtype.lower())
    if size is None:
        raise ModelError(f"KV cache data type {brief(cache_dtype)} is not known")
    return KvCache(layers, size, Source.CONFIG_JSON)


def attention_operations(model: Architecture) -> float | None:
    """Floating point operations of one token per token of context, over the layers that attend to everything.

    2 for each element of a query against a key and 2 for each element of a value, so 4 x heads x head dimension. Latent
    attention is counted as it is in prefill, with keys and values made of the latent vector. None where tokens are
    chosen by an index.

    Raises:
        ModelError: the file does not say.
    """
    total = 0.0
    for kind in attention_layers(model):
        if kind.latent is not None:
            if kind.latent.chosen is not None or kind.latent.inner_size is None:
                return None
            total += 2.0 * kind.layers * kind.heads * kind.latent.inner_size
        elif kind.span is None:
            total += 4.0 * kind.layers * kind.heads * kind.head_size
    return total


def _kept(kinds: tuple[AttentionLayers, ...]) -> Iterator[KvLayers]:
    for kind in kinds:
        if kind.latent is None:
            yield KvLayers(2.0 * kind.layers * kind.key_heads * kind.head_size, kind.span)
            continue
        yield KvLayers(float(kind.layers * (kind.latent.rank + kind.latent.position_size)), kind.latent.chosen)
        if kind.latent.index_size:  # of every token: the index is what the choice is made by
            yield KvLayers(float(kind.layers * kind.latent.index_size))


def _element_bytes(model: Architecture) -> float:
    """Bytes of an element where the server keeps the cache as the model computes.

    A model in 32 bits is usually served in 16, and some servers follow a checkpoint that asks for a quantised cache:
    neither is known from the file alone.
    """
    quantisation = model.whole.section("quantization_config") or model.fields.section("quantization_config")
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        if quantisation is not None and not is_empty(quantisation.get(key)):
            raise quantisation.error(key, "whether the server follows it is not known; set model.kv_cache_dtype")
    return data_type_bytes(model)


def data_type_bytes(model: Architecture) -> float:
    """Bytes of a number in the data type that the model computes in: 16 bits, as servers take what does not say.

    Raises:
        ModelError: it is of another size.
    """
    name = model.text("dtype") or model.text("torch_dtype")
    if name is not None and name.removeprefix("torch.") not in _MODEL_BYTES:
        raise model.fields.error("dtype", f"expected bfloat16 or float16, found {brief(name)}")
    return 2.0
