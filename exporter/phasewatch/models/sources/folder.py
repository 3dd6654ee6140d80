"""Costs of a model from its Hugging Face folder, each figure from the best source that the folder has.

Weights: the headers of all weight files, which are exact; else the total of their index, with what a step reads of it
computed from config.json if both agree; else computed from config.json alone. The rest comes from config.json.
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

_CONTRADICTION: Final = 2
"""Two totals that differ by this factor are not of the same weights: then one of them is wrong, and of an index and the
shapes it is the index, since the shapes are what a server builds the model from."""

_LONGEST_CONFIG: Final = 10_000_000

_WIDE: Final = 4
"""Bytes of a parameter in 32 bits."""

_SEPARATE_QUANTISATION: Final = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files in which other programs keep what belongs into config.json."""


def read_folder_costs(folder: Path, cache_dtype: str = AUTO) -> tuple[ModelCosts, tuple[str, ...]]:
    """What is known of the model in a folder, and in plain words why the rest is not.

    Args:
        folder: holds config.json and the weights, or a part of them.
        cache_dtype: data type of the server's KV cache, as it is told elsewhere. Unless that is `auto`, nothing is said
            of a folder that does not tell it.
    """
    reasons = Reasons()
    home = reasons.attempt(lambda: _home(folder))
    if home is None:
        return ModelCosts(), reasons.as_tuple()
    model = reasons.attempt(lambda: _model(home))
    costs = _weights(home, model, reasons)
    if model is None:
        return costs, reasons.as_tuple()
    cache = reasons.attempt(lambda: compute_kv_cache(model))
    if cache is not None and cache.bytes_per_element is None and cache_dtype.lower() == AUTO:
        reasons.attempt(lambda: read_element_bytes(model))
    known = dataclasses.replace(
        costs,
        kv_cache=cache,
        attention=reasons.attempt(lambda: compute_attention_costs(model)),
        precision=reasons.attempt(lambda: _precision(home, model)),
        sparse=costs.sparse or _is_sparse(model),
    )
    return known, reasons.as_tuple()


def _home(folder: Path) -> Path:
    home = resolve_links(folder)
    if not home.is_dir():
        raise ModelError(f"{folder}: expected a folder with the files of a model")
    return home


def _model(home: Path) -> Architecture:
    path = find_file(home, "config.json")
    if path is None:
        raise ModelError(f"{home}: has no config.json: is it the folder of a model?")
    return read_architecture(read_json_file(path, _LONGEST_CONFIG))


def _is_sparse(model: Architecture) -> bool:
    try:
        return read_routing(model.fields) is not None or _has_encoder(model)
    except ModelError:  # it speaks of experts, in whatever way
        return True


def _has_encoder(model: Architecture) -> bool:
    return any(not is_empty(part.get("is_encoder_decoder")) for part in (model.fields, model.whole))


def _weights(home: Path, model: Architecture | None, reasons: Reasons) -> ModelCosts:
    index, broken = _index(home, reasons)
    tensors = None if broken else reasons.attempt(lambda: read_tensors(home, index))
    if tensors:
        exact = None if model is None else reasons.attempt(lambda: _exact_reads(home, model, tensors))
        return ModelCosts(sum_bytes(tensors), ModelSource.SAFETENSORS, exact, sparse=has_experts(tensors))
    computed = None if model is None else reasons.attempt(lambda: _computed(home, model))
    total = _believed(index, computed, model, reasons)
    if total is not None:
        return ModelCosts(total, ModelSource.INDEX, _agreed(total, computed, reasons))
    if computed is None or model is None:
        return ModelCosts()
    total, reads = computed
    if model.towers:
        reasons.add(
            "config.json: the parts for pictures or sound are not counted, so the weights as a whole are not known"
        )
        return ModelCosts(reads=reads)
    return ModelCosts(total, ModelSource.CONFIG_JSON, reads)


def _believed(
    index: WeightIndex | None, computed: tuple[float, WeightReads] | None, model: Architecture | None, reasons: Reasons
) -> float | None:
    """The total of the index, unless the shapes contradict it. Towers may make it larger than those."""
    total = None if index is None else index.total_size
    if total is None or computed is None or model is None:
        return total
    shapes, _ = computed
    if shapes <= _CONTRADICTION * total and (total <= _CONTRADICTION * shapes or model.towers):
        return total
    reasons.add(
        f"the index tells of {total / 1e9:.2f} GB of weights, config.json of {shapes / 1e9:.2f} GB,"
        " so the index is not believed"
    )
    return None


def _index(home: Path, reasons: Reasons) -> tuple[WeightIndex | None, bool]:
    """The index, and whether there is one that cannot be used."""
    try:
        return read_index(home), False
    except ModelError as error:
        reasons.add(str(error))
        return None, True


def _exact_reads(home: Path, model: Architecture, tensors: tuple[Tensor, ...]) -> WeightReads:
    if _has_encoder(model):
        raise ModelError("config.json: is_encoder_decoder: models with an encoder are not counted")
    wide = sum(tensor.size for tensor in tensors if tensor.parameters and tensor.size == _WIDE * tensor.parameters)
    if 2 * wide > sum_bytes(tensors):
        raise ModelError(
            f"{home}: weights in 32 bits, which most servers turn into 16, so what a step reads is not known"
        )
    experts, per_token = read_routing(model.fields) or (0, 0)
    tied = model.read_tied_embeddings()
    layout = ModelStructure(
        layers=model.fields.require_int("num_hidden_layers", MAX_LAYERS),
        experts=experts,
        per_token=per_token,
        tied=next(iter(tied)) if len(tied) == 1 else None,
    )
    reads = compute_reads(tensors, layout)
    return reads if reads.active_parameters() is not None else _with_parameters(reads, model)


def _with_parameters(reads: WeightReads, model: Architecture) -> WeightReads:
    """The same bytes, with the parameters that the shapes tell: those of packed tensors cannot be counted."""
    try:
        counted = count_parameters(model)
    except ModelError:
        return reads
    each = None if counted.experts is None else float(counted.experts.each)
    return dataclasses.replace(
        reads,
        dense_parameters=float(counted.dense()),
        head_parameters=float(counted.head),
        experts=tuple(dataclasses.replace(group, parameters_each=each) for group in reads.experts),
    )


def _computed(home: Path, model: Architecture) -> tuple[float, WeightReads]:
    _refuse_separate_quantisation(home, model)
    return compute_weights(model)


def _precision(home: Path, model: Architecture) -> Precision | None:
    _refuse_separate_quantisation(home, model)
    return read_quantisation(model).precision


def _refuse_separate_quantisation(home: Path, model: Architecture) -> None:
    if model.whole.get("quantization_config") is not None:
        return
    for name in _SEPARATE_QUANTISATION:
        if find_file(home, name) is not None:
            raise ModelError(f"{home / name}: the format of the weights is told there and not in config.json")


def _agreed(total: float, computed: tuple[float, WeightReads] | None, reasons: Reasons) -> WeightReads | None:
    if computed is None:
        return None
    shape_total, reads = computed
    if math.isclose(total, shape_total, rel_tol=WEIGHT_TOLERANCE):
        return reads
    reasons.add(
        f"the index tells of {total / 1e9:.2f} GB of weights, config.json of {shape_total / 1e9:.2f} GB,"
        " so what a step reads is unknown"
    )
    return None
