"""End to end: the exporter sees a recording, Prometheus evaluates the shipped rules, Alertmanager tells people."""

import contextlib
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.alert_stack import NOWHERE, Webhook, alertmanager, prometheus, uncommented
from tests.support.fakes import Exporter
from tests.support.pages import bodies
from tests.support.paths import ALERTS
from tests.support.processes import eventually, get_json, needs
from tests.support.servers import RecordedServer

FACTOR: Final = 120
"""What the rules wait for is divided by this; the recording plays in real time."""

SATURATED: Final = 27.0
"""From this second of seq-limit on, and for a minute, 4 requests run and up to 20 wait."""

EXPORTER: Final = """
interval: 1s
targets:
  - name: chat
    backend: vllm
    url: {url}
"""

# The queue stands, but within seconds instead of minutes its smallest wave is steep.
SITE: Final = {
    "groups": [
        {
            "name": "site-thresholds",
            "rules": [
                {
                    "record": "phasewatch_threshold_override:requests_waiting_growth_per_second",
                    "expr": "vector(+Inf)",
                    "labels": {"target": "chat"},
                }
            ],
        }
    ]
}


def notified_at(webhook: Webhook, folder: Path) -> dict[str, Any]:
    """The shipped configuration with addresses on loopback; tickets go to Slack as well, as in the example."""
    secret = folder / "slack"
    secret.write_text(f"{webhook.url}/slack")
    text = uncommented((ALERTS / "alertmanager.yml").read_text()).replace("/etc/alertmanager/secrets", str(folder))
    config: dict[str, Any] = yaml.safe_load(text.replace(NOWHERE, webhook.url))
    for receiver in config["receivers"]:
        for outside in ("pagerduty_configs", "email_configs"):
            receiver.pop(outside, None)
    return config


@needs("prometheus-alertmanager")
@needs("prometheus")
def test_a_recorded_saturation_reaches_people_once_with_its_words_and_its_runbook(tmp_path: Path) -> None:
    pages = [(moment - SATURATED, body) for moment, body in bodies("seq-limit") if moment >= SATURATED]
    server = RecordedServer([(0.0, pages[0][1]), *pages])
    file = tmp_path / "phasewatch.yml"
    file.write_text(EXPORTER.format(url=server.url))
    with contextlib.ExitStack() as stack:
        webhook = stack.enter_context(Webhook())
        manager = stack.enter_context(alertmanager(notified_at(webhook, tmp_path), tmp_path, factor=FACTOR))
        with server.playing():
            exporter = stack.enter_context(Exporter("--config.file", str(file)))
            stack.enter_context(prometheus(exporter.url, manager, tmp_path, site=SITE, factor=FACTOR, interval="250ms"))
            ticket = eventually(lambda: told(webhook, "/ticket", "LLMConcurrencyLimited"), "the ticket")
            symptom = eventually(lambda: silenced(manager, "LLMTimeToFirstTokenHighQueue"), "the symptom is silenced")
        page = eventually(lambda: told(webhook, "/page", "LLMTargetDown"), "the page")
        eventually(lambda: len(webhook.bodies("/watchdog")) > 1, "the watchdog again")
        (slack, *_) = eventually(lambda: webhook.bodies("/slack"), "the message")
    place = {"target": "chat", "backend": "vllm", "model_name": "tiny", "engine": "0"}
    assert {**place, "severity": "warning", "component": "phasewatch"}.items() <= ticket["labels"].items()
    assert place.items() <= symptom["labels"].items()
    assert {"target": "chat", "severity": "critical"}.items() <= page["labels"].items()
    assert names(webhook, "/watchdog") == {"LLMWatchdog"}
    assert names(webhook, "/ticket") == {"LLMConcurrencyLimited"}
    # Prometheus begins to scrape five seconds after its start, and LLMExporterAbsent waits for less here.
    assert names(webhook, "/page") - {"LLMExporterAbsent"} == {"LLMTargetDown"}
    assert ticket["annotations"]["runbook_url"].endswith("/docs/runbooks/LLMConcurrencyLimited.md")
    (message,) = slack["attachments"]
    assert message["title"] == "[WARNING] LLMConcurrencyLimited on chat, tiny"
    assert message["title_link"] == ticket["annotations"]["runbook_url"]
    for said in (ticket["annotations"]["summary"], ticket["annotations"]["description"], "--max-num-seqs"):
        assert said in message["text"]
    assert f"Dashboard: http://localhost:3000{ticket['annotations']['dashboard']}" in message["text"]


def names(webhook: Webhook, path: str) -> set[str]:
    """Of the alerts that came to a path."""
    return {alert["labels"]["alertname"] for alert in webhook.alerts(path)}


def told(webhook: Webhook, path: str, name: str) -> dict[str, Any] | None:
    """The first alert of a name that came to a path."""
    return next((alert for alert in webhook.alerts(path) if alert["labels"]["alertname"] == name), None)


def silenced(manager: str, name: str) -> dict[str, Any] | None:
    """An alert of a name that Alertmanager holds back for another."""
    found = get_json(f"{manager}/api/v2/alerts?active=false&silenced=false")
    return next((one for one in found if one["labels"]["alertname"] == name and one["status"]["inhibitedBy"]), None)
