"""The table and the families: names, absence, labels, and what promtool and Prometheus think of them."""

import re
import subprocess
from dataclasses import replace

from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from phasewatch.backends.page_state import PageState, build_snapshot
from phasewatch.base.errors import Reason
from phasewatch.metrics.collector import ENGINE_METRICS, TABLE, SnapshotCollector, build_target_families
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.metrics.engine import LATENCY_METRICS, LOAD_METRICS, PHASE_METRICS
from phasewatch.metrics.target import TARGET_METRICS
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from phasewatch.snapshot.target import TargetSnapshot
from tests.support.pages import Metrics, replayed
from tests.support.paths import RECORDINGS
from tests.support.processes import needs
from tests.support.targets import new_target

TARGET = new_target("chat", "vllm", "http://a.invalid")
STATUS = SelfStatus("0.1.0", reload_successful=True, reload_success_time=1.7e9, scrapes_missed=3)
UNTOUCHED = build_snapshot(PageState(), TARGET)
ROWS = {metric.name: metric for metric in TABLE}


OF_OLLAMA = {"digest", "quantization", "parameter_size", "family"}
"""Labels of llm_model_info that vLLM has nothing for."""


def at(name: str, time: float) -> TargetSnapshot:
    snapshots = replay(RecordingReader(RECORDINGS / f"{name}.jsonl.xz"), TARGET)
    return next(snapshot for t, snapshot in snapshots if t >= time)


def encoded(*snapshots: TargetSnapshot, accept: str = "") -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: (STATUS, snapshots)))
    encode, _ = choose_encoder(accept)
    text: bytes = encode(registry)
    return text.decode()


def test_every_name_is_unique_prefixed_and_without_a_colon() -> None:
    assert len(ROWS) == len(TABLE)
    assert all(re.fullmatch(r"(llm|phasewatch)_[a-z0-9_]+", name) for name in ROWS)


def test_counters_and_only_they_end_in_total() -> None:
    assert all((metric.kind == "counter") == metric.name.endswith("_total") for metric in TABLE)


def test_every_metric_carries_the_labels_of_its_scope() -> None:
    assert all(metric.labels[:2] == ("target", "backend") for metric in TABLE if metric.name.startswith("llm_"))
    assert all(metric.labels[:4] == ("target", "backend", "model_name", "engine") for metric in ENGINE_METRICS)


def test_every_sample_is_in_the_table_with_just_its_labels() -> None:
    for recording in ("batch-ramp", "data-parallel", "speculative", "two-api-servers", "restart"):
        for _, metrics in replayed(recording):
            for name, labels in metrics:
                assert {label for label, _ in labels} == set(ROWS[name].labels) - OF_OLLAMA, (recording, name)


def test_every_metric_that_needs_no_facts_is_shown_by_some_recording() -> None:
    seen = {
        name for recording in ("batch-ramp", "preemption") for _, metrics in replayed(recording) for name, _ in metrics
    }
    without_facts = (*TARGET_METRICS, *PHASE_METRICS, *LATENCY_METRICS, *LOAD_METRICS)
    assert {metric.name for metric in without_facts} <= seen


def test_errors_of_every_reason_are_there_from_the_start_at_0() -> None:
    (family,) = build_target_families([UNTOUCHED])
    assert {(sample.labels["reason"], sample.value) for sample in family.samples} == {(r.value, 0.0) for r in Reason}


def test_before_the_first_scrape_has_ended_nothing_is_claimed_about_the_target() -> None:
    assert [family.name for family in build_target_families([UNTOUCHED])] == ["llm_target_scrape_errors"]


def test_an_optional_target_is_shown_once_it_has_answered() -> None:
    optional = replace(UNTOUCHED, optional=True)
    assert list(build_target_families([optional])) == []
    assert list(build_target_families([replace(optional, answered=True)]))


def test_no_number_is_ever_nan_or_infinite() -> None:
    def wrong(metrics: Metrics) -> list[float]:
        return [value for value in metrics.values() if not abs(value) < float("inf")]

    for recording in ("batch-ramp", "preemption", "restart", "prefill-interference"):
        assert not [bad for _, metrics in replayed(recording) for bad in wrong(metrics)]


def test_no_created_series_are_exported() -> None:
    assert "_created" not in encoded(at("batch-ramp", 60), accept="application/openmetrics-text; version=1.0.0")


ACCEPTED = [
    "",
    "text/plain; version=0.0.4",
    "text/plain; version=1.0.0; escaping=allow-utf-8",
    "application/openmetrics-text; version=1.0.0; escaping=underscores",
    "application/openmetrics-text; version=1.0.0; escaping=allow-utf-8",
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5",
]


def test_names_are_the_same_in_every_format() -> None:
    def names(text: str) -> set[str]:
        return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}

    snapshot = at("batch-ramp", 60)
    for accept in ACCEPTED:
        assert names(encoded(snapshot, accept=accept)) == names(encoded(snapshot)), accept


@needs("promtool")
def test_promtool_finds_nothing_to_say() -> None:
    for recording, time in (("batch-ramp", 60), ("preemption", 60), ("restart", 30)):
        page = encoded(at(recording, time), UNTOUCHED)
        completed = subprocess.run(
            ["promtool", "check", "metrics"], input=page, text=True, capture_output=True, check=False
        )
        assert (completed.returncode, completed.stdout + completed.stderr) == (0, ""), recording


def test_the_number_of_series_of_one_engine_stays_small() -> None:
    for _, metrics in replayed("batch-ramp"):
        assert len(metrics) <= 80
