"""The rows about Ollama's models: labels, absence, reasons from the start, and what promtool thinks of them."""

import subprocess
from dataclasses import replace
from typing import Any, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from phasewatch.metrics.collector import SnapshotCollector, build_target_families
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.metrics.model import MODEL_METRICS
from phasewatch.snapshot.health import Health
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import (
    DiscardReason,
    ProbeReason,
    ProbeRecord,
    SkipReason,
    count_discard,
    count_failure,
    count_skip,
)
from phasewatch.snapshot.target import TargetSnapshot, create_snapshot
from tests.support.ollama_facts import GGUF, WALL, A
from tests.support.pages import Metrics, value
from tests.support.processes import needs
from tests.support.targets import new_target

LABELS: Final = {"target": "o", "backend": "ollama", "model_name": "a:latest"}
RESIDENT: Final = ModelSnapshot(
    "a:latest",
    digest=A,
    details=GGUF,
    loaded=1.0,
    bytes=8e9,
    vram_bytes=6e9,
    gpu_ratio=0.75,
    context_length_tokens=4096,
    expiry=WALL,
    prefill_fixed_seconds=0.004,
)
PROBED: Final = ProbeRecord(
    probes=9, success=True, duration=0.3, last_success=WALL, queue_seconds=0.1, load_seconds=2.5, caused_reloads=1
)

REASONS: Final[dict[str, set[str]]] = {
    "llm_probe_failures_total": {reason.value for reason in ProbeReason},
    "llm_probes_discarded_total": {reason.value for reason in DiscardReason},
    "llm_probes_skipped_total": {reason.value for reason in SkipReason},
}


def of(*models: ModelSnapshot) -> TargetSnapshot:
    target = new_target("o", "ollama", "http://h")
    return replace(create_snapshot(target, Health(answered=True)), up=True, models=models)


def shown(*models: ModelSnapshot) -> Metrics:
    families = build_target_families([of(*models)])
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value for one in families for sample in one.samples
    }


def names(metrics: Metrics) -> set[str]:
    return {name for name, _ in metrics} & {metric.name for metric in MODEL_METRICS}


def test_each_row_shows_its_own_number() -> None:
    for name, number in (
        ("llm_model_loaded", 1),
        ("llm_model_bytes", 8e9),
        ("llm_model_vram_bytes", 6e9),
        ("llm_model_gpu_ratio", 0.75),
        ("llm_model_context_length_tokens", 4096),
        ("llm_model_expiry_timestamp_seconds", WALL),
        ("llm_probe_prefill_fixed_seconds", 0.004),
        ("llm_model_load_duration_seconds", 2.5),
        ("llm_probe_success", 1),
        ("llm_probe_duration_seconds", 0.3),
        ("llm_probe_queue_seconds", 0.1),
        ("llm_probe_last_success_timestamp_seconds", WALL),
        ("llm_probes_total", 9),
        ("llm_probe_caused_reloads_total", 1),
    ):
        metrics = shown(replace(RESIDENT, probe=PROBED))
        assert value(metrics, name) == number, name
        ((_, pairs),) = [key for key in metrics if key[0] == name]
        assert dict(pairs) == LABELS, name


def test_every_row_is_shown_by_a_probed_model_with_just_its_labels() -> None:
    metrics = shown(replace(RESIDENT, probe=PROBED))
    assert names(metrics) == {metric.name for metric in MODEL_METRICS}
    rows = {metric.name: set(metric.labels) for metric in MODEL_METRICS}
    assert all({label for label, _ in pairs} == rows[name] for name, pairs in metrics if name in rows)


def test_an_unknown_fact_about_a_model_has_no_sample() -> None:
    for field, name in (
        ("loaded", "llm_model_loaded"),
        ("bytes", "llm_model_bytes"),
        ("vram_bytes", "llm_model_vram_bytes"),
        ("gpu_ratio", "llm_model_gpu_ratio"),
        ("context_length_tokens", "llm_model_context_length_tokens"),
        ("expiry", "llm_model_expiry_timestamp_seconds"),
        ("prefill_fixed_seconds", "llm_probe_prefill_fixed_seconds"),
    ):
        unknown: dict[str, Any] = {field: None}
        assert names(shown(RESIDENT)) - names(shown(replace(RESIDENT, **unknown))) == {name}, field


def test_a_model_on_disk_is_not_loaded_and_has_nothing_else() -> None:
    metrics = shown(ModelSnapshot("a:latest", digest=A, details=GGUF, loaded=0.0))
    assert names(metrics) == {"llm_model_loaded"}
    assert value(metrics, "llm_model_loaded") == 0


def test_before_its_first_probe_a_model_has_counters_at_0_and_no_figures() -> None:
    metrics = shown(replace(RESIDENT, prefill_fixed_seconds=None, probe=ProbeRecord()))
    probes = {name for name in names(metrics) if "probe" in name}
    assert probes == {"llm_probes_total", "llm_probe_caused_reloads_total", *REASONS}
    assert {number for (name, _), number in metrics.items() if name in probes} == {0.0}
    assert "llm_model_load_duration_seconds" not in names(metrics)


def test_all_reasons_are_there_from_the_start() -> None:
    metrics = shown(replace(RESIDENT, probe=ProbeRecord()))
    for name, reasons in REASONS.items():
        assert {dict(pairs)["reason"] for series, pairs in metrics if series == name} == reasons, name


def test_failures_discards_and_skips_are_counted_by_reason() -> None:
    record = count_failure(ProbeRecord(), ProbeReason.BUSY)
    record = count_discard(count_discard(record, DiscardReason.RELOADED), DiscardReason.RELOADED)
    record = count_skip(record, SkipReason.USERS_GONE)
    metrics = shown(replace(RESIDENT, probe=record))
    counted = {(name, dict(pairs)["reason"]): number for (name, pairs), number in metrics.items() if name in REASONS}
    assert {key: number for key, number in counted.items() if number} == {
        ("llm_probe_failures_total", "busy"): 1,
        ("llm_probes_discarded_total", "reloaded"): 2,
        ("llm_probes_skipped_total", "users_gone"): 1,
    }


def test_a_failed_probe_ends_success_and_a_discarded_one_does_not() -> None:
    answered = ProbeRecord(success=True)
    assert count_failure(answered, ProbeReason.TIMEOUT).success is False
    assert count_discard(answered, DiscardReason.TOO_FEW_TOKENS).success is True
    assert count_skip(answered, SkipReason.BUDGET).success is True


def test_a_failed_probe_is_shown_as_0() -> None:
    record = count_failure(ProbeRecord(), ProbeReason.BUSY)
    assert value(shown(replace(RESIDENT, probe=record)), "llm_probe_success") == 0


def test_the_details_of_a_model_are_labels_of_its_info() -> None:
    metrics = shown(RESIDENT, ModelSnapshot("gone:latest", probe=ProbeRecord()))
    ((_, pairs),) = [key for key in metrics if key[0] == "llm_model_info"]
    assert dict(pairs) == {
        **LABELS,
        "digest": A,
        "quantization": "Q4_K_M",
        "parameter_size": "8.0B",
        "family": "llama",
    }


@needs("promtool")
def test_promtool_finds_nothing_to_say() -> None:
    models = (replace(RESIDENT, probe=PROBED), ModelSnapshot("b:latest", loaded=0.0, probe=ProbeRecord()))
    registry = CollectorRegistry()
    status = SelfStatus("0.1.0", reload_successful=True, reload_success_time=1.7e9, scrapes_missed=0)
    registry.register(SnapshotCollector(lambda: (status, [of(*models)])))
    encode, _ = choose_encoder("")
    page: bytes = encode(registry)
    completed = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (completed.returncode, completed.stdout + completed.stderr) == (0, b"")
