"""Costs of a model from its Hugging Face folder, each figure from the best source in the folder.

Weights come from the headers of all weight files, which are exact; otherwise the total from their index, with the bytes
read per step computed from config.json if both agree; otherwise all from config.json. The rest comes from config.json.
"""

import dataclasses
import math
from pathlib import Path
from typing import Final

from phasewatch.hardware.facts import Precision
from phasewatch.models.costs import WEIGHT_TOLERANCE, ModelCosts, ModelSource, WeightReads
from phasewatch.models.errors import ModelError, Reasons
from phasewatch.models.fields import MAX_LAYERS
from phasewatch.models.shape.architecture import Architecture, is_empty, read_architecture
from phasewatch.models.shape.cache_types import AUTO
from phasewatch.models.shape.kv import compute_attention_costs, compute_kv_cache, read_element_bytes
from phasewatch.models.shape.parameters import count_parameters, read_routing
from phasewatch.models.shape.quantisation import read_quantisation
from phasewatch.models.shape.tensors import ModelStructure, Tensor, compute_reads, has_experts, sum_bytes
from phasewatch.models.shape.weights import compute_weights
from phasewatch.models.sources.files import find_file, read_json_file, resolve_links
from phasewatch.models.sources.safetensors import WeightIndex, read_index, read_tensors

_CONTRADICTION_FACTOR: Final = 2
"""Ratio of the totals of index and config.json beyond which the index is ignored: they describe different weights,
and a server builds the model from config.json."""

_MAX_CONFIG_SIZE: Final = 10_000_000
"""Bytes."""

_FLOAT32_BYTES: Final = 4

_SEPARATE_QUANTISATION: Final = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files in which some tools store the weight format instead of in config.json."""


def read_folder_costs(folder: Path, cache_dtype: str = AUTO) -> tuple[ModelCosts, tuple[str, ...]]:
    """The costs of the model in a folder, and reasons why some of them are unknown.

    Args:
        folder: folder with config.json and the weight files, or some of them.
        cache_dtype: data type of the server's KV cache. Only for `auto` is there a reason if the folder does not
            determine the element size.
    """
    reasons = Reasons()
    root = reasons.attempt(lambda: _resolve_folder(folder))
    if root is None:
        return ModelCosts(), reasons.as_tuple()
    model = reasons.attempt(lambda: _read_model(root))
    costs = _compute_weights(root, model, reasons)
    if model is None:
        return costs, reasons.as_tuple()
    cache = reasons.attempt(lambda: compute_kv_cache(model))
    if cache is not None and cache.bytes_per_element is None and cache_dtype.lower() == AUTO:
        reasons.attempt(lambda: read_element_bytes(model))
    costs = dataclasses.replace(
        costs,
        kv_cache=cache,
        attention=reasons.attempt(lambda: compute_attention_costs(model)),
        precision=reasons.attempt(lambda: _determine_precision(root, model)),
        sparse=costs.sparse or _is_sparse(model),
    )
    return costs, reasons.as_tuple()


def _resolve_folder(folder: Path) -> Path:
    root = resolve_links(folder)
    if not root.is_dir():
        raise ModelError(f"{folder}: expected a folder with the files of a model")
    return root


def _read_model(root: Path) -> Architecture:
    path = find_file(root, "config.json")
    if path is None:
        raise ModelError(f"{root}: has no config.json: is it the folder of a model?")
    return read_architecture(read_json_file(path, _MAX_CONFIG_SIZE))


def _is_sparse(model: Architecture) -> bool:
    try:
        return read_routing(model.fields) is not None or _has_encoder(model)
    except ModelError:  # it has keys of experts, though invalid ones
        return True


def _has_encoder(model: Architecture) -> bool:
    return any(not is_empty(section.get("is_encoder_decoder")) for section in (model.fields, model.root))


def _compute_weights(root: Path, model: Architecture | None, reasons: Reasons) -> ModelCosts:
    index, is_broken = _read_index(root, reasons)
    tensors = None if is_broken else reasons.attempt(lambda: read_tensors(root, index))
    if tensors:
        exact = None if model is None else reasons.attempt(lambda: _read_exact_reads(root, model, tensors))
        return ModelCosts(sum_bytes(tensors), ModelSource.SAFETENSORS, exact, sparse=has_experts(tensors))
    computed = None if model is None else reasons.attempt(lambda: _compute_from_config(root, model))
    total = _read_index_total(index, computed, model, reasons)
    if total is not None:
        return ModelCosts(total, ModelSource.INDEX, _select_reads(total, computed, reasons))
    if computed is None or model is None:
        return ModelCosts()
    total, reads = computed
    if model.towers:
        reasons.add(
            "config.json: the parts for pictures or sound are not counted, so the weights as a whole are not known"
        )
        return ModelCosts(reads=reads)
    return ModelCosts(total, ModelSource.CONFIG_JSON, reads)


def _read_index_total(
    index: WeightIndex | None, computed: tuple[float, WeightReads] | None, model: Architecture | None, reasons: Reasons
) -> float | None:
    """The total of the index, unless the total of config.json contradicts it.

    The index also includes vision and audio parts, so that its total may be much larger.
    """
    total = None if index is None else index.total_size
    if total is None or computed is None or model is None:
        return total
    config_total, _ = computed
    if config_total <= _CONTRADICTION_FACTOR * total and (
        total <= _CONTRADICTION_FACTOR * config_total or model.towers
    ):
        return total
    reasons.add(
        f"the index tells of {total / 1e9:.2f} GB of weights, config.json of {config_total / 1e9:.2f} GB,"
        " so the index is not believed"
    )
    return None


def _read_index(root: Path, reasons: Reasons) -> tuple[WeightIndex | None, bool]:
    """The index, and whether it exists but is invalid."""
    try:
        return read_index(root), False
    except ModelError as error:
        reasons.add(str(error))
        return None, True


def _read_exact_reads(root: Path, model: Architecture, tensors: tuple[Tensor, ...]) -> WeightReads:
    if _has_encoder(model):
        raise ModelError("config.json: is_encoder_decoder: models with an encoder are not counted")
    float32_bytes = sum(
        tensor.size for tensor in tensors if tensor.parameters and tensor.size == _FLOAT32_BYTES * tensor.parameters
    )
    if 2 * float32_bytes > sum_bytes(tensors):
        raise ModelError(
            f"{root}: weights in 32 bits, which most servers turn into 16, so what a step reads is not known"
        )
    experts, per_token = read_routing(model.fields) or (0, 0)
    tied = model.read_tied_embeddings()
    structure = ModelStructure(
        layers=model.fields.require_int("num_hidden_layers", MAX_LAYERS),
        experts=experts,
        per_token=per_token,
        tied=next(iter(tied)) if len(tied) == 1 else None,
    )
    reads = compute_reads(tensors, structure)
    return reads if reads.compute_active_parameters() is not None else _add_parameters(reads, model)


def _add_parameters(reads: WeightReads, model: Architecture) -> WeightReads:
    """Add the parameter counts of config.json, as the parameters of packed tensors cannot be counts."""
    try:
        counts = count_parameters(model)
    except ModelError:
        return reads
    each = None if counts.experts is None else float(counts.experts.each)
    return dataclasses.replace(
        reads,
        dense_parameters=float(counts.count_dense()),
        head_parameters=float(counts.head),
        experts=tuple(dataclasses.replace(group, parameters_each=each) for group in reads.experts),
    )


def _compute_from_config(root: Path, model: Architecture) -> tuple[float, WeightReads]:
    _refuse_separate_quantisation(root, model)
    return compute_weights(model)


def _determine_precision(root: Path, model: Architecture) -> Precision | None:
    _refuse_separate_quantisation(root, model)
    return read_quantisation(model).precision


def _refuse_separate_quantisation(root: Path, model: Architecture) -> None:
    if model.root.get("quantization_config") is not None:
        return
    for name in _SEPARATE_QUANTISATION:
        if find_file(root, name) is not None:
            raise ModelError(f"{root / name}: the format of the weights is told there and not in config.json")


def _select_reads(total: float, computed: tuple[float, WeightReads] | None, reasons: Reasons) -> WeightReads | None:
    if computed is None:
        return None
    config_total, reads = computed
    if math.isclose(total, config_total, rel_tol=WEIGHT_TOLERANCE):
        return reads
    reasons.add(
        f"the index tells of {total / 1e9:.2f} GB of weights, config.json of {config_total / 1e9:.2f} GB,"
        " so what a step reads is unknown"
    )
    return None
