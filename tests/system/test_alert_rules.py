"""The alert rules: valid, and tested to the minute."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from alerts.generate import slo
from alerts.generate.thresholds import THRESHOLDS, read_thresholds
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.vllm.metric_names import PREFIXES
from phasewatch.metrics.collector import TABLE
from tests.support.paths import ALERTS
from tests.support.processes import needs
from tests.support.rule_files import RULES, alerts, groups, promtool, rules

RUNBOOKS: Final = "https://github.com/phasewatch/phasewatch/blob/main/docs/runbooks/"
DASHBOARDS: Final = ("overview", "phases", "saturation", "ollama", "slo", "exporter")
TESTS: Final = sorted((ALERTS / "tests").glob("*.yml"))
VLLM: Final = re.compile(rf"(?:{'|'.join(PREFIXES)})(?:{'|'.join(slo.BOUNDS)})_(?:bucket|count)")

ALERT_RULES: Final = [pytest.param(rule, id=f"{rule['alert']}-{rule['labels']['severity']}") for rule in alerts()]


@needs("promtool")
def test_promtool_finds_nothing_to_say_about_the_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES.glob("*.yml"), RULES / "site.yml.example")


@needs("promtool")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_alerts_fire_and_stay_silent_as_their_tests_say(path: Path) -> None:
    promtool("test", "rules", path)


def test_every_alert_has_a_case_that_fires_and_one_in_which_it_is_still_silent() -> None:
    cases = [
        (case["alertname"], bool(case["exp_alerts"]))
        for path in TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
    ]
    names = {rule["alert"] for rule in alerts()}
    assert {name for name, fires in cases if fires} == names
    assert {name for name, fires in cases if not fires} == names - {"LLMWatchdog"}


def test_an_alert_of_one_name_has_one_runbook_and_each_tier_another_label() -> None:
    identities = [(rule["alert"], *sorted(rule["labels"].items())) for rule in alerts()]
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("rule", ALERT_RULES)
def test_every_alert_says_who_is_meant_what_is_wrong_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"LLM[A-Z][A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["labels"]["component"] == "phasewatch"
    assert not any("{{" in value for value in rule["labels"].values()), "an alert whose labels change begins anew"
    annotations = rule["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook_url", "dashboard"}
    assert re.fullmatch(r"[A-Z][^{}]*\.", annotations["summary"])
    assert annotations["description"].endswith((".", "{{ end }}"))
    assert annotations["runbook_url"] == f"{RUNBOOKS}{rule['alert']}.md"
    path, _, variables = annotations["dashboard"].partition("?")
    assert path.removeprefix("/d/phasewatch-") in DASHBOARDS
    assert re.sub(r"\{\{ with .*?\}\}|\{\{ end \}\}", "", variables) == "&".join(
        f"var-{name}={{{{ {value} | urlquery }}}}"
        for name, value in re.findall(r"var-(\w+)=\{\{ (\S+) \| urlquery \}\}", variables)
    )


@pytest.mark.parametrize("rule", ALERT_RULES)
def test_no_alert_comes_of_less_than_two_scrapes(rule: dict[str, Any]) -> None:
    if rule["alert"] != "LLMWatchdog":
        assert seconds(rule["for"]) >= 2 * 15
    assert seconds(rule.get("keep_firing_for", "5m")) >= 2 * 15


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def names_in(expression: str) -> set[str]:
    """Words of an expression that look like a metric's name. Strings are left out, but for patterns of names."""
    patterns = re.findall(r'__name__=~"([^"]*)"', expression)
    bare = re.sub(r'"[^"]*"', "", re.sub(r"(?:on|by|without|ignoring) \([^)]*\)", "", expression))
    return set(
        re.findall(r"\b\w*(?:[:]\w+)+|\b(?:llm|phasewatch|vllm|ray_vllm)_\w+|\bup\b", " ".join([bare, *patterns]))
    )


def test_every_metric_that_a_rule_reads_exists() -> None:
    existing = {metric.name for metric in TABLE} | {"up"} | {rule["record"] for rule in rules() if "record" in rule}
    overrides = {
        name.replace("phasewatch_threshold:", "phasewatch_threshold_override:")
        for name in existing
        if name.startswith("phasewatch_threshold:")
    }
    read = {name for rule in rules() for name in names_in(rule["expr"]) if not VLLM.fullmatch(name)}
    assert read - existing == overrides | {"phasewatch_threshold_override"}
    assert len(read) > 60


def test_every_metric_that_a_description_asks_for_exists() -> None:
    asked = {
        name
        for rule in alerts()
        for call in re.findall(r'printf "(.*?)"', rule["annotations"]["description"])
        for name in re.findall(r"\b(?:\w+:)?llm_\w+(?::\w+)?", call)
    }
    assert asked == {
        "llm_saturation_state",
        "llm_probe_failures_total",
        "llm_target_scrape_errors_total",
        "llm_preemptions_per_second",
        "llm_prefill_throughput_tokens_per_second",
        "llm_decode_throughput_tokens_per_second",
        "llm_inter_token_latency_seconds",
        "llm_inter_token_latency_mean_seconds",
        "llm_context_tokens",
        "llm_decode_streams",
        "llm_queue_time_mean_seconds",
        "llm_prefill_time_mean_seconds",
        "target_model_engine:llm_outputs:increase1m",
    }
    assert asked <= {metric.name for metric in TABLE} | {rule["record"] for rule in rules() if "record" in rule}


def test_every_state_that_a_rule_names_exists() -> None:
    text = (RULES / "phasewatch-alerts.yml").read_text()
    named = set(re.findall(r'state="(\w+)"|Labels\.state "(\w+)"', text))
    assert {one or other for one, other in named} == {state.value for state in SaturationState} - {"idle", "healthy"}


def test_no_rule_hangs_on_how_a_version_writes_a_number_in_a_label() -> None:
    text = "".join(path.read_text() for path in RULES.glob("*.yml"))
    assert not re.search(r'[{ ,]le="', text)
    assert set(re.findall(r'quantile="([^"]+)"', text)) == {"0.5", "0.95", "0.99"}


def thresholds() -> list[str]:
    return [threshold.name for threshold in read_thresholds(THRESHOLDS)]


def test_every_threshold_is_used_and_every_one_that_is_used_exists() -> None:
    used = {name for rule in rules() for name in re.findall(r'\{threshold="(\w+)"', rule["expr"])}
    assert used == set(thresholds())


def test_every_threshold_is_explained_above() -> None:
    text = (RULES / "phasewatch-thresholds.yml").read_text()
    explained = re.findall(r"^      # [^\n]+\n      - record: phasewatch_threshold:(\w+)$", text, re.MULTILINE)
    assert explained == thresholds()


def test_the_example_of_a_site_overrides_what_exists() -> None:
    (group,) = groups(RULES / "site.yml.example")
    named = {rule["record"].removeprefix("phasewatch_threshold_override:") for rule in group["rules"]}
    assert named <= set(thresholds())


GOOD: Final = (
    "{name: first_token, title: x, histograms: [time_to_first_token_seconds], seconds: 5, objective: 0.95, minimum: 9}"
)


@needs("promtool")
def test_an_objective_without_words_of_its_own_gives_valid_rules(tmp_path: Path) -> None:
    path = tmp_path / "objectives.yml"
    path.write_text(f"objectives: [{GOOD}]")
    (tmp_path / "rules.yml").write_text(slo.render_rules(slo.read_objectives(path)))
    assert "18 rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yml")
