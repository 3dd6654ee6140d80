"""The snapshot of an Ollama: valid measurements, models in memory and on disk, and counters that never leave."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from phasewatch.analysis.queue import Load
from phasewatch.backends.ollama.inventory import Inventory, OllamaVersion
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.response import ProbeTimings
from phasewatch.backends.ollama.snapshot import build_snapshot, compute_gpu_ratio
from phasewatch.backends.ollama.state import (
    ModelDescription,
    ModelState,
    OllamaState,
    ProbeMeasurement,
    Residency,
    fold_failure,
    fold_success,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.costs import ModelCosts, WeightReads
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord
from phasewatch.snapshot.target import TargetSnapshot
from tests.support.ollama_facts import GGUF, WALL, A, B, figures, inventory, loaded, stored
from tests.support.targets import new_probe_settings, new_target

TARGET: Final = new_target("o", "ollama", "http://h", probe=new_probe_settings(interval=300.0, long_interval=3600.0))
TIMING: Final = ScrapeTiming(99.9, 100.0, WALL)
NOW: Final = 100.0
KEY: Final = ("a:latest", A)

SHORT: Final = figures(computed_tokens=200, prompt_seconds=0.1)
LONG: Final = figures(computed_tokens=2000, prompt_seconds=0.55, prompt_tokens=2000)
"""Their difference: 1800 tokens in 0.45 s."""


def model(
    short: ProbeTimings | None = None, long: ProbeTimings | None = None, time: float = NOW, **facts: Any
) -> ModelState:
    residency = Residency(witnessed=False, model=loaded(), user_expires_at=WALL, probe_expires_at=None, changed_at=0.0)
    timings = {RequestKind.SHORT: short, RequestKind.LONG: long}
    measurements = {kind: ProbeMeasurement(time, read) for kind, read in timings.items() if read}
    return replace(ModelState(due=0.0, residency=residency, measurements=measurements), **facts)


def up(state_of_model: ModelState | None = None, seen: Inventory | None = None, **facts: Any) -> OllamaState:
    models = {KEY: state_of_model} if state_of_model else {}
    state = OllamaState(inventory=seen or inventory(loaded()), models=models, **facts)
    return fold_success(state, "0.33.0", TIMING)


def snapshot(state: OllamaState, now: float = NOW, target: Target = TARGET) -> TargetSnapshot:
    return build_snapshot(state, target, now)


def engine(state: OllamaState, now: float = NOW, target: Target = TARGET) -> EngineSnapshot:
    (only,) = snapshot(state, now, target).engines
    return only


def decode(state: OllamaState, now: float = NOW, target: Target = TARGET) -> float | None:
    return engine(state, now, target).phases.decode_tokens_per_second


def prefill(state: OllamaState, now: float = NOW) -> float | None:
    return engine(state, now).phases.prefill_tokens_per_second


def of_model(state: OllamaState, name: str = "a:latest") -> ModelSnapshot:
    (only,) = [model for model in snapshot(state).models if model.name == name]
    return only


def test_the_newest_short_probe_gives_the_rates_of_a_model() -> None:
    reading = engine(up(model(SHORT)))
    assert (reading.key.model_name, reading.key.engine) == ("a:latest", None)
    assert reading.phases.prefill_tokens_per_second == pytest.approx(2000.0)
    assert reading.phases.decode_tokens_per_second == pytest.approx(31 / 0.078709)
    assert reading.latencies.time_to_first_token.mean == pytest.approx(0.104325774)
    assert reading.latencies.inter_token.mean == pytest.approx(0.078709 / 31)


def test_what_no_probe_can_measure_stays_unknown() -> None:
    reading = engine(up(model(SHORT)))
    assert reading.phases.prefill_throughput_tokens_per_second is None
    assert reading.phases.decode_throughput_tokens_per_second is None
    assert reading.state is None
    assert reading.load == Load()


def test_before_the_first_probe_there_are_no_rates() -> None:
    for unprobed in (None, model()):
        reading = engine(up(unprobed))
        assert reading.phases.prefill_tokens_per_second is None, unprobed
        assert reading.phases.decode_tokens_per_second is None, unprobed
        assert reading.latencies.time_to_first_token.mean is None, unprobed
        assert reading.latencies.inter_token.mean is None, unprobed


def test_figures_of_a_probe_are_called_so_for_as_long_as_they_are_shown() -> None:
    for state, now in ((up(model()), NOW), (up(model(long=LONG)), NOW), (up(model(SHORT)), NOW + 601)):
        assert engine(state, now).measurement_source is None
        assert decode(state, now) is None
    assert engine(up(model(SHORT))).measurement_source is MeasurementSource.PROBE


def test_a_measurement_is_valid_for_two_intervals() -> None:
    assert decode(up(model(SHORT)), NOW + 600) is not None
    assert decode(up(model(SHORT)), NOW + 600.1) is None


def test_where_the_budget_sets_the_pace_a_measurement_is_valid_for_two_cycles() -> None:
    slow = up(model(SHORT, probe_seconds={RequestKind.SHORT: 6.0, RequestKind.LONG: 2.0}))
    assert decode(slow, NOW + 1200) is not None
    assert decode(slow, NOW + 1200.1) is None
    unloaded = replace(
        slow, models={**slow.models, ("b:latest", B): ModelState(due=0.0, probe_seconds={RequestKind.SHORT: 60.0})}
    )
    assert decode(unloaded, NOW + 1200.1) is None


def test_a_long_measurement_is_valid_for_two_of_its_own_intervals_beside_a_short_one() -> None:
    def at(age: float) -> OllamaState:
        measured = model(SHORT, LONG, time=NOW)
        old = {**measured.measurements, RequestKind.LONG: ProbeMeasurement(NOW - age, LONG)}
        return up(replace(measured, measurements=old))

    assert prefill(at(7200)) == pytest.approx(1800 / 0.45)
    assert prefill(at(7200.1)) == pytest.approx(2000.0)


def test_a_long_measurement_alone_gives_no_rates() -> None:
    state = up(model(None, LONG))
    assert prefill(state) is None
    assert decode(state) is None
    assert engine(state).latencies.time_to_first_token.mean is None


def test_prefill_between_two_lengths_leaves_out_the_fixed_cost() -> None:
    assert prefill(up(model(SHORT, LONG))) == pytest.approx(1800 / 0.45)


def fixed_seconds(state: OllamaState, now: float = NOW) -> float | None:
    (only,) = snapshot(state, now).models
    return only.prefill_fixed_seconds


def test_the_fixed_cost_of_a_prompt_is_its_time_without_its_tokens() -> None:
    assert fixed_seconds(up(model(SHORT, LONG))) == pytest.approx(0.1 - 200 / 4000)
    assert fixed_seconds(up(model(SHORT))) is None
    assert fixed_seconds(up(model(SHORT, LONG)), NOW + 601) is None


def test_decode_and_the_first_token_are_those_of_the_short_probe() -> None:
    slower = replace(LONG, decode_seconds=1.0, total_seconds=9.0)
    assert engine(up(model(SHORT, slower))).latencies == engine(up(model(SHORT))).latencies
    assert decode(up(model(SHORT, slower))) == decode(up(model(SHORT)))


def test_prefill_is_that_of_the_longer_prompt_if_two_lengths_give_no_slope() -> None:
    cases: list[tuple[str, ProbeTimings, ProbeTimings | None, float | None]] = [
        ("no long probe", SHORT, None, 2000.0),
        ("the short one has no prefill", without_prefill(SHORT), LONG, 2000 / 0.55),
        ("the long one has no prefill", SHORT, without_prefill(LONG), 2000.0),
        ("the long one is not twice as long", SHORT, replace(LONG, computed_tokens=399), 399 / 0.55),
        ("the short one took longer", replace(SHORT, prompt_seconds=0.6), LONG, 2000 / 0.55),
        ("the slope is 1.8 million", replace(SHORT, prompt_seconds=0.549), LONG, 2000 / 0.55),
        ("no prefill at all", without_prefill(SHORT), None, None),
    ]
    for case, short, long, rate in cases:
        assert prefill(up(model(short, long))) == (None if rate is None else pytest.approx(rate)), case


def without_prefill(timings: ProbeTimings) -> ProbeTimings:
    return replace(timings, computed_tokens=None, prompt_seconds=None)


def test_a_model_in_memory_is_shown_with_all_its_fields() -> None:
    assert of_model(up(seen=inventory(loaded(size=8e9, size_vram=2e9)))) == ModelSnapshot(
        "a:latest",
        digest=A,
        details=GGUF,
        loaded=1.0,
        bytes=8e9,
        vram_bytes=2e9,
        gpu_ratio=0.25,
        context_length_tokens=4096,
        expiry=WALL + 300,
    )


def test_a_model_on_disk_is_not_loaded_and_a_remote_one_has_no_state() -> None:
    state = up(seen=inventory(disk=(stored(), stored("big:cloud", B, remote=True))))
    assert of_model(state) == ModelSnapshot("a:latest", digest=A, details=GGUF, loaded=0.0)
    assert of_model(state, "big:cloud").loaded is None
    assert snapshot(state).engines == ()


def test_a_replaced_model_in_memory_is_shown_beside_the_new_one_of_its_name() -> None:
    state = up(model(SHORT), seen=inventory(loaded(), disk=(stored(digest=B),)))
    assert {(reading.name, reading.digest, reading.loaded) for reading in snapshot(state).models} == {
        ("a:latest", B, 0.0),
        (f"a:latest@{A[:12]}", A, 1.0),
    }
    assert engine(state).key.model_name == f"a:latest@{A[:12]}"


def test_no_two_engines_and_no_two_models_share_a_name() -> None:
    disk = (stored(digest=B), stored("b:latest", "c" * 64))
    state = up(seen=inventory(loaded(), loaded(digest=B), loaded("b:latest", "c" * 64), disk=disk))
    engines = [reading.key for reading in snapshot(state).engines]
    models = [reading.name for reading in snapshot(state).models]
    assert len(set(engines)) == len(engines) == 3
    assert len(set(models)) == len(models) == 3


def test_the_share_on_the_devices_is_known_if_both_sizes_are() -> None:
    for size, vram, ratio in (
        (8e9, 8e9, 1.0),
        (8e9, 0.0, 0.0),
        (0.0, 0.0, None),
        (None, 1.0, None),
        (8e9, None, None),
    ):
        assert compute_gpu_ratio(loaded(size=size, size_vram=vram), None) == ratio, (size, vram)


def test_in_releases_that_count_weights_twice_the_size_of_a_model_partly_on_the_device_is_unknown() -> None:
    versions: list[tuple[OllamaVersion | None, bool]] = [
        ((0, 24, 0), False),
        ((0, 30, 0), True),
        ((0, 30, 10), True),
        ((0, 30, 11), False),
        (None, False),
    ]
    partly, wholly = loaded(size=8e9, size_vram=4e9), loaded(size=8e9, size_vram=8e9)
    for version, wrong in versions:
        assert (compute_gpu_ratio(partly, version) is None) is wrong, version
        assert compute_gpu_ratio(wholly, version) == 1.0, version
        text = ".".join(map(str, version)) if version else "0.0.0"
        state = replace(up(seen=inventory(partly)), version=text)
        assert (of_model(state).bytes is None) is wrong, version
        assert of_model(state).vram_bytes == 4e9, version


def test_counters_outlive_the_model_the_server_and_the_disk() -> None:
    record = ProbeRecord(probes=7)
    for state in (
        up(seen=inventory(loaded()), records={"a:latest": record}),
        up(seen=inventory(disk=(stored(),)), records={"a:latest": record}),
        up(seen=inventory(disk=()), records={"a:latest": record}),
        fold_failure(up(records={"a:latest": record}), ScrapeError(Reason.CONNECT, "refused", refused=True), TIMING),
        fold_failure(up(records={"a:latest": record}), ScrapeError(Reason.TIMEOUT, "late"), TIMING),
    ):
        assert of_model(state).probe == record


def test_while_the_server_is_down_only_counters_are_shown() -> None:
    state = up(model(SHORT), records={"a:latest": ProbeRecord(probes=7)})
    refusal = ScrapeError(Reason.CONNECT, "no", refused=True)
    for error in (refusal, *(ScrapeError(reason, "no") for reason in Reason)):
        down = snapshot(fold_failure(state, error, TIMING))
        assert (down.up, down.engines, down.facts.version) == (False, (), None), (error.reason, error.refused)
        assert down.models == (ModelSnapshot("a:latest", probe=ProbeRecord(probes=7)),), (error.reason, error.refused)


def test_a_server_too_busy_to_list_its_models_is_up_and_shows_none() -> None:
    busy = snapshot(replace(up(model(SHORT)), inventory=None))
    assert (busy.up, busy.facts.version, busy.engines, busy.models) == (True, "0.33.0", (), ())


COSTS: Final = ModelCosts(weight_bytes=4e9, reads=WeightReads(dense_bytes=4e9, dense_parameters=8e9))
DEVICE: Final = DeviceFacts(memory_bandwidth=400e9, cpu_memory_bandwidth=40e9)


def limits(state: OllamaState) -> Mapping[str, float]:
    return engine(state).ceiling.decode_ceiling_tokens_per_second


def test_the_ceiling_is_that_of_one_stream_on_the_memories_that_hold_the_model() -> None:
    facts: dict[str, Any] = {"descriptions": {A: ModelDescription(None, COSTS)}, "device": DEVICE}
    assert limits(up(model(SHORT), **facts))["weights"] == pytest.approx(100.0)
    ratio = engine(up(model(SHORT), **facts)).ceiling.decode_ceiling_ratio
    assert ratio["weights"] == pytest.approx(31 / 0.078709 / 100)
    assert engine(up(**facts)).ceiling.decode_ceiling_ratio == {}
    half = inventory(loaded(size=8e9, size_vram=4e9))
    assert limits(up(model(SHORT), seen=half, **facts))["weights"] == pytest.approx(1 / (2 / 400 + 2 / 40))


def test_without_device_costs_or_share_there_is_no_ceiling() -> None:
    costs = {A: ModelDescription(None, COSTS)}
    assert limits(up(model(SHORT), device=DEVICE)) == {}
    assert limits(up(model(SHORT), descriptions=costs)) == {}
    assert limits(up(model(SHORT), seen=inventory(loaded(size_vram=None)), descriptions=costs, device=DEVICE)) == {}
