from itertools import combinations

import pytest

from phasewatch.base.units import bandwidth
from phasewatch.demo.ollama.api import Model
from phasewatch.demo.ollama.demo_models import (
    DEVICE,
    DEVICE_BANDWIDTH,
    EFFICIENCY,
    HOST_BANDWIDTH,
    MODELS,
    NUM_CTX,
    target_keys,
)
from phasewatch.demo.ollama.users import MAX_LOADED
from phasewatch.hardware.resolve import Resolved, resolve
from phasewatch.models.sources.gguf import costs_of_show

EACH = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


def test_the_device_is_one_of_the_table_with_its_bandwidth() -> None:
    found = resolve(DEVICE)
    assert isinstance(found, Resolved)
    assert found.memory_bandwidth == DEVICE_BANDWIDTH
    assert target_keys()["device"]["name"] == DEVICE
    assert bandwidth(target_keys()["device"]["cpu_memory_bandwidth"]) == HOST_BANDWIDTH


@EACH
def test_a_model_says_that_it_is_simulated(model: Model) -> None:
    assert model.name.startswith("simulated-")


@EACH
def test_what_a_model_costs_is_what_it_tells(model: Model) -> None:
    costs, unknown = costs_of_show(model.show("2026-11-29T16:40:11Z"))
    assert unknown == ()
    assert costs.weight_bytes == model.size
    assert costs.kv_cache is not None
    assert costs.kv_cache.bytes_per_token() == model.anatomy.kv_cache_bytes_per_token


@EACH
def test_decode_is_as_fast_as_the_memory_lets_it_be(model: Model) -> None:
    on_device = model.vram_bytes / model.resident_bytes
    seconds = model.size * on_device / DEVICE_BANDWIDTH + model.size * (1 - on_device) / HOST_BANDWIDTH
    assert model.decode_seconds_per_token == pytest.approx(seconds / EFFICIENCY)


def test_as_many_models_as_may_be_loaded_fit_on_the_device() -> None:
    found = resolve(DEVICE)
    assert isinstance(found, Resolved)
    for loaded in combinations(MODELS, MAX_LOADED):
        assert sum(model.vram_bytes for model in loaded) <= found.device.memory[0][0]


def test_parameters_are_those_of_the_models_that_were_taken_as_examples() -> None:
    assert [model.details()["parameter_size"] for model in MODELS] == ["1.5B", "8.0B", "32.8B"]
    assert all(model.resident_bytes > model.size + NUM_CTX for model in MODELS)
