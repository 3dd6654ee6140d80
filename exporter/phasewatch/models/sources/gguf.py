"""Costs of a model that Ollama serves, from the response of /api/show, which lists every tensor."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from phasewatch.hardware.facts import Precision
from phasewatch.models.costs import ModelCosts, ModelSource, WeightReads
from phasewatch.models.errors import ModelError, Reasons, shorten
from phasewatch.models.fields import JsonFields
from phasewatch.models.shape.gguf_attention import compute_cache_and_attention, count_layers
from phasewatch.models.shape.tensors import ModelStructure, Tensor, compute_reads, has_experts, sum_bytes
from phasewatch.models.sources.ggml import TYPE_SIZES

_PLACE: Final = "/api/show: "

_BITS16_TYPES: Final = frozenset({"F16", "BF16", "F32"})

_MAX_TENSORS: Final = 1_000_000
_MAX_DIMENSIONS: Final = 8


def read_show_costs(response: object) -> tuple[ModelCosts, tuple[str, ...]]:
    """The costs of a model, and reasons why some of them are unknown.

    Args:
        response: parsed JSON of Ollama's /api/show.
    """
    reasons = Reasons()
    top = reasons.attempt(lambda: _read_object(response))
    if top is None:
        return ModelCosts(), reasons.as_tuple()
    tensors = reasons.attempt(lambda: tuple(_read_tensors(top)))
    model_info = reasons.attempt(lambda: _read_model_info(top))
    reads: WeightReads | None = None
    cache = attention = None
    if model_info is not None:
        architecture, info = model_info
        if tensors is not None:
            reads = reasons.attempt(lambda: compute_reads(tensors, _read_structure(info)))
        cache, attention = reasons.attempt(lambda: compute_cache_and_attention(architecture, info)) or (None, None)
    costs = ModelCosts(
        weight_bytes=None if tensors is None else sum_bytes(tensors),
        weight_source=None if tensors is None else ModelSource.OLLAMA,
        reads=reads,
        kv_cache=cache,
        attention=attention,
        precision=None if tensors is None else _determine_precision(top),
        sparse=has_experts(tensors or ()) or (model_info is not None and bool(model_info[1].get("expert_count"))),
    )
    return costs, reasons.as_tuple()


def _read_object(response: object) -> JsonFields:
    if not isinstance(response, Mapping):
        raise ModelError(f"{_PLACE}expected a JSON object")
    return JsonFields(response, _PLACE)


def _read_model_info(top: JsonFields) -> tuple[str, JsonFields]:
    """The name of the architecture, and the keys of `model_info` below it."""
    info = top.get_section("model_info")
    architecture = None if info is None else info.get_text("general.architecture")
    if info is None or not architecture:
        raise top.error("model_info.general.architecture", "missing; does this server tell of its models?")
    prefix = f"{architecture}."
    keys = {key.removeprefix(prefix): value for key, value in info.values.items() if key.startswith(prefix)}
    return architecture, JsonFields(keys, f"{info.place}{architecture[:60]}.")


def _read_structure(info: JsonFields) -> ModelStructure:
    experts = info.get_count("expert_count")
    per_token = info.require_int("expert_used_count") if experts else 0
    if per_token > experts:
        raise info.error("expert_used_count", f"{per_token} of only {experts} experts")
    return ModelStructure(count_layers(info), experts, per_token)


def _read_tensors(top: JsonFields) -> Iterator[Tensor]:
    entries = top.get_list("tensors")
    if not entries or len(entries) > _MAX_TENSORS:
        raise top.error(
            "tensors", "missing; Ollama tells them of GGUF models since 0.6.1, so the weights are not known"
        )
    names = set()
    for index, entry in enumerate(entries):
        tensor = _read_tensor(top, f"tensors[{index}]", entry)
        if tensor.name in names:
            raise top.error(f"tensors[{index}]", f"{shorten(tensor.name)} is given twice")
        names.add(tensor.name)
        yield tensor


def _read_tensor(top: JsonFields, key: str, entry: Any) -> Tensor:
    if not isinstance(entry, Mapping):
        raise top.error(key, f"expected an object, found {shorten(entry)}")
    fields = JsonFields(entry, f"{top.place}{key}.")
    name, tensor_type, shape = fields.get_text("name"), fields.get_text("type"), fields.get_ints("shape")
    if not name:
        raise fields.error("name", "missing; expected text")
    if tensor_type is None or tensor_type.upper() not in TYPE_SIZES:
        raise fields.error("type", f"{shorten(tensor_type)} is not known, so the weights are not either")
    if len(shape) > _MAX_DIMENSIONS or not all(0 < length < 2**40 for length in shape):
        raise fields.error("shape", "expected whole numbers above 0")
    block_bytes, block_elements = TYPE_SIZES[tensor_type.upper()]
    elements = math.prod(shape)
    if elements % block_elements:
        raise fields.error("shape", f"{elements} elements are no whole blocks of {block_elements}")
    return Tensor(name, tuple(shape), elements // block_elements * block_bytes, elements)


def _determine_precision(top: JsonFields) -> Precision | None:
    """16 bit if no tensor is quantised. For quantised tensors, llama.cpp's precision depends on the device."""
    types = {str(entry["type"]).upper() for entry in top.get_list("tensors")}
    return Precision.BITS16 if types <= _BITS16_TYPES else None
