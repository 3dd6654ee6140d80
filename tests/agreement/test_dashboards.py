"""The boards are what their modules build, obey the rules for good dashboards, and know only what there is."""

import re
import urllib.parse
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.generate.slo import BOUNDS
from dashboards import common, generate
from dashboards.grafana import rendered
from dashboards.panels import Panel, Section, Words
from dashboards.states import DOWN, IN_MEMORY, STATE_CODES, STATES, UNKNOWN
from phasewatch.analysis.advice import ADVICE
from phasewatch.analysis.saturation import State
from phasewatch.backends.vllm.metric_names import PREFIXES
from phasewatch.metrics.collector import TABLE
from tests.support.dashboard_lint import Json, boards, excluded, expanded, findings, panels, queries, selectors
from tests.support.paths import DASHBOARDS
from tests.support.processes import needs
from tests.support.rule_files import alerts, promtool, rules

BOARDS = boards()
COMMITTED = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())
TARGET_LABELS = frozenset({"job", "instance"})
PROMETHEUS = frozenset({"up", "scrape_duration_seconds", "scrape_samples_scraped"})
PYTHON_CLIENT = frozenset(
    f"process_{name}"
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds")
)
ALERT_LABELS = frozenset({"alertname", "alertstate", "severity", "component", "target", "model_name", "engine"})


def test_the_committed_boards_are_what_make_dashboards_writes() -> None:
    for path, content in generate.files().items():
        assert path.read_text() == content, f"{path.name} is not up to date: run `make dashboards`"
    assert sorted(DASHBOARDS.glob("*.json")) == sorted(generate.files())


def test_the_boards_are_those_that_alerts_lead_to() -> None:
    assert list(BOARDS) == sorted(common.TITLES)


def test_each_link_of_an_alert_sets_variables_that_its_board_has() -> None:
    seen = 0
    for alert in alerts():
        path, _, query = alert["annotations"]["dashboard"].partition("?")
        board = BOARDS[path.removeprefix("/d/")]
        variables = {f"var-{variable['name']}" for variable in board["templating"]["list"]}
        asked = re.findall(r"(?:^|&)([\w-]+)=", query)
        assert variables.issuperset(asked), (alert["alert"], asked)
        seen += len(asked)
    assert seen


@COMMITTED
def test_the_linter_has_nothing_to_say(board: Json) -> None:
    assert [found for found in findings(board) if found[0] not in excluded()] == []


def test_what_the_linter_may_say_is_said() -> None:
    assert {rule for board in BOARDS.values() for rule, _ in findings(board)} == excluded()
    exclusions = yaml.safe_load((DASHBOARDS / ".lint").read_text())["exclusions"]
    assert all(told["reason"] for told in exclusions.values())


DOCTORED: dict[str, dict[str, Any]] = {
    "target-job-rule": {"expr": 'llm_target_up{instance=~"$instance"}'},
    "target-instance-rule": {"expr": 'llm_target_up{job=~"$job"}'},
    "target-rate-interval-rule": {"expr": 'rate(llm_probes_total{job=~"$job", instance=~"$instance"}[5m])'},
    "target-counter-agg-rule": {"expr": 'llm_probes_total{job=~"$job", instance=~"$instance"}'},
}


@pytest.mark.parametrize("rule", DOCTORED)
def test_the_linter_finds_what_is_wrong(rule: str) -> None:
    board = {"panels": [{"title": "t", "type": "row", "targets": [{"refId": "A", **DOCTORED[rule]}]}]}
    whole = {**next(iter(BOARDS.values())), **board}
    assert [found for found, _ in findings(whole)] == [rule]


@COMMITTED
def test_panels_lie_beside_each_other_within_the_width(board: Json) -> None:
    taken: Counter[tuple[int, int]] = Counter()
    for panel in board["panels"]:
        for inner in panel.get("panels") or [panel]:
            place = inner["gridPos"]
            assert place["x"] + place["w"] <= 24, inner["title"]
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                taken[x, y] += 1
    assert max(taken.values()) == 1


@COMMITTED
def test_numbers_titles_and_queries_are_unique(board: Json) -> None:
    found = list(panels(board))
    assert len({panel["id"] for panel in found}) == len(found)
    assert len({panel["title"] for panel in found}) == len(found)
    for panel in found:
        names = [target["refId"] for target in panel.get("targets") or []]
        assert len(set(names)) == len(names), panel["title"]


@COMMITTED
def test_every_panel_says_what_it_shows_and_what_an_empty_one_means(board: Json) -> None:
    for panel in panels(board):
        if panel["type"] not in {"row", "text"}:
            assert len(panel["description"]) > 60, panel["title"]
            assert panel["fieldConfig"]["defaults"]["noValue"] not in {"", "No data"}, panel["title"]


@COMMITTED
def test_old_and_new_grafana_read_it(board: Json) -> None:
    assert board["schemaVersion"] <= 42, "the classic schema"
    assert board["id"] is None if "id" in board else True
    assert {"apiVersion", "spec"}.isdisjoint(board)
    assert "phasewatch-prometheus" not in str(board), "a data source belongs to a site"


@COMMITTED
def test_links_lead_to_boards_of_the_pack_with_variables_that_they_have(board: Json) -> None:
    urls = [link["url"] for link in board["links"]] + re.findall(r"'url': '(/d/[^']+)'", str(board["panels"]))
    own = {variable["name"] for variable in board["templating"]["list"]}
    for url in urls:
        path, _, query = url.partition("?")
        other = BOARDS[path.removeprefix("/d/")]
        known = {variable["name"] for variable in other["templating"]["list"]}
        kept = set(re.findall(r"\$\{(\w+):queryparam\}", query))
        assert kept <= own, url
        assert set(re.findall(r"var-(\w+)=", query)) <= known, url
    assert {urllib.parse.urlsplit(link["url"]).path for link in board["links"]} == {
        f"/d/{uid}" for uid in BOARDS if uid != board["uid"]
    }
    assert all(link["keepTime"] for link in board["links"])


@cache
def known_labels(name: str) -> frozenset[str] | None:
    """The labels that a metric may have, or None if it does not exist."""
    ours = {metric.name: frozenset(metric.labels) for metric in TABLE}
    if name in ours:
        return ours[name] | TARGET_LABELS
    if name in PROMETHEUS | PYTHON_CLIENT:
        return TARGET_LABELS
    if name == "ALERTS":
        return ALERT_LABELS | TARGET_LABELS
    if name in {rule["record"] for rule in rules() if "record" in rule}:
        return frozenset({"target", "model_name", "engine", "state", "threshold"}) | TARGET_LABELS
    native = "|".join(re.escape(prefix) for prefix in PREFIXES)
    if re.fullmatch(rf"(?:{native})(?:{'|'.join(BOUNDS)})_(?:bucket|count|sum)", name):
        return frozenset({"model_name", "engine", "le"}) | TARGET_LABELS
    return None


@COMMITTED
def test_every_metric_and_label_exists(board: Json) -> None:
    exprs = [(panel["title"], target["expr"]) for panel, target in queries(board)]
    exprs += [("annotations", entry["expr"]) for entry in board["annotations"]["list"] if "expr" in entry]
    assert len(exprs) > 5
    for title, expr in exprs:
        for found in selectors(expr):
            for name in [found.name] if found.name else found.matchers["__name__"].removeprefix("=~").split("|"):
                labels = known_labels(name)
                assert labels is not None, (title, name)
                # A choice of engines leaves out what has none.
                assert found.matchers.keys() <= labels | {"engine", "__name__"}, (title, found)


@COMMITTED
def test_names_of_series_are_made_of_labels_that_the_query_keeps(board: Json) -> None:
    for panel, target in queries(board):
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
        kept = re.search(r"\bby \(([^)]*)\)", target["expr"])
        if kept and target.get("format") != "heatmap":
            added = re.findall(r'"(\w+)", "[^"]*", "(?:\w*)", "', target["expr"])
            assert wanted <= {label.strip() for label in kept[1].split(",")} | set(added), (panel["title"], wanted)


@needs("promtool")
def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    found = [
        {"record": f"query:{index}:of_{re.sub(r'[^a-z]', '_', uid)}", "expr": expanded(target["expr"], "60s")}
        for uid, board in BOARDS.items()
        for index, (_, target) in enumerate(queries(board))
    ]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": found}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", tmp_path / "queries.yml")


def test_every_state_has_a_number_a_colour_and_the_words_of_the_advice() -> None:
    assert STATES.keys() == {state.value for state in State} | {IN_MEMORY, DOWN, UNKNOWN}
    assert len({shown.colour for shown in STATES.values()}) == len(STATES)
    assert all(STATES[state.value].text == ADVICE[state].title for state in State)
    assert list(STATE_CODES.values()) == list(STATES.values())


def test_colours_change_where_alerts_begin() -> None:
    told = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for steps, name in (
        (common.INTER_TOKEN, "inter_token_latency_seconds"),
        (common.FIRST_TOKEN, "time_to_first_token_seconds"),
        (common.WAITING, "requests_waiting"),
    ):
        assert f"vector({steps[-1][0]:g})" == told[f"phasewatch_threshold:{name}"]


def test_a_board_is_laid_out_by_hand_of_no_one() -> None:
    section = Section("s", tuple(words(f"t{width}", width) for width in (16, 16, 8, 24)))
    built = common.board("phasewatch-overview", "d", section)
    places = [panel["gridPos"] for panel in yaml.safe_load(rendered(built))["panels"]]
    assert [(place["x"], place["y"]) for place in places] == [(0, 0), (0, 1), (0, 4), (16, 4), (0, 7)]


def words(title: str, width: int) -> Panel:
    return Words(title=title, description="d", queries=(), width=width, height=3, text="x")


# Provisioning


def test_provisioning_finds_the_boards_and_opens_with_the_overview() -> None:
    (provider,) = yaml.safe_load((DASHBOARDS / "provisioning/dashboards/phasewatch.yml").read_text())["providers"]
    home = re.search(r"^default_home_dashboard_path = (.+)$", (DASHBOARDS / "grafana.ini").read_text(), re.MULTILINE)
    assert home
    assert home[1] == f"{provider['options']['path']}/phasewatch-overview.json"
    assert (DASHBOARDS / "phasewatch-overview.json").exists()
    assert not provider["allowUiUpdates"], "a generated board is not edited by hand"


def test_the_data_source_looks_as_often_as_prometheus_scrapes() -> None:
    (source,) = yaml.safe_load((DASHBOARDS / "provisioning/datasources/phasewatch.yml").read_text())["datasources"]
    jobs = yaml.safe_load((DASHBOARDS.parent / "alerts" / "prometheus.yml").read_text())["scrape_configs"]
    (job,) = (job for job in jobs if job["job_name"] == "phasewatch")
    assert source["jsonData"]["timeInterval"] == job["scrape_interval"]
    assert source["type"] == "prometheus"


def test_rates_of_native_histograms_span_scrapes_of_vllm_which_are_rarer() -> None:
    prometheus = yaml.safe_load((DASHBOARDS.parent / "alerts" / "prometheus.yml").read_text())
    native = [
        target
        for _, target in queries(BOARDS[common.OBJECTIVES])
        if any("vllm" in selector.name for selector in selectors(target["expr"]))
    ]
    assert native
    assert {target.get("interval") for target in native} == {prometheus["global"]["scrape_interval"]}
