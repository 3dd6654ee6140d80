"""What the page about scale says of series and rules is what they are, and its configurations are ones."""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from alerts.generate.thresholds import THRESHOLDS, read_thresholds
from tests.support.markdown import code, fences, page, tables
from tests.support.paths import ROOT
from tests.support.processes import needs
from tests.support.rule_files import RULES, groups, promtool, rules

PAGE: Final = page("docs/scale.md")
METRICS: Final = " ".join(page("docs/metrics.md").split())
INTERVAL: Final = 5.0
"""Seconds between two scrapes of PhaseWatch, in the table and in alerts/prometheus.yml."""


def rows(*head: str) -> list[list[str]]:
    matching = [cells for _, cells in tables(PAGE, *head)]
    assert matching, head
    return matching


def series() -> dict[str, tuple[int, int]]:
    """What the table tells of each item: the first number of series, and samples per second."""
    budgets = {}
    for what, number, rate in rows("what", "series", "samples per second"):
        match = re.search(r"\d+", number)
        assert match
        budgets[what] = (int(match[0]), int(rate))
    return budgets


def read_numbers(pattern: str) -> list[int]:
    match = re.search(pattern, METRICS)
    assert match, pattern
    return [int(number) for number in match.groups()]


def records(file: str) -> list[dict[str, Any]]:
    return [rule for group in groups(RULES / file) for rule in group["rules"]]


def test_the_series_of_a_server_are_those_of_the_page_about_metrics() -> None:
    (vllm,) = read_numbers(r"A vllm target with one engine has up to (\d+) series")
    (engine,) = read_numbers(r"Each further engine adds up to (\d+)")
    ollama = read_numbers(
        r"An ollama target has (\d+) of its own, (\d+) for each model on disk, for each in memory (\d+) more, "
        r"up to (\d+) of its speeds and (\d+) of its ceilings, and (\d+) for each that was ever probed"
    )
    expected = {
        "a vLLM with one engine, from PhaseWatch every 5 s": vllm,
        "each further engine": engine,
        "an Ollama with one model": sum(ollama),
    }
    counts = series()
    assert {what: counts[what] for what in expected} == {
        what: (number, -(-number // INTERVAL)) for what, number in expected.items()
    }


def test_the_recordings_of_a_server_are_those_of_the_rules() -> None:
    thresholds = read_thresholds(THRESHOLDS)
    shared = [rule["record"] for rule in records("phasewatch-recording.yml")]
    # A server and its model are two subjects. A state has nine series; of the past there is one for each class of load.
    states = 9
    past = [name for name in shared if name.endswith("1d")]
    accounted = 2 * (1 + len(thresholds)) + states + len(set(shared) - set(past)) - 1
    counts = series()
    number, rate = counts["what the rules record of a vLLM with one engine every 15 s"]
    assert (number, rate) == (accounted, -(-accounted // 15)), "what the rules record, in docs/scale.md"
    assert f"and {len(past)} for each class of load" in PAGE
    budgets = {rule["record"] for rule in records("phasewatch-slo.yml") if "record" in rule}
    assert counts["what the rules record for error budgets"][0] == len(budgets)


def test_the_sums_follow_from_the_table() -> None:
    counts = list(series().values())
    (vllm, _, _, recorded, own, budgets) = counts
    without = [vllm[of] + recorded[of] for of in (0, 1)]
    whole = [without[of] + own[of] + budgets[of] for of in (0, 1)]
    words = " ".join(PAGE.split())
    assert f"some {without[0] * 100:,} series and {without[1] * 100:,} samples per second" in words
    assert f"with them {round(whole[0], -1) * 100:,} and {whole[1] * 100:,}" in words
    month = 30 * 86_400
    sizes = [round(rate * 100 * month * size / 1e9) for rate in (without[1], whole[1]) for size in (1, 2)]
    assert "30 days are {} to {} GB, or {} to {} GB".format(*sizes) in words


def test_no_group_has_more_rules_than_a_ruler_takes() -> None:
    (limit,) = re.findall(r"more than (\d+) rules in a group", " ".join(PAGE.split()))
    manifest = (ROOT / "deploy" / "kubernetes" / "monitoring" / "rules.yaml").read_text(encoding="utf-8")
    parts = [group for path in sorted(RULES.glob("*.yml*")) for group in groups(path)]
    parts += [group for rule in yaml.safe_load_all(manifest) if rule for group in rule["spec"]["groups"]]
    assert {group["name"]: len(group["rules"]) for group in parts if len(group["rules"]) > int(limit)} == {}
    assert int(limit) == 20


def test_no_group_is_named_twice() -> None:
    names = [group["name"] for path in RULES.glob("*.yml") for group in groups(path)]
    assert len(names) == len(set(names))


def test_the_recordings_to_federate_exist() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    listed = {code(name) for name, _ in rows("recording", "why it is worth it")}
    assert listed <= recorded
    (text,) = (text for text in fences(PAGE, "yaml") if "/federate" in text)
    (job,) = yaml.safe_load(text)["scrape_configs"]
    chosen = re.findall(r'__name__=~"([^"]+)"', str(job["params"]["match[]"]))
    assert all(any(re.fullmatch(pattern, name) for pattern in chosen) for name in listed)


def test_every_recording_is_sent_to_remote_storage() -> None:
    (text,) = (text for text in fences(PAGE, "yaml") if "remote_write" in text)
    ((relabeling,),) = (one["write_relabel_configs"] for one in yaml.safe_load(text)["remote_write"])
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    sent = {name for name in recorded if re.fullmatch(relabeling["regex"], name)}
    assert sent == recorded


@needs("promtool")
def test_every_configuration_is_a_valid_one_of_prometheus(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("secret", encoding="utf-8")
    for text in fences(PAGE, "yaml"):
        own = text.replace("/etc/prometheus/secrets", str(tmp_path))
        (tmp_path / "prometheus.yml").write_text(own, encoding="utf-8")
        promtool("check", "config", tmp_path / "prometheus.yml")
