"""The table and the families: names, absence, labels, and what promtool and Prometheus think of them."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace

from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from phasewatch.analysis.samples import EngineKey
from phasewatch.backends.page_state import PageState, build_snapshot
from phasewatch.base.errors import Reason
from phasewatch.demo.common.workload import Workload
from phasewatch.metrics.collector import ENGINE_METRICS, TABLE, SnapshotCollector, build_target_families
from phasewatch.metrics.descriptor import Metric, SelfStatus
from phasewatch.metrics.engine import LATENCY_METRICS, LOAD_METRICS, PHASE_METRICS
from phasewatch.metrics.requests import REQUEST_METRICS, SERVER_REQUEST_METRICS
from phasewatch.metrics.target import TARGET_METRICS
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.target import TargetSnapshot
from tests.support.pages import Metrics, replayed, value
from tests.support.paths import RECORDINGS
from tests.support.processes import needs
from tests.support.simulated_vllm import build_target, scrape, simulate
from tests.support.targets import new_target

TARGET = new_target("chat", "vllm", "http://a.invalid")
STATUS = SelfStatus("0.1.0", reload_successful=True, reload_success_time=1.7e9, scrapes_missed=3)
UNTOUCHED = build_snapshot(PageState(), TARGET)
ROWS = {metric.name: metric for metric in TABLE}
SUMMARIES = {name: metric for name, metric in ROWS.items() if metric.kind == "summary"}


OF_OLLAMA = {"digest", "quantization", "parameter_size", "family"}
"""Labels of llm_model_info that vLLM has nothing for."""

Labels = tuple[tuple[str, str], ...]


def at(name: str, time: float) -> TargetSnapshot:
    snapshots = replay(RecordingReader(RECORDINGS / f"{name}.jsonl.xz"), TARGET)
    return next(snapshot for t, snapshot in snapshots if t >= time)


def find_row(name: str) -> Metric:
    """The metric that a sample belongs to: that of its name, or the summary of which it is `_sum` or `_count`."""
    return ROWS.get(name) or SUMMARIES[re.sub(r"_(sum|count)$", "", name)]


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
                metric = find_row(name)
                part = set() if name == metric.name else {"quantile"}  # which _sum and _count do not have
                expected = set(metric.labels) - OF_OLLAMA - part
                assert {label for label, _ in labels} == expected, (recording, name)


def test_every_metric_that_needs_no_facts_is_shown_by_some_recording() -> None:
    seen = {
        name
        for recording in ("batch-ramp", "preemption", "speculative")
        for _, metrics in replayed(recording)
        for name, _ in metrics
    }
    of_engines = (*PHASE_METRICS, *LATENCY_METRICS, *LOAD_METRICS, *REQUEST_METRICS)
    without_facts = (*TARGET_METRICS, *SERVER_REQUEST_METRICS, *of_engines)
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


def test_the_source_of_the_figures_is_1_the_other_0_and_neither_is_there_without_figures() -> None:
    for now, expected in (
        (MeasurementSource.TRAFFIC, {"traffic": 1.0, "probe": 0.0}),
        (MeasurementSource.PROBE, {"traffic": 0.0, "probe": 1.0}),
        (None, {}),
    ):
        engine = EngineSnapshot(EngineKey("m", None), measurement_source=now)
        families = build_target_families([replace(UNTOUCHED, answered=True, engines=(engine,))])
        samples = [sample for family in families for sample in family.samples if "measurement" in sample.name]
        assert {sample.labels["source"]: sample.value for sample in samples} == expected, now


def test_no_number_is_ever_nan_or_infinite() -> None:
    def wrong(metrics: Metrics) -> list[float]:
        return [value for value in metrics.values() if not abs(value) < float("inf")]

    for recording in ("batch-ramp", "preemption", "restart", "prefill-interference"):
        assert not [bad for _, metrics in replayed(recording) for bad in wrong(metrics)]


def find_summaries(series: Iterable[tuple[str, Labels]]) -> dict[str, dict[Labels, set[str]]]:
    """The parts of each summary: quantile, _sum, _count, by its name and its labels without the quantile."""
    found: dict[str, dict[Labels, set[str]]] = {}
    for name, labels in series:
        metric = find_row(name)
        if metric.kind == "summary":
            scope = tuple(pair for pair in labels if pair[0] != "quantile")
            part = name.removeprefix(metric.name) or "quantile"
            found.setdefault(metric.name, {}).setdefault(scope, set()).add(part)
    return found


def test_every_summary_with_samples_has_a_count_and_a_sum() -> None:
    # The receiver of the OpenTelemetry Collector drops a summary without a count.
    for recording in ("batch-ramp", "data-parallel", "disaggregated-decode", "vllm-0.12.0"):
        for time, metrics in replayed(recording):
            found = find_summaries(metrics)
            assert all({"_sum", "_count"} <= parts for scopes in found.values() for parts in scopes.values())
            if any(name == "llm_requests_running" for name, _ in metrics):
                assert found.keys() == SUMMARIES.keys(), (recording, time)


def test_every_summary_of_a_simulated_server_has_all_its_parts() -> None:
    server = simulate(Workload(users=8, prompt=(200, 900), output=(20, 60), max_tokens=60))
    *_, (_, engine) = scrape(server, build_target(), iter((1.0, 20.0)))
    families = build_target_families([replace(UNTOUCHED, answered=True, up=True, engines=(engine,))])
    found = find_summaries((s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples)
    assert found.keys() == SUMMARIES.keys()
    whole = {"quantile", "_sum", "_count"}
    assert all(parts == whole for scopes in found.values() for parts in scopes.values())


def test_totals_of_a_summary_go_on_while_its_window_is_empty() -> None:
    quiet = 0
    for _, metrics in replayed("disaggregated-decode", window=5):
        count, total = (value(metrics, f"llm_request_latency_seconds_{part}") for part in ("count", "sum"))
        if count and not any(name == "llm_request_latency_seconds" for name, _ in metrics):
            assert total is not None
            assert total > 0
            quiet += 1
    assert quiet > 5


def test_an_openmetrics_parser_accepts_every_page() -> None:
    # It requires that all samples of one label set are adjacent.
    for recording, time in (("batch-ramp", 60), ("data-parallel", 60), ("shedding", 60), ("speculative", 50)):
        page = encoded(at(recording, time), accept="application/openmetrics-text; version=1.0.0")
        families = openmetrics_parser.text_string_to_metric_families(page)  # type: ignore[no-untyped-call]
        kinds = {family.name: family.type for family in families}
        assert {name for name, kind in kinds.items() if kind == "summary"} == SUMMARIES.keys(), recording


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
        assert len(metrics) <= 130
