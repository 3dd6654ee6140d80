from itertools import combinations

import pytest

from phasewatch.base.units import parse_bandwidth
from phasewatch.demo.ollama.demo_models import (
    DEVICE,
    DEVICE_BANDWIDTH,
    EFFICIENCY,
    HOST_BANDWIDTH,
    MODELS,
    NUM_CTX,
    build_target_keys,
)
from phasewatch.demo.ollama.users import MAX_LOADED
from phasewatch.hardware.resolve import ResolvedDevice, resolve_device
from phasewatch.models.sources.gguf import read_show_costs


def test_the_device_is_in_the_table_with_its_bandwidth() -> None:
    device = resolve_device(DEVICE)
    assert isinstance(device, ResolvedDevice)
    assert device.memory_bandwidth == DEVICE_BANDWIDTH
    assert build_target_keys()["device"]["name"] == DEVICE
    assert parse_bandwidth(build_target_keys()["device"]["cpu_memory_bandwidth"]) == HOST_BANDWIDTH


def test_every_models_name_says_that_it_is_simulated() -> None:
    for model in MODELS:
        assert model.name.startswith("simulated-"), model.name


def test_the_exporter_computes_a_models_costs_from_its_metadata() -> None:
    for model in MODELS:
        costs, unknown = read_show_costs(model.build_show("2026-11-29T16:40:11Z"))
        assert unknown == (), model.name
        assert costs.weight_bytes == model.size, model.name
        assert costs.kv_cache is not None, model.name
        assert costs.kv_cache.compute_bytes_per_token() == model.gguf.kv_cache_bytes_per_token, model.name


def test_decode_speed_follows_from_the_memory_bandwidths() -> None:
    for model in MODELS:
        on_device = model.vram_bytes / model.resident_bytes
        seconds = model.size * on_device / DEVICE_BANDWIDTH + model.size * (1 - on_device) / HOST_BANDWIDTH
        assert model.decode_seconds_per_token == pytest.approx(seconds / EFFICIENCY), model.name


def test_any_models_that_may_be_loaded_together_fit_on_the_device() -> None:
    device = resolve_device(DEVICE)
    assert isinstance(device, ResolvedDevice)
    for loaded in combinations(MODELS, MAX_LOADED):
        assert sum(model.vram_bytes for model in loaded) <= device.device.memory[0][0], loaded


def test_the_parameter_sizes_are_those_of_the_real_models_they_resemble() -> None:
    assert [model.build_details()["parameter_size"] for model in MODELS] == ["1.5B", "8.0B", "32.8B"]
    assert all(model.resident_bytes > model.size + NUM_CTX for model in MODELS)
