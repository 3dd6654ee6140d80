"""What a target runs on and what its models cost: the operator first, then what was found out, never a guess."""

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


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "https://[::1]:8000/llm", "http://localhost", "http://127.9.9.9"]
)
def test_a_loopback_address_is_this_machine(url: str) -> None:
    assert is_local(url)


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1:8000", "http://vllm:8000", "http://localhost.example.org", "http://[2001:db8::1]"]
)
def test_any_other_address_is_not(url: str) -> None:
    assert not is_local(url)


def test_a_configured_name_is_looked_up_and_beats_what_is_reported() -> None:
    facts, notes = resolve_vllm_devices(target(name="NVIDIA L40S", count=2), (ReportedDevice("NVIDIA L4", 24e9),))
    assert (facts.name, facts.count, facts.memory_bandwidth, facts.bandwidth_source) == (
        "L40S",
        2,
        864e9,
        DeviceSource.TABLE,
    )
    assert notes == ()


def test_what_is_reported_is_looked_up_where_nothing_is_configured() -> None:
    facts, _ = resolve_vllm_devices(
        target(), (ReportedDevice("NVIDIA H100 80GB HBM3", 85.5e9, memory_bandwidth=3352e9),)
    )
    assert (facts.memory_bandwidth, facts.bandwidth_source) == (3350e9, DeviceSource.TABLE)


def test_a_configured_figure_beats_the_table() -> None:
    facts, _ = resolve_vllm_devices(target(name="NVIDIA L40S", memory_bandwidth="800GB/s"), ())
    assert (facts.memory_bandwidth, facts.bandwidth_source) == (800e9, DeviceSource.CONFIG)


def test_an_unknown_device_has_no_figure_and_a_note() -> None:
    facts, notes = resolve_vllm_devices(target(name="Quantum 9000"), ())
    assert facts.memory_bandwidth is None
    assert len(notes) == 1


def test_vllm_divides_layers_and_ollama_hands_them_out() -> None:
    assert resolve_vllm_devices(target("vllm"), ())[0].layout is DeviceLayout.TENSOR
    assert resolve_ollama_devices(target("ollama"), ())[0].layout is DeviceLayout.PIPELINE
    assert resolve_ollama_devices(target("ollama", layout="replica"), ())[0].layout is DeviceLayout.REPLICA


@pytest.mark.parametrize(("url", "known"), [("http://127.0.0.1:8000", 30e9), ("http://server.invalid:8000", None)])
def test_the_measured_memory_is_that_of_targets_on_this_machine_alone(
    url: str, known: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phasewatch.hardware import measure, measurement_file  # noqa: PLC0415  # to store what this machine never measured

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = measure.MeasurementRun(1, 30e9)
    measurement_file.store_measurement(
        measure.MemoryMeasurement(30e9, 1, 2**28, measure.read_processor_name(), "2026-11-29T20:00:00+00:00", (run,))
    )
    assert resolve_vllm_devices(target(url=url, name="CPU"), ())[0].memory_bandwidth == known


def test_a_model_that_is_not_on_this_machine_costs_nothing_known() -> None:
    for root in (None, "", "nobody/nothing-at-all", "../../etc"):
        costs, unknown = read_root_costs(root, "auto")
        assert costs == ModelCosts()
        assert len(unknown) == 1


def test_the_configured_folder_stands_for_every_model_of_the_target() -> None:
    equipment = Equipment(configured=DENSE, models={"a": ModelCosts(weight_bytes=1.0)})
    assert combine_model_costs(equipment, ModelSettings(), "a", None) == DENSE


def test_a_model_that_is_not_known_costs_nothing_known() -> None:
    assert combine_model_costs(Equipment(models={"a": DENSE}), ModelSettings(), "b", "auto") == ModelCosts()


def test_the_servers_word_on_its_cache_halves_it_at_8_bits() -> None:
    costs = combine_model_costs(Equipment(models={"a": DENSE}), ModelSettings(), "a", "fp8_e4m3")
    assert costs.kv_cache is not None
    assert costs.kv_cache.bytes_per_token() == 65_536


def test_a_cache_of_an_unknown_format_has_a_shape_and_no_bytes() -> None:
    cache = combine_model_costs(Equipment(models={"a": DENSE}), ModelSettings(), "a", "turbo3").kv_cache
    assert cache == KvCache((KvLayers(65_536),), None, ModelSource.CONFIG_JSON)


@pytest.mark.parametrize(
    ("operator", "server", "file", "expected"),
    [
        ("fp8", "turbo3", 2.0, 1.0),
        ("fp8", "auto", None, 1.0),
        ("auto", "fp8", 2.0, 2.0),
        (None, "fp8", None, 1.0),
        (None, "auto", 2.0, 2.0),
        (None, "auto", None, None),
        (None, None, 2.0, 2.0),
    ],
)
def test_the_operator_beats_the_server_on_the_cache_and_the_server_beats_the_file(
    operator: str | None, server: str | None, file: float | None, expected: float | None
) -> None:
    known = replace(DENSE, kv_cache=KvCache((KvLayers(65_536),), file, ModelSource.CONFIG_JSON))
    cache = combine_model_costs(
        Equipment(configured=known), ModelSettings(kv_cache_dtype=operator), "a", server
    ).kv_cache
    assert cache is not None
    assert cache.bytes_per_element == expected


def test_what_is_said_and_not_used_is_told() -> None:
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


def test_the_operators_figures_beat_everything() -> None:
    settings = ModelSettings(weights=20e9, weights_read=19e9, kv_cache_bytes_per_token=1000.0)
    costs = combine_model_costs(Equipment(models={"a": DENSE}), settings, "a", "auto")
    assert (costs.weight_bytes, costs.weight_source) == (20e9, ModelSource.CONFIG)
    assert costs.reads is not None
    assert costs.reads.bytes_per_step() == 19e9
    assert costs.kv_cache is not None
    assert costs.kv_cache.bytes_per_token() == 1000


def test_a_processor_of_the_table_is_the_hosts_memory_of_an_ollama() -> None:
    facts, notes = resolve_ollama_devices(target("ollama", name="CPU DDR5-5600 dual channel"), ())
    assert facts.cpu_memory_bandwidth == pytest.approx(89.6e9)
    assert notes == ()
    told, _ = resolve_ollama_devices(
        target("ollama", name="CPU DDR5-5600 dual channel", cpu_memory_bandwidth="50GB/s"), ()
    )
    assert told.cpu_memory_bandwidth == 50e9


def test_an_ollama_whose_host_is_known_needs_no_device() -> None:
    assert resolve_ollama_devices(target("ollama", cpu_memory_bandwidth="50GB/s"), ())[1] == ()
    assert resolve_ollama_devices(target("ollama"), ())[1] != ()
    assert resolve_ollama_devices(target("ollama", name="Quantum 9000", cpu_memory_bandwidth="50GB/s"), ())[1] != ()
