"""Devices of a target and costs of its models: configured figures first, then discovered ones, never a guess."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phasewatch.backends.equipment import (
    Equipment,
    combine_model_costs,
    describe_unused_settings,
    is_local,
    read_root_costs,
)
from phasewatch.backends.ollama.devices import resolve_ollama_devices
from phasewatch.backends.vllm.scraper import resolve_vllm_devices
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceLayout, DeviceSource
from phasewatch.hardware.reported import ReportedDevice
from phasewatch.models.costs import KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from phasewatch.models.settings import ModelSettings
from tests.support.targets import parse_config

DENSE = ModelCosts(
    weight_bytes=16e9,
    weight_source=ModelSource.CONFIG_JSON,
    reads=WeightReads(15e9, 7.5e9),
    kv_cache=KvCache((KvLayers(65_536),), 2.0, ModelSource.CONFIG_JSON),
)


def target(backend: str = "vllm", url: str = "http://server.invalid:8000", **device: Any) -> Target:
    text = f"targets: [{{name: chat, backend: {backend}, url: '{url}', device: {device}}}]"
    return parse_config(text).targets[0]


def test_a_loopback_address_is_local() -> None:
    for url in ("http://127.0.0.1:8000", "https://[::1]:8000/llm", "http://localhost", "http://127.9.9.9"):
        assert is_local(url), url


def test_any_other_address_is_not_local() -> None:
    for url in ("http://10.0.0.1:8000", "http://vllm:8000", "http://localhost.example.org", "http://[2001:db8::1]"):
        assert not is_local(url), url


def test_a_configured_device_is_looked_up_and_overrides_a_reported_one() -> None:
    facts, notes = resolve_vllm_devices(target(name="NVIDIA L40S", count=2), (ReportedDevice("NVIDIA L4", 24e9),))
    assert (facts.name, facts.count, facts.memory_bandwidth, facts.bandwidth_source) == (
        "L40S",
        2,
        864e9,
        DeviceSource.TABLE,
    )
    assert notes == ()


def test_a_reported_device_is_looked_up_if_none_is_configured() -> None:
    facts, _ = resolve_vllm_devices(
        target(), (ReportedDevice("NVIDIA H100 80GB HBM3", 85.5e9, memory_bandwidth=3352e9),)
    )
    assert (facts.memory_bandwidth, facts.bandwidth_source) == (3350e9, DeviceSource.TABLE)


def test_a_configured_figure_overrides_the_table() -> None:
    facts, _ = resolve_vllm_devices(target(name="NVIDIA L40S", memory_bandwidth="800GB/s"), ())
    assert (facts.memory_bandwidth, facts.bandwidth_source) == (800e9, DeviceSource.CONFIG)


def test_an_unknown_device_has_no_figure_and_a_note() -> None:
    facts, notes = resolve_vllm_devices(target(name="Quantum 9000"), ())
    assert facts.memory_bandwidth is None
    assert len(notes) == 1


def test_the_default_layout_is_tensor_for_vllm_and_pipeline_for_ollama() -> None:
    assert resolve_vllm_devices(target("vllm"), ())[0].layout is DeviceLayout.TENSOR
    assert resolve_ollama_devices(target("ollama"), ())[0].layout is DeviceLayout.PIPELINE
    assert resolve_ollama_devices(target("ollama", layout="replica"), ())[0].layout is DeviceLayout.REPLICA


def test_measured_bandwidth_is_used_for_local_targets_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, bandwidth in (("http://127.0.0.1:8000", 30e9), ("http://server.invalid:8000", None)):
        from phasewatch.hardware import measure, measurement_file  # noqa: PLC0415  # used in this test only

        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        run = measure.MeasurementRun(1, 30e9)
        measurement_file.store_measurement(
            measure.MemoryMeasurement(
                30e9, 1, 2**28, measure.read_processor_name(), "2026-11-29T20:00:00+00:00", (run,)
            )
        )
        assert resolve_vllm_devices(target(url=url, name="CPU"), ())[0].memory_bandwidth == bandwidth, url


def test_a_model_that_is_not_on_this_machine_has_unknown_costs() -> None:
    for root in (None, "", "nobody/nothing-at-all", "../../etc"):
        costs, unknown = read_root_costs(root, "auto")
        assert costs == ModelCosts()
        assert len(unknown) == 1


def test_the_configured_folder_is_used_for_every_model_of_the_target() -> None:
    equipment = Equipment(configured=DENSE, models={"a": ModelCosts(weight_bytes=1.0)})
    assert combine_model_costs(equipment, ModelSettings(), "a", None) == DENSE


def test_an_unknown_model_has_unknown_costs() -> None:
    assert combine_model_costs(Equipment(models={"a": DENSE}), ModelSettings(), "b", "auto") == ModelCosts()


def test_a_cache_that_the_server_reports_as_fp8_costs_half_as_much() -> None:
    costs = combine_model_costs(Equipment(models={"a": DENSE}), ModelSettings(), "a", "fp8_e4m3")
    assert costs.kv_cache is not None
    assert costs.kv_cache.compute_bytes_per_token() == 65_536


def test_a_cache_of_an_unknown_format_has_a_shape_but_no_bytes() -> None:
    cache = combine_model_costs(Equipment(models={"a": DENSE}), ModelSettings(), "a", "turbo3").kv_cache
    assert cache == KvCache((KvLayers(65_536),), None, ModelSource.CONFIG_JSON)


def test_the_cache_format_is_the_configured_one_else_the_reported_one_else_that_of_the_file() -> None:
    for operator, server, file, expected in (
        ("fp8", "turbo3", 2.0, 1.0),
        ("fp8", "auto", None, 1.0),
        ("auto", "fp8", 2.0, 2.0),
        (None, "fp8", None, 1.0),
        (None, "auto", 2.0, 2.0),
        (None, "auto", None, None),
        (None, None, 2.0, 2.0),
    ):
        costs = replace(DENSE, kv_cache=KvCache((KvLayers(65_536),), file, ModelSource.CONFIG_JSON))
        cache = combine_model_costs(
            Equipment(configured=costs), ModelSettings(kv_cache_dtype=operator), "a", server
        ).kv_cache
        assert cache is not None, (operator, server, file)
        assert cache.bytes_per_element == expected, (operator, server, file)


def test_figures_that_are_not_used_are_noted() -> None:
    (unknown,) = describe_unused_settings(DENSE, ModelSettings(), "turbo3")
    assert unknown.startswith("the server keeps its KV cache as 'turbo3', of which it is not known how wide it is: set")
    for settings in (ModelSettings(kv_cache_dtype="fp8"), ModelSettings(kv_cache_bytes_per_token=1000.0)):
        assert describe_unused_settings(DENSE, settings, "turbo3") == ()
    assert (
        describe_unused_settings(DENSE, ModelSettings(), None)
        == describe_unused_settings(DENSE, ModelSettings(), "fp8")
        == ()
    )
    headed = replace(DENSE, reads=WeightReads(15e9, 7.5e9, 0.5e9))
    parameters, unknown = describe_unused_settings(headed, ModelSettings(active_parameters=1.0), "turbo3")
    assert parameters.startswith("model.active_parameters: not used")


def test_configured_figures_override_all_others() -> None:
    settings = ModelSettings(weights=20e9, weights_read=19e9, kv_cache_bytes_per_token=1000.0)
    costs = combine_model_costs(Equipment(models={"a": DENSE}), settings, "a", "auto")
    assert (costs.weight_bytes, costs.weight_source) == (20e9, ModelSource.CONFIG)
    assert costs.reads is not None
    assert costs.reads.compute_bytes_per_step() == 19e9
    assert costs.kv_cache is not None
    assert costs.kv_cache.compute_bytes_per_token() == 1000


def test_a_processor_of_the_table_is_the_host_memory_of_an_ollama() -> None:
    facts, notes = resolve_ollama_devices(target("ollama", name="CPU DDR5-5600 dual channel"), ())
    assert facts.cpu_memory_bandwidth == pytest.approx(89.6e9)
    assert notes == ()
    configured, _ = resolve_ollama_devices(
        target("ollama", name="CPU DDR5-5600 dual channel", cpu_memory_bandwidth="50GB/s"), ()
    )
    assert configured.cpu_memory_bandwidth == 50e9


def test_an_ollama_with_a_known_host_needs_no_device() -> None:
    assert resolve_ollama_devices(target("ollama", cpu_memory_bandwidth="50GB/s"), ())[1] == ()
    assert resolve_ollama_devices(target("ollama"), ())[1] != ()
    assert resolve_ollama_devices(target("ollama", name="Quantum 9000", cpu_memory_bandwidth="50GB/s"), ())[1] != ()
