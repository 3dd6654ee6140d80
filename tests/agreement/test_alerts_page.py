"""What the page about alerts says is what the files in alerts/ do, in both directions."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from alerts.generate.thresholds import find_thresholds, group_users
from tests.support.markdown import code, every_code, fences, page, tables
from tests.support.paths import ROOT
from tests.support.processes import free_port, needs
from tests.support.rule_files import RULES, alerts, rules

PAGE: Final = page("docs/alerts.md")
ALERTS: Final = ROOT / "alerts"
EFFECTIVE: Final = "target_model:phasewatch_threshold:effective"
ALL: Final = "every other one"
"""How the page says that an alert silences whatever else the pack has."""


def rows(*head: str) -> list[list[str]]:
    lines = [cells for _, cells in tables(PAGE, *head)]
    assert lines, head
    return lines


@cache
def names() -> list[str]:
    return list(dict.fromkeys(rule["alert"] for rule in alerts()))


def promtool(folder: Path, *words: str | Path) -> None:
    ran = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_file_is_listed_and_nothing_else_is() -> None:
    own = [path for path in ALERTS.rglob("*") if path.is_file() and path.suffix in {".yml", ".tmpl", ".example"}]
    expected = {str(path.relative_to(ALERTS.parent)) for path in own if path.parent.name != "tests"}
    assert {code(file) for file, *_ in rows("file", "what is in it")} == expected


def test_every_alert_is_listed_with_its_severities_and_its_runbook_and_nothing_else_is() -> None:
    severities: dict[str, set[str]] = {}
    for rule in alerts():
        severities.setdefault(rule["alert"], set()).add(rule["labels"]["severity"])
    listed = {}
    for alert, severity, _ in rows("alert", "severity", "meaning"):
        link = re.fullmatch(r"\[`(\w+)`\]\(runbooks/(\w+)\.md\)", alert)
        assert link, alert
        assert link[1] == link[2]
        assert link[1] not in listed
        listed[link[1]] = set(severity.split(", "))
    assert listed == severities


# SaturationSettings


def defaults() -> dict[str, float]:
    values = {}
    for rule in rules("phasewatch-thresholds.yml"):
        value = re.fullmatch(r"vector\((.+)\)", rule["expr"])
        assert value, rule
        values[rule["record"].removeprefix("phasewatch_threshold:")] = float(value[1])
    return values


def test_every_threshold_is_listed_with_its_default_and_its_alerts_and_nothing_else_is() -> None:
    users = group_users(rules())
    assert users.keys() == defaults().keys()
    expected = {name: (default, set(users[name])) for name, default in defaults().items()}
    listed = {
        code(name): (float(default), set(every_code(alerts)))
        for name, default, _, alerts in rows("threshold", "default", "meaning")
    }
    assert listed == expected
    assert all(users.values())


def example(word: str) -> str:
    (text,) = (text for text in fences(PAGE, "yaml") if word in text)
    return text


def test_the_thresholds_of_the_examples_exist() -> None:
    for text in (example("phasewatch_threshold_override"), (RULES / "site.yml.example").read_text(encoding="utf-8")):
        overridden = re.findall(r"record: phasewatch_threshold_override:(\w+)", text)
        assert overridden
        assert set(overridden) <= defaults().keys()


@needs("promtool")
def test_the_override_in_force_is_the_one_that_the_page_says(tmp_path: Path) -> None:
    shutil.copytree(RULES, tmp_path / "rules")
    (tmp_path / "rules" / "site.yml").write_text(example("phasewatch_threshold_override"), encoding="utf-8")
    in_force = {
        (code(target), code(model)): float(value)
        for target, model, value in rows("target", "model", "threshold in force")
    }
    served = [
        {"series": f'llm_requests_running{{target="{target}", model_name="{model}", engine="0"}}', "values": "0x20"}
        for target, model in in_force
    ]
    expected = {
        "time_to_first_token_seconds": in_force,
        "token_stall_seconds": dict.fromkeys(in_force, defaults()["token_stall_seconds"]),
    }
    tests = [
        {
            "expr": f'sum by (target, model_name) ({EFFECTIVE}{{threshold="{threshold}", model_name!=""}})',
            "eval_time": "10m",
            "exp_samples": [
                {"labels": f'{{target="{target}", model_name="{model}"}}', "value": number}
                for (target, model), number in numbers.items()
            ],
        }
        for threshold, numbers in expected.items()
    ]
    content = {
        "rule_files": ["rules/*.yml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": served, "promql_expr_test": tests}],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    promtool(tmp_path, "check", "rules", "rules/site.yml")
    promtool(tmp_path, "test", "rules", "tests.yml")


def test_the_query_for_what_is_in_force_asks_for_the_recording_of_it() -> None:
    (query,) = [query for text in fences(PAGE, "promql") for query in text.splitlines() if EFFECTIVE in query]
    assert find_thresholds(query, {}) <= defaults().keys()
    assert EFFECTIVE in {rule.get("record") for rule in rules()}


# Objectives


def test_every_objective_is_listed_and_nothing_else_is() -> None:
    objectives = yaml.safe_load((ALERTS / "objectives.yml").read_text(encoding="utf-8"))["objectives"]
    expected = {
        one["name"]: (f"{one['seconds']:g} s", f"{100 * one['objective']:g} %", str(one["minimum"]))
        for one in objectives
    }
    listed = {code(name): tuple(cells) for name, *cells, _ in rows("objective", "in time", "share", "least number")}
    assert listed == expected
    burning = {name for name in names() if name.endswith("BudgetBurn")}
    assert {code(alert) for *_, alert in rows("objective", "in time")} == burning


def test_the_windows_are_those_of_the_rules() -> None:
    listed = rows("severity", "times too fast", "long window", "short window", "for")
    for name in (name for name in names() if name.endswith("BudgetBurn")):
        expected = []
        for rule in alerts():
            if rule["alert"] == name:
                factor = re.search(r"> ([\d.]+) \*", rule["expr"])
                assert factor
                labels = rule["labels"]
                expected.append([labels["severity"], factor[1], labels["long"], labels["short"], rule["for"]])
        assert listed == expected


@needs("promtool")
def test_changed_objectives_give_changed_rules(tmp_path: Path) -> None:
    shutil.copytree(ALERTS, tmp_path / "alerts")
    text = example("objectives:")
    (tmp_path / "alerts" / "objectives.yml").write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "alerts.generate"], cwd=tmp_path, check=True)
    file = tmp_path / "alerts" / "rules" / "phasewatch-slo.yml"
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert file.read_text(encoding="utf-8") != (RULES / file.name).read_text(encoding="utf-8")
    expressions = [rule["expr"] for group in written["groups"] for rule in group["rules"] if "alert" in rule]
    for one in yaml.safe_load(text)["objectives"]:
        mine = [expression for expression in expressions if f"phasewatch_slo:{one['name']}_slow" in expression]
        assert any(f"* {1 - one['objective']:g}\n" in expression for expression in mine)
    promtool(tmp_path, "check", "rules", file)


# Routing and inhibition


def alertmanager() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yml").read_text(encoding="utf-8"))
    return config


def test_every_route_is_listed_and_nothing_else_is() -> None:
    expected = {
        route["matchers"][0]: (route["receiver"], route["repeat_interval"])
        for route in alertmanager()["route"]["routes"]
    }
    listed = {
        f'severity="{severity}"': (code(receiver), interval)
        for severity, receiver, interval in rows("severity", "receiver", "told again after")
    }
    assert listed == expected
    grouped = re.search(r"groups by ((?:`\w+`(?:, | and )?)+)", PAGE)
    assert grouped
    assert every_code(grouped[1]) == alertmanager()["route"]["group_by"]


def matched(matchers: list[str]) -> str | set[str]:
    """What matchers of an inhibition stand for: names of alerts, or the words of the page."""
    values = {label: value for matcher in matchers for label, value in re.findall(r'^(\w+)\W+"(.*)"$', matcher)}
    assert len(values) == len(matchers)
    if "severity" in values:
        return {"critical": "any critical one", "warning": "the warning of the same name"}[values["severity"]]
    if "component" in values:
        return ALL
    return {name for name in names() if re.fullmatch(values["alertname"], name)}


def test_every_inhibition_is_listed_and_nothing_else_is() -> None:
    expected = [
        (matched(rule["source_matchers"]), matched(rule["target_matchers"]), rule["equal"])
        for rule in alertmanager()["inhibit_rules"]
    ]
    listed = [
        (set(every_code(source)) or source, set(every_code(silenced)) or silenced, every_code(equal))
        for source, silenced, equal in rows("while this fires", "these are not sent", "if they agree in")
    ]
    assert listed == expected
    assert all(source and silenced for source, silenced, _ in expected)


# Commands


COMMANDS: Final = [line for text in fences(PAGE, "") for line in text.splitlines()]


@needs("amtool")
@needs("promtool")
@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("promtool test")])
def test_every_command_is_understood(line: str, tmp_path: Path) -> None:
    (tmp_path / "alerts").symlink_to(ALERTS)
    for name in ("alertmanager.yml", "prometheus.yml", "rules", "templates"):
        (tmp_path / name).symlink_to(ALERTS / name)
    # Nobody listens there, so what would be sent is refused.
    command = line.replace(":9093", f":{free_port()}")
    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 or (command != line and "connection refused" in ran.stderr), ran.stdout + ran.stderr


def test_the_command_that_takes_long_names_files_that_exist() -> None:
    (line,) = (line for line in COMMANDS if line.startswith("promtool test"))
    assert list(ALERTS.parent.glob(line.split()[-1]))
