"""Who is told what: the shipped Alertmanager configuration, checked by its own tools and by a real Alertmanager."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.alert_stack import alertmanager, uncommented
from tests.support.paths import ALERTS
from tests.support.processes import get_json, needs
from tests.support.rule_files import alerts as shipped_alerts

Labels = Mapping[str, str]

CONFIG: Final = ALERTS / "alertmanager.yml"
SEVERITIES: Final = {"critical": "page", "warning": "ticket", "info": "watchdog"}
RUNBOOK: Final = "https://example.org/LLMEngineStuck.md"

HERE: Final = {"job": "phasewatch", "instance": "phasewatch:10061"}
CHAT: Final = {**HERE, "target": "chat", "backend": "vllm"}
ENGINE: Final = {**CHAT, "model_name": "tiny", "engine": "0"}
MODEL: Final = {**CHAT, "model_name": "tiny"}
OTHER_ENGINE: Final = {**ENGINE, "engine": "1"}
VLLM: Final = {"job": "vllm", "instance": "vllm:8000", "target": "chat", "model_name": "tiny", "engine": "0"}


def amtool(*words: str | Path) -> str:
    """What amtool says; fails with its complaint."""
    done = subprocess.run(["amtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shipped_config(text: str | None = None) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text() if text is None else text)
    return config


def routed(config: Path, labels: Labels) -> str:
    return amtool(
        "config", "routes", "test", f"--config.file={config}", *(f"{k}={v}" for k, v in labels.items())
    ).strip()


@needs("amtool")
def test_amtool_accepts_the_shipped_configuration() -> None:
    said = amtool("check-config", CONFIG)
    assert "3 receivers" in said
    assert "1 templates" in said


@needs("promtool")
@pytest.mark.parametrize("read", [str, uncommented])
def test_promtool_accepts_the_shipped_prometheus_configuration_with_and_without_vllm(read: Any, tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(read((ALERTS / "prometheus.yml").read_text()))
    (tmp_path / "rules").symlink_to(ALERTS / "rules")
    subprocess.run(["promtool", "check", "config", file], check=True, capture_output=True)
    jobs = {job["job_name"] for job in yaml.safe_load(file.read_text())["scrape_configs"]}
    assert jobs == {"phasewatch", "prometheus"} | ({"vllm"} if read is uncommented else set())


@needs("amtool")
def test_the_examples_of_receivers_are_right_once_they_are_no_comments(tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(uncommented(CONFIG.read_text()))
    (tmp_path / "templates").symlink_to(ALERTS / "templates")
    amtool("check-config", file)
    kinds = {kind for receiver in shipped_config(file.read_text())["receivers"] for kind in receiver} - {"name"}
    assert kinds == {"webhook_configs", "slack_configs", "email_configs", "pagerduty_configs"}


@needs("amtool")
@pytest.mark.parametrize(("severity", "receiver"), [*SEVERITIES.items(), ("none", "ticket")])
def test_each_severity_has_its_receiver_and_an_unknown_one_is_a_ticket(severity: str, receiver: str) -> None:
    assert routed(CONFIG, {"alertname": "LLMAny", "severity": severity}) == receiver


def test_each_shipped_alert_has_a_severity_with_a_route() -> None:
    assert {alert["labels"]["severity"] for alert in shipped_alerts()} == SEVERITIES.keys()


def test_only_the_watchdog_comes_to_the_dead_mans_switch() -> None:
    quiet = {alert["alert"] for alert in shipped_alerts() if alert["labels"]["severity"] == "info"}
    assert quiet == {"LLMWatchdog"}


def test_each_name_in_an_inhibition_is_that_of_a_shipped_alert() -> None:
    names = {alert["alert"] for alert in shipped_alerts()}
    matchers = [
        matcher
        for rule in shipped_config()["inhibit_rules"]
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
        if matcher.startswith("alertname")
    ]
    patterns = [pattern for matcher in matchers for pattern in matcher.split('"')[1].split("|")]
    assert len(patterns) > 20
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)] == []


def alert(name: str, labels: Labels, **changed: Any) -> dict[str, Any]:
    """An alert as templates get it."""
    annotations = {
        "summary": "The engine does nothing.",
        "description": "chat has 2 requests waiting.",
        "runbook_url": RUNBOOK,
        "dashboard": "/d/phasewatch-overview?var-target=chat",
    }
    return {
        "status": "firing",
        "labels": {"alertname": name, "severity": "critical", **labels},
        "annotations": annotations,
        "startsAt": "2026-11-29T16:40:11Z",
        **changed,
    }


def common(alerts: list[dict[str, Any]], key: str) -> dict[str, str]:
    pairs = [set(one[key].items()) for one in alerts]
    return dict(set.intersection(*pairs))


def rendered(template: str, folder: Path, *alerts: dict[str, Any]) -> str:
    """A message about a group, as amtool renders it with the shipped templates."""
    firing = any(one["status"] == "firing" for one in alerts)
    data = {
        "status": "firing" if firing else "resolved",
        "alerts": alerts,
        "commonLabels": common(list(alerts), "labels"),
        "commonAnnotations": common(list(alerts), "annotations"),
    }
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    templates = f"--template.glob={ALERTS / 'templates' / '*.tmpl'}"
    text = f'--template.text={{{{ template "{template}" . }}}}'
    return amtool("template", "render", templates, text, f"--template.data={file}")


@needs("amtool")
def test_a_title_tells_how_bad_what_and_where(tmp_path: Path) -> None:
    one, other = alert("LLMEngineStuck", ENGINE), alert("LLMEngineStuck", OTHER_ENGINE)
    title = "phasewatch.title"
    assert rendered(title, tmp_path, one) == "[CRITICAL] LLMEngineStuck on chat, tiny"
    assert rendered(title, tmp_path, alert("LLMTargetDown", CHAT)) == "[CRITICAL] LLMTargetDown on chat"
    over = {**other, "status": "resolved"}
    assert rendered(title, tmp_path, one, over) == "[CRITICAL] LLMEngineStuck on chat, tiny (1 firing, 1 resolved)"
    assert rendered(title, tmp_path, over) == "[RESOLVED] LLMEngineStuck on chat, tiny"
    foreign = {**one, "labels": {"alertname": "DiskFull"}}
    assert rendered(title, tmp_path, foreign) == "[FIRING] DiskFull"


@needs("amtool")
def test_a_text_has_words_place_time_dashboard_and_the_runbook_once(tmp_path: Path) -> None:
    over = alert("LLMEngineStuck", OTHER_ENGINE, status="resolved")
    foreign = {"status": "firing", "labels": {"alertname": "DiskFull"}, "annotations": {}, "startsAt": over["startsAt"]}
    assert rendered("phasewatch.text", tmp_path, alert("LLMEngineStuck", ENGINE), over) == (
        "The engine does nothing.\n"
        "chat has 2 requests waiting.\n"
        "Target: chat\n"
        "Model: tiny\n"
        "Engine: 0\n"
        "Seen by: phasewatch:10061\n"
        "Since: 2026-11-29 16:40:11 UTC\n"
        "Dashboard: http://localhost:3000/d/phasewatch-overview?var-target=chat\n"
        "\n"
        "Resolved: The engine does nothing.\n"
        "chat has 2 requests waiting.\n"
        "Target: chat\n"
        "Model: tiny\n"
        "Engine: 1\n"
        "Seen by: phasewatch:10061\n"
        "Since: 2026-11-29 16:40:11 UTC\n"
        "Dashboard: http://localhost:3000/d/phasewatch-overview?var-target=chat\n"
        "\n"
        f"Runbook: {RUNBOOK}\n"
    )
    assert rendered("phasewatch.text", tmp_path, foreign) == "DiskFull\nSince: 2026-11-29 16:40:11 UTC\n\n"


def post(manager: str, *alerts: Labels) -> None:
    body = json.dumps([{"labels": labels} for labels in alerts]).encode()
    request = urllib.request.Request(  # noqa: S310  # loopback
        f"{manager}/api/v2/alerts", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  # loopback
        assert answer.status == 200


STATES: Final = ["LLMKvCacheFull", "LLMPreempting", "LLMConcurrencyLimited", "LLMPrefillLimited", "LLMRequestsDeferred"]
"""Tickets of states in which requests wait; LLMShedding is one too."""

SILENCED: Final = [
    # What fires, where, and what it silences where.
    ("LLMExporterDown", HERE, "LLMTargetDown", CHAT),
    ("LLMExporterDown", HERE, "LLMKvCacheFull", ENGINE),
    ("LLMTargetDown", CHAT, "LLMCollectionStale", CHAT),
    ("LLMTargetDown", CHAT, "LLMEngineStuck", ENGINE),
    ("LLMTargetDown", CHAT, "LLMTimeToFirstTokenHighPrefill", OTHER_ENGINE),
    ("LLMTargetDown", CHAT, "LLMTimeToFirstTokenBudgetBurn", VLLM),
    ("LLMEngineStuck", ENGINE, "LLMTokenStall", ENGINE),
    ("LLMEngineStuck", ENGINE, "LLMWaitingQueueGrowing", ENGINE),
    ("LLMEngineStuck", ENGINE, "LLMRequestsDeferred", ENGINE),
    ("LLMEngineStuck", MODEL, "LLMTimeToFirstTokenBudgetBurn", VLLM),
    ("LLMTokenStall", MODEL, "LLMInterTokenLatencyBudgetBurn", VLLM),
    ("LLMWaitingQueueGrowing", MODEL, "LLMTimeToFirstTokenBudgetBurn", VLLM),
    ("LLMInterTokenLatencyHigh", MODEL, "LLMInterTokenLatencyBudgetBurn", VLLM),
    ("LLMTokenStall", ENGINE, "LLMWaitingQueueGrowing", ENGINE),
    ("LLMTokenStall", ENGINE, "LLMInterTokenLatencyHigh", ENGINE),
    ("LLMTokenStall", ENGINE, "LLMTimeToFirstTokenHighPrefill", ENGINE),
    ("LLMTokenStall", ENGINE, "LLMDecodeBelowBaseline", ENGINE),
    ("LLMTokenStall", ENGINE, "LLMRequestsDeferred", ENGINE),
    *(("LLMWaitingQueueGrowing", ENGINE, state, ENGINE) for state in (*STATES, "LLMShedding")),
    ("LLMWaitingQueueGrowing", ENGINE, "LLMTimeToFirstTokenHighQueue", ENGINE),
    *((state, ENGINE, "LLMTimeToFirstTokenHighQueue", ENGINE) for state in (*STATES, "LLMShedding")),
    ("LLMInterTokenLatencyHigh", ENGINE, "LLMDecodeBelowBaseline", ENGINE),
    ("LLMMemoryBandwidthDropped", ENGINE, "LLMDecodeBelowCeiling", ENGINE),
    ("LLMDecodeBelowBaseline", ENGINE, "LLMDecodeBelowCeiling", ENGINE),
    ("LLMModelPartlyOnCpu", MODEL, "LLMDecodeBelowCeiling", MODEL),
    ("LLMProbeCausedReload", CHAT, "LLMColdLoadsFrequent", MODEL),
    ("LLMTimeToFirstTokenBudgetBurn", VLLM, "LLMTimeToFirstTokenBudgetBurn", VLLM),
]

TOLD: Final = [
    # Each symptom of above, but in another place: one label that both alerts have has another value.
    *(
        (cause, where, symptom, {**there, label: "other"})
        for cause, where, symptom, there in SILENCED
        for label in where.keys() - {"backend"}
        if there.get(label) == where[label]
    ),
    # What a cause does not explain, and a symptom does not silence its cause.
    ("LLMExporterDown", HERE, "LLMWatchdog", {}),
    ("LLMTargetDown", CHAT, "LLMExporterDown", HERE),
    ("LLMEngineStuck", ENGINE, "LLMTargetDown", CHAT),
    ("LLMKvCacheFull", ENGINE, "LLMWaitingQueueGrowing", ENGINE),
    ("LLMKvCacheFull", ENGINE, "LLMPreempting", ENGINE),
    ("LLMWaitingQueueGrowing", ENGINE, "LLMTimeToFirstTokenHighPrefill", ENGINE),
    ("LLMInterTokenLatencyHigh", ENGINE, "LLMMemoryBandwidthDropped", ENGINE),
    ("LLMDecodeBelowCeiling", ENGINE, "LLMDecodeBelowBaseline", ENGINE),
    ("LLMExporterDown", HERE, "LLMTimeToFirstTokenBudgetBurn", VLLM),
    ("LLMTimeToFirstTokenBudgetBurn", VLLM, "LLMInterTokenLatencyBudgetBurn", VLLM),
]


@cache
def severities(name: str) -> list[str]:
    """Those of a shipped alert, the worst first."""
    shipped = {one["labels"]["severity"] for one in shipped_alerts() if one["alert"] == name}
    return [severity for severity in SEVERITIES if severity in shipped]


def moved(labels: Labels, case: int) -> dict[str, str]:
    """The labels in a place of the case's own, so that cases do not silence each other's alerts."""
    return {name: f"{value}-{case}" if name in {"job", "target"} else value for name, value in labels.items()}


@needs("prometheus-alertmanager")
def test_a_cause_silences_its_symptoms_in_the_same_place_and_nothing_else(tmp_path: Path) -> None:
    cases = (*SILENCED, *TOLD)
    symptoms = []
    with alertmanager(shipped_config(), tmp_path, factor=1) as address:
        for number, (cause, where, symptom, there) in enumerate(cases):
            symptoms.append({**moved(there, number), **told_as(symptom, severities(symptom)[-1])})
            post(address, {**moved(where, number), **told_as(cause, severities(cause)[0])}, symptoms[-1])
        statuses = {frozenset(one["labels"].items()): one["status"] for one in get_json(f"{address}/api/v2/alerts")}
    held_back = [
        case for case, labels in zip(cases, symptoms, strict=True) if statuses[frozenset(labels.items())]["inhibitedBy"]
    ]
    assert held_back == SILENCED


def told_as(name: str, severity: str) -> dict[str, str]:
    return {"alertname": name, "severity": severity, "component": "phasewatch"}
