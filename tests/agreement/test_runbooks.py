"""Every alert has a page that says what to do, and what the pages say is true: names, links, words, queries."""

import json
import lzma
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import REGISTRY

from phasewatch.analysis.advice.handbook import select_cause
from phasewatch.analysis.advice.remedy import Advice, Cause, list_words
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN, SLOW_STREAM
from phasewatch.backends.vllm.state_advice import ADVICE
from phasewatch.config.settings import DeviceSettings
from phasewatch.metrics.collector import TABLE
from phasewatch.metrics.exporter import SELF_METRICS
from phasewatch.models.settings import ModelSettings
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import format_json
from tests.support.advice import CALM, VLLM_FLAGS
from tests.support.command_line import COMMANDS, flags_of
from tests.support.documented_targets import CHAT, ollama_samples
from tests.support.markdown import FENCE, anchors, fences, links
from tests.support.model_folders import load_config, write_json
from tests.support.paths import RECORDINGS, ROOT
from tests.support.processes import needs
from tests.support.rule_files import RULES, alerts, promtool, rules

FOLDER: Final = ROOT / "docs" / "runbooks"
RUNBOOKS: Final = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
"""The runbooks by the names of their alerts."""

BASE: Final = "https://github.com/phasewatch/phasewatch/blob/main/docs/runbooks/"
HEADINGS: Final = [
    "What it means",
    "How urgent it is",
    "How to confirm",
    "What to change",
    "What not to do",
    "When it is no problem",
    "Related alerts",
]

SATURATION: Final[Mapping[str, SaturationState]] = {
    "LLMKvCacheFull": SaturationState.KV_CACHE_FULL,
    "LLMPreempting": SaturationState.PREEMPTING,
    "LLMConcurrencyLimited": SaturationState.CONCURRENCY_LIMITED,
    "LLMPrefillLimited": SaturationState.PREFILL_LIMITED,
    "LLMRequestsDeferred": SaturationState.DEFERRED,
    "LLMShedding": SaturationState.SHEDDING,
    "LLMEngineStuck": SaturationState.STUCK,
}
WORDS: Final[Mapping[str, Advice]] = {
    **{name: ADVICE[state] for name, state in SATURATION.items()},
    "LLMInterTokenLatencyHigh": SLOW_STREAM,
    "LLMInterTokenLatencyBudgetBurn": SLOW_STREAM,
    "LLMTimeToFirstTokenBudgetBurn": SLOW_FIRST_TOKEN,
    # One complaint, two alerts: each has the remedies for its own part of the time.
    "LLMTimeToFirstTokenHighQueue": select_cause(SLOW_FIRST_TOKEN, Cause.QUEUE),
    "LLMTimeToFirstTokenHighPrefill": select_cause(SLOW_FIRST_TOKEN, Cause.PREFILL),
    "LLMModelPartlyOnCpu": FINDINGS["partial_offload"],
}
"""Alerts about something that the table of advice knows."""

OTHER_FLAGS: Final = {"--enforce-eager"}
"""Flags of vLLM 0.32 that the table of advice does not name."""

OF_PROMETHEUS: Final[Mapping[str, Mapping[str, str]]] = {
    "ALERTS": {"alertname": "LLMWatchdog", "alertstate": "firing"},
    "prometheus_config_last_reload_successful": {},
    "prometheus_notifications_alertmanagers_discovered": {},
    "prometheus_notifications_errors_total": {"alertmanager": "http://127.0.0.1:9093/api/v2/alerts"},
    "prometheus_rule_group_last_duration_seconds": {"rule_group": "phasewatch-alerts.yml;llm-alerts"},
}
"""What Prometheus 2.42 shows of alerts and of itself."""


OF_RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "phasewatch_threshold_override:token_stall_seconds": {"target": "chat", "model_name": "tiny", "engine": "0"},
    "target_model:phasewatch_threshold:effective": {"threshold": "token_stall_seconds", "target": "chat"},
}
"""What the rules about thresholds, and those of a site, record."""


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0].strip()


def items(text: str) -> list[str]:
    """The items of a list, each on one line."""
    return [" ".join(item.split()) for item in re.findall(r"^- (.+?)(?=\n- |\Z)", text, re.DOTALL | re.MULTILINE)]


@cache
def severities() -> dict[str, set[str]]:
    by_name: dict[str, set[str]] = {}
    for rule in alerts():
        by_name.setdefault(rule["alert"], set()).add(rule["labels"]["severity"])
    return by_name


def queries(text: str) -> list[str]:
    return [line for block in fences(text, "promql") for line in block.splitlines()]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert list(RUNBOOKS) == sorted(severities())


def test_every_runbook_url_leads_to_the_runbook_of_its_alert() -> None:
    urls = [(rule["alert"], rule["annotations"]["runbook_url"]) for rule in alerts()]
    assert [url for _, url in urls] == [f"{BASE}{name}.md" for name, _ in urls]


def test_every_title_is_the_alert_and_the_severities_are_those_of_the_rules() -> None:
    for name, text in RUNBOOKS.items():
        first, _, second, *_ = text.splitlines()
        assert first == f"# {name}"
        line = re.fullmatch(r"severity (\w+(?:, \w+)*) · \[all alerts\]\(\.\./alerts\.md\)", second)
        assert line, name
        assert set(line[1].split(", ")) == severities()[name], name


def test_every_runbook_has_the_same_headings_in_the_same_order_and_none_is_empty() -> None:
    for name, text in RUNBOOKS.items():
        assert re.findall(r"^##+ (.+)$", FENCE.sub("", text), re.MULTILINE) == HEADINGS, name
        assert all(section(text, heading) for heading in HEADINGS), name


def test_no_runbook_says_a_paragraph_twice() -> None:
    for name, text in RUNBOOKS.items():
        paragraphs = text.split("\n\n")
        assert len(paragraphs) == len(set(paragraphs)), name


def test_what_to_change_and_what_not_to_do_are_lists() -> None:
    for name, text in RUNBOOKS.items():
        for heading in ("What to change", "What not to do", "When it is no problem"):
            content = section(text, heading)
            assert content.startswith("- "), (name, heading)
            assert "\n\n" not in content, (name, heading)


def test_every_link_leads_to_a_file_and_a_heading_of_the_repository() -> None:
    for alert in RUNBOOKS:
        for link in links(FOLDER / f"{alert}.md"):
            name, _, anchor = link.partition("#")
            goal = FOLDER / name
            assert goal.is_file(), (alert, link)
            assert not anchor or anchor in anchors(goal), (alert, link)


def test_related_alerts_are_other_alerts() -> None:
    for name, text in RUNBOOKS.items():
        related = re.findall(r"\[(\w+)\]\((\w+)\.md\)", section(text, "Related alerts"))
        assert related, name
        assert all(label == file and label in severities() for label, file in related), name
        assert name not in {label for label, _ in related}


# Words


def test_every_state_that_needs_action_has_an_alert() -> None:
    assert set(SATURATION.values()) == set(SaturationState) - CALM
    assert set(WORDS) <= set(severities())


def test_the_words_are_those_of_the_table_of_advice() -> None:
    for name, advice in WORDS.items():
        text = RUNBOOKS[name]
        assert advice.meaning in section(text, "What it means"), name
        assert items(section(text, "What to change")) == list(list_words(advice.change)), name
        if advice.avoid:
            assert items(section(text, "What not to do")) == list(list_words(advice.avoid)), name


def test_flags_and_metrics_in_the_words_exist() -> None:
    own_flags = {flag for command in COMMANDS for flag in flags_of(command)}
    metrics = {metric.name for metric in TABLE}
    for name, text in RUNBOOKS.items():
        prose = FENCE.sub("", text)
        assert set(re.findall(r"--[a-z][a-z.-]+[a-z]", prose)) <= VLLM_FLAGS | OTHER_FLAGS | own_flags, name
        assert set(re.findall(r"\b(?:llm|phasewatch)_\w+", prose)) <= metrics, name


# Queries

Labels = Mapping[str, str]

RECORDED: Final = {rule["record"] for rule in rules("phasewatch-slo.yml") if "record" in rule}
"""What the rules about budgets record of vLLM's histograms."""

_SELECTOR: Final = re.compile(r"([\w:]*)\{([^}]*)\}")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_NAME: Final = re.compile(r"(?<![\w:.\[\"])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")


@pytest.fixture(scope="module")
def every_series(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Labels]]:
    """Every series that a query may select, of a real vLLM, a simulated Ollama, the exporter and Prometheus."""
    folder = tmp_path_factory.mktemp("model")
    write_json(folder / "config.json", load_config("llama-3.1-8b"))
    target = replace(CHAT, device=DeviceSettings(name="NVIDIA L40S"), model=ModelSettings(path=folder))
    lines = [json.loads(line) for line in format_json(RecordingReader(RECORDINGS / "mfu-metrics.jsonl.xz"), target)]
    vllm = [(metric["name"], metric["labels"]) for line in lines[::10] for metric in line["metrics"]]
    ollama = [(sample.name, sample.labels) for sample in ollama_samples(load=True)]
    own = [(metric.name, dict.fromkeys(metric.labels, "1")) for metric in SELF_METRICS]
    process = [(sample.name, sample.labels) for family in REGISTRY.collect() for sample in family.samples]
    exporter = [*vllm, *ollama, *own, *process, *((name, {}) for name in ("up", "scrape_duration_seconds"))]
    jobs = {"phasewatch": exporter, "vllm": [*vllm_series()], "prometheus": [*OF_PROMETHEUS.items(), *OF_RULES.items()]}
    series = [(name, {**labels, "job": job}) for job, job_series in jobs.items() for name, labels in job_series]
    return list({name + json_labels(labels): (name, labels) for name, labels in series}.values())


def vllm_series() -> Iterator[tuple[str, Labels]]:
    """The series on the page of a vLLM 0.32 that refuses requests, Prometheus 2's spelling of the names included."""
    with lzma.open(RECORDINGS / "shedding.jsonl.xz", "rt", encoding="utf-8") as file:
        *_, last = (scrape["body"] for scrape in map(json.loads, file) if "body" in scrape)
    for name, labels in re.findall(r"^(vllm:\w+)\{(.*)\} ", last, re.MULTILINE):
        yield name, dict(re.findall(r'(\w+)="([^"]*)"', labels))


def names_in(query: str, existing: set[str]) -> set[str]:
    """The metrics that a query speaks of; of a pattern those that it matches."""
    bare = _GROUPING.sub("", _SELECTOR.sub(r"\1", query))
    names = set(_NAME.findall(re.sub(r"\[[^]]*\]", "", bare))) - {"by", "and", "or", "unless", "bool"}
    for pattern in re.findall(r'__name__=~"([^"]+)"', query):
        matched = {name for name in existing if re.fullmatch(pattern, name)}
        names |= matched or {pattern}
    return names


def labels_in(query: str) -> set[str]:
    matchers = {label for _, inside in _SELECTOR.findall(query) for label in re.findall(r"(\w+)\s*(?:=|!)", inside)}
    groups = {label.strip() for inside in _GROUPING.findall(query) for label in inside.split(",")}
    return (matchers | groups) - {"__name__"}


def test_every_alert_is_confirmed_by_two_to_five_queries_which_stand_nowhere_else() -> None:
    for name, text in RUNBOOKS.items():
        assert 2 <= len(queries(text)) <= 5, name
        assert len(fences(section(text, "How to confirm"), "promql")) == len(queries(text)), name


def test_every_query_uses_metrics_and_labels_that_exist(every_series: list[tuple[str, Labels]]) -> None:
    existing = {name for name, _ in every_series} | RECORDED
    for text in RUNBOOKS.values():
        for query in queries(text):
            names = names_in(query, existing)
            assert names, query
            assert names <= existing, query
            allowed = {label for name, labels in every_series if name in names for label in labels}
            assert labels_in(query) <= allowed | {"instance"}, query


@needs("promtool")
def test_every_query_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"runbook:{name}:{number}", "expr": query}
        for name, text in RUNBOOKS.items()
        for number, query in enumerate(queries(text))
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "runbooks", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


@needs("promtool")
def test_every_query_finds_something_if_its_series_exist(
    tmp_path: Path, every_series: list[tuple[str, Labels]]
) -> None:
    # Of three exporters, one shows nothing but 0 and one nothing but 1, so that each comparison holds for one of them.
    values = {"zero": "0x130", "one": "1x130", "many": "2+1x130"}
    series = [
        {"series": f"{name}{json_labels({**labels, 'instance': instance})}", "values": written}
        for name, labels in every_series
        for instance, written in values.items()
    ]
    expected = [{"labels": "{}", "value": 1}]
    tests = [
        {
            "expr": f"count({query}) > bool 0",
            "eval_time": "2h",
            "exp_samples": [] if query.startswith("absent(") else expected,
        }
        for text in RUNBOOKS.values()
        for query in queries(text)
    ]
    whole: dict[str, Any] = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    file = {"rule_files": [str(RULES / "phasewatch-slo.yml")], "evaluation_interval": "1m", "tests": [whole]}
    (tmp_path / "tests.yml").write_text(json.dumps(file))
    promtool("test", "rules", tmp_path / "tests.yml")


def json_labels(labels: Labels) -> str:
    return "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"
