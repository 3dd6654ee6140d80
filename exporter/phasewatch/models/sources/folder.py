"""Costs of a model from its Hugging Face folder, each figure from the best source that the folder has.

Weights: the headers of all weight files, which are exact; else the total of their index, with what a step reads of it
computed from config.json if both agree; else computed from config.json alone. The rest comes from config.json.
"""

import dataclasses
import math
from pathlib import Path
from typing import Final

from phasewatch.hardware.facts import Precision
from phasewatch.models.costs import ModelCosts, Source, WeightReads
from phasewatch.models.fields import MOST_LAYERS, ModelError
from phasewatch.models.reasons import Reasons
from phasewatch.models.shape.architecture import Architecture, architecture, is_empty
from phasewatch.models.shape.arithmetic import weights_by_shape
from phasewatch.models.shape.cache_types import AUTO
from phasewatch.models.shape.kv import attention_costs, element_bytes, kv_cache
from phasewatch.models.shape.parameters import parameters, routing
from phasewatch.models.shape.quantisation import quantisation
from phasewatch.models.sources.files import file_in, json_file, resolved
from phasewatch.models.sources.safetensors import Index, index_of, tensors_of
from phasewatch.models.sources.tensors import Layout, Tensor, has_experts, total_bytes, weights_by_tensor

AGREEMENT: Final = 0.02
"""Two totals of the weights of one model may differ by this share: small tensors are not worth a disagreement."""

_CONTRADICTION: Final = 2
"""Two totals that differ by this factor are not of the same weights: then one of them is wrong, and of an index and the
shapes it is the index, since the shapes are what a server builds the model from."""

_LONGEST_CONFIG: Final = 10_000_000

_WIDE: Final = 4
"""Bytes of a parameter in 32 bits."""

_SEPARATE_QUANTISATION: Final = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files in which other programs keep what belongs into config.json."""


def costs_of_folder(folder: Path, cache_dtype: str = AUTO) -> tuple[ModelCosts, tuple[str, ...]]:
    """What is known of the model in a folder, and in plain words why the rest is not.

    Args:
        folder: holds config.json and the weights, or a part of them.
        cache_dtype: data type of the server's KV cache, as it is told elsewhere. Unless that is `auto`, nothing is said
            of a folder that does not tell it.
    """
    reasons = Reasons()
    home = reasons.attempt(lambda: _home(folder))
    if home is None:
        return ModelCosts(), reasons.told()
    model = reasons.attempt(lambda: _model(home))
    costs = _weights(home, model, reasons)
    if model is None:
        return costs, reasons.told()
    cache = reasons.attempt(lambda: kv_cache(model))
    if cache is not None and cache.bytes_per_element is None and cache_dtype.lower() == AUTO:
        reasons.attempt(lambda: element_bytes(model))
    known = dataclasses.replace(
        costs,
        kv_cache=cache,
        attention=reasons.attempt(lambda: attention_costs(model)),
        precision=reasons.attempt(lambda: _precision(home, model)),
        sparse=costs.sparse or _is_sparse(model),
    )
    return known, reasons.told()


def _home(folder: Path) -> Path:
    home = resolved(folder)
    if not home.is_dir():
        raise ModelError(f"{folder}: expected a folder with the files of a model")
    return home


def _model(home: Path) -> Architecture:
    path = file_in(home, "config.json")
    if path is None:
        raise ModelError(f"{home}: has no config.json: is it the folder of a model?")
    return architecture(json_file(path, _LONGEST_CONFIG))


def _is_sparse(model: Architecture) -> bool:
    try:
        return routing(model.fields) is not None or _has_encoder(model)
    except ModelError:  # it speaks of experts, in whatever way
        return True


def _has_encoder(model: Architecture) -> bool:
    return any(not is_empty(part.get("is_encoder_decoder")) for part in (model.fields, model.whole))


def _weights(home: Path, model: Architecture | None, reasons: Reasons) -> ModelCosts:
    index, broken = _index(home, reasons)
    tensors = None if broken else reasons.attempt(lambda: tensors_of(home, index))
    if tensors:
        exact = None if model is None else reasons.attempt(lambda: _exact_reads(home, model, tensors))
        return ModelCosts(total_bytes(tensors), Source.SAFETENSORS, exact, sparse=has_experts(tensors))
    computed = None if model is None else reasons.attempt(lambda: _computed(home, model))
    total = _believed(index, computed, model, reasons)
    if total is not None:
        return ModelCosts(total, Source.INDEX, _agreed(total, computed, reasons))
    if computed is None or model is None:
        return ModelCosts()
    total, reads = computed
    if model.towers:
        reasons.add(
            "config.json: the parts for pictures or sound are not counted, so the weights as a whole are not known"
        )
        return ModelCosts(reads=reads)
    return ModelCosts(total, Source.CONFIG_JSON, reads)


def _believed(
    index: Index | None, computed: tuple[float, WeightReads] | None, model: Architecture | None, reasons: Reasons
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


def _index(home: Path, reasons: Reasons) -> tuple[Index | None, bool]:
    """The index, and whether there is one that cannot be used."""
    try:
        return index_of(home), False
    except ModelError as error:
        reasons.add(str(error))
        return None, True


def _exact_reads(home: Path, model: Architecture, tensors: tuple[Tensor, ...]) -> WeightReads:
    if _has_encoder(model):
        raise ModelError("config.json: is_encoder_decoder: models with an encoder are not counted")
    wide = sum(tensor.size for tensor in tensors if tensor.parameters and tensor.size == _WIDE * tensor.parameters)
    if 2 * wide > total_bytes(tensors):
        raise ModelError(
            f"{home}: weights in 32 bits, which most servers turn into 16, so what a step reads is not known"
        )
    experts, per_token = routing(model.fields) or (0, 0)
    tied = model.tied()
    layout = Layout(
        layers=model.fields.whole("num_hidden_layers", MOST_LAYERS),
        experts=experts,
        per_token=per_token,
        tied=next(iter(tied)) if len(tied) == 1 else None,
    )
    reads = weights_by_tensor(tensors, layout)
    return reads if reads.active_parameters() is not None else _with_parameters(reads, model)


def _with_parameters(reads: WeightReads, model: Architecture) -> WeightReads:
    """The same bytes, with the parameters that the shapes tell: those of packed tensors cannot be counted."""
    try:
        counted = parameters(model)
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
    return weights_by_shape(model)


def _precision(home: Path, model: Architecture) -> Precision | None:
    _refuse_separate_quantisation(home, model)
    return quantisation(model).precision


def _refuse_separate_quantisation(home: Path, model: Architecture) -> None:
    if model.whole.get("quantization_config") is not None:
        return
    for name in _SEPARATE_QUANTISATION:
        if file_in(home, name) is not None:
            raise ModelError(f"{home / name}: the format of the weights is told there and not in config.json")


def _agreed(total: float, computed: tuple[float, WeightReads] | None, reasons: Reasons) -> WeightReads | None:
    if computed is None:
        return None
    shape_total, reads = computed
    if math.isclose(total, shape_total, rel_tol=AGREEMENT):
        return reads
    reasons.add(
        f"the index tells of {total / 1e9:.2f} GB of weights, config.json of {shape_total / 1e9:.2f} GB,"
        " so what a step reads is unknown"
    )
    return None
