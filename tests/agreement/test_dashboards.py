"""The dashboards are what the generator writes, obey the linter, and query only metrics and labels that exist."""

import re
import urllib.parse
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.generate.slo import BOUNDS
from dashboards.generate import colours, pack
from dashboards.generate.grafana import render_dashboard
from dashboards.generate.model import Panel, Row, Text
from dashboards.generate.output import render_files
from dashboards.generate.states import DOWN, IN_MEMORY, STATE_CODES, STATES, UNKNOWN
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.vllm.metric_names import PREFIXES
from phasewatch.backends.vllm.state_advice import ADVICE
from phasewatch.metrics.collector import TABLE
from tests.support.dashboard_lint import (
    Json,
    expand_variables,
    iterate_panels,
    iterate_queries,
    lint,
    load_dashboards,
    parse_selectors,
    read_exclusions,
)
from tests.support.paths import ALERTS, DASHBOARDS, DASHBOARDS_JSON
from tests.support.processes import needs
from tests.support.rule_files import alerts, promtool, rules

BOARDS = load_dashboards()
EACH_BOARD = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())
TARGET_LABELS = frozenset({"job", "instance"})
PROMETHEUS = frozenset({"up", "scrape_duration_seconds", "scrape_samples_scraped"})
PYTHON_CLIENT = frozenset(
    f"process_{name}"
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds")
)
ALERT_LABELS = frozenset({"alertname", "alertstate", "severity", "component", "target", "model_name", "engine"})


def test_the_json_folder_is_exactly_what_make_dashboards_writes() -> None:
    files = render_files()
    assert sorted(DASHBOARDS_JSON.iterdir()) == sorted(files)
    for path, content in files.items():
        assert path.read_bytes() == content.encode(), f"{path.name} is not up to date: run `make dashboards`"


def test_uids_are_the_permanent_ones_of_the_pack() -> None:
    assert list(BOARDS) == sorted(pack.TITLES)


def test_links_of_alerts_set_only_variables_of_their_dashboard() -> None:
    seen = 0
    for alert in alerts():
        path, _, query = alert["annotations"]["dashboard"].partition("?")
        board = BOARDS[path.removeprefix("/d/")]
        variables = {f"var-{variable['name']}" for variable in board["templating"]["list"]}
        asked = re.findall(r"(?:^|&)([\w-]+)=", query)
        assert variables.issuperset(asked), (alert["alert"], asked)
        seen += len(asked)
    assert seen


@EACH_BOARD
def test_the_linter_finds_only_what_is_excluded(board: Json) -> None:
    assert [finding for finding in lint(board) if finding[0] not in read_exclusions()] == []


def test_every_exclusion_of_the_linter_is_needed_and_has_a_reason() -> None:
    assert {rule for board in BOARDS.values() for rule, _ in lint(board)} == read_exclusions()
    exclusions = yaml.safe_load((DASHBOARDS / ".lint").read_text())["exclusions"]
    assert all(exclusion["reason"] for exclusion in exclusions.values())


DOCTORED: dict[str, dict[str, Any]] = {
    "target-job-rule": {"expr": 'llm_target_up{instance=~"$instance"}'},
    "target-instance-rule": {"expr": 'llm_target_up{job=~"$job"}'},
    "target-rate-interval-rule": {"expr": 'rate(llm_probes_total{job=~"$job", instance=~"$instance"}[5m])'},
    "target-counter-agg-rule": {"expr": 'llm_probes_total{job=~"$job", instance=~"$instance"}'},
}


@pytest.mark.parametrize("rule", DOCTORED)
def test_the_linter_finds_a_query_that_breaks_one_rule(rule: str) -> None:
    board = {"panels": [{"title": "t", "type": "row", "targets": [{"refId": "A", **DOCTORED[rule]}]}]}
    whole = {**next(iter(BOARDS.values())), **board}
    assert [broken for broken, _ in lint(whole)] == [rule]


@EACH_BOARD
def test_panels_fit_the_width_and_do_not_overlap(board: Json) -> None:
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


@EACH_BOARD
def test_ids_and_titles_of_panels_and_ref_ids_of_queries_are_unique(board: Json) -> None:
    panels = list(iterate_panels(board))
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        names = [target["refId"] for target in panel.get("targets") or []]
        assert len(set(names)) == len(names), panel["title"]


@EACH_BOARD
def test_every_panel_has_a_description_and_a_text_for_no_value(board: Json) -> None:
    for panel in iterate_panels(board):
        if panel["type"] not in {"row", "text"}:
            assert len(panel["description"]) > 60, f"{panel['title']}: say what it shows and what to do about it"
            assert panel["fieldConfig"]["defaults"]["noValue"] not in {"", "No data"}, panel["title"]


@EACH_BOARD
def test_the_schema_is_one_that_grafana_10_to_13_read(board: Json) -> None:
    assert board["schemaVersion"] <= 42, "the classic schema"
    assert board["id"] is None if "id" in board else True
    assert {"apiVersion", "spec"}.isdisjoint(board)
    assert "phasewatch-prometheus" not in str(board), "a data source belongs to a site"


@EACH_BOARD
def test_links_lead_to_dashboards_of_the_pack_and_set_variables_that_these_have(board: Json) -> None:
    urls = [link["url"] for link in board["links"]] + re.findall(r"'url': '(/d/[^']+)'", str(board["panels"]))
    own = {variable["name"] for variable in board["templating"]["list"]}
    for url in urls:
        path, _, query = url.partition("?")
        other = BOARDS[path.removeprefix("/d/")]
        theirs = {variable["name"] for variable in other["templating"]["list"]}
        kept = set(re.findall(r"\$\{(\w+):queryparam\}", query))
        assert kept <= own, url
        assert set(re.findall(r"var-(\w+)=", query)) <= theirs, url
    assert {urllib.parse.urlsplit(link["url"]).path for link in board["links"]} == {
        f"/d/{uid}" for uid in BOARDS if uid != board["uid"]
    }
    assert all(link["keepTime"] for link in board["links"])


@cache
def find_labels(name: str) -> frozenset[str] | None:
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


@EACH_BOARD
def test_every_metric_and_label_in_a_query_exists(board: Json) -> None:
    exprs = [(panel["title"], target["expr"]) for panel, target in iterate_queries(board)]
    exprs += [("annotations", entry["expr"]) for entry in board["annotations"]["list"] if "expr" in entry]
    assert len(exprs) > 5
    for title, expr in exprs:
        for selector in parse_selectors(expr):
            names = selector.matchers.get("__name__", "").removeprefix("=~").split("|")
            for name in [selector.name] if selector.name else names:
                labels = find_labels(name)
                assert labels is not None, (title, name)
                # A matcher on `engine` is allowed on every metric: it leaves out those without engines.
                assert selector.matchers.keys() <= labels | {"engine", "__name__"}, (title, selector)


@EACH_BOARD
def test_legends_use_only_labels_that_the_query_keeps(board: Json) -> None:
    for panel, target in iterate_queries(board):
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
        kept = re.search(r"\bby \(([^)]*)\)", target["expr"])
        if kept and target.get("format") != "heatmap":
            added = re.findall(r'"(\w+)", "[^"]*", "(?:\w*)", "', target["expr"])
            assert wanted <= {label.strip() for label in kept[1].split(",")} | set(added), (panel["title"], wanted)


@needs("promtool")
def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    recordings = [
        {"record": f"query:{index}:of_{re.sub(r'[^a-z]', '_', uid)}", "expr": expand_variables(target["expr"], "60s")}
        for uid, board in BOARDS.items()
        for index, (_, target) in enumerate(iterate_queries(board))
    ]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recordings}]}))
    assert f"{len(recordings)} rules found" in promtool("check", "rules", tmp_path / "queries.yml")


def test_every_state_has_a_code_a_colour_and_the_title_of_its_advice() -> None:
    assert STATES.keys() == {state.value for state in SaturationState} | {IN_MEMORY, DOWN, UNKNOWN}
    assert len({mapping.colour for mapping in STATES.values()}) == len(STATES)
    assert all(STATES[state.value].text == ADVICE[state].title for state in SaturationState)
    assert list(STATE_CODES.values()) == list(STATES.values())


def test_colours_change_where_alerts_begin() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for (begin, _), name in (
        (colours.INTER_TOKEN[-1], "inter_token_latency_seconds"),
        (colours.FIRST_TOKEN[-1], "time_to_first_token_seconds"),
        (colours.WAITING[-1], "requests_waiting"),
        (colours.DECODE_SHARE[-2], "decode_ceiling_ratio"),
    ):
        assert f"vector({begin:g})" == recorded[f"phasewatch_threshold:{name}"], name


def test_panel_positions_are_computed_by_the_generator() -> None:
    row = Row("r", tuple(build_text(f"t{width}", width) for width in (16, 16, 8, 24)))
    dashboard = pack.build_dashboard(pack.OVERVIEW, "d", row)
    places = [panel["gridPos"] for panel in yaml.safe_load(render_dashboard(dashboard))["panels"]]
    assert [(place["x"], place["y"]) for place in places] == [(0, 0), (0, 1), (0, 4), (16, 4), (0, 7)]


def build_text(title: str, width: int) -> Panel:
    return Text(title=title, description="d", width=width, height=3, content="x")


# Provisioning


def test_provisioning_finds_the_dashboards_and_opens_with_the_overview() -> None:
    (provider,) = yaml.safe_load((DASHBOARDS / "provisioning/dashboards/phasewatch.yml").read_text())["providers"]
    home = re.search(r"^default_home_dashboard_path = (.+)$", (DASHBOARDS / "grafana.ini").read_text(), re.MULTILINE)
    assert home
    assert home[1] == f"{provider['options']['path']}/phasewatch-overview.json"
    assert (DASHBOARDS_JSON / "phasewatch-overview.json").exists()
    assert not provider["allowUiUpdates"], "a generated dashboard is not edited by hand"


def test_the_min_interval_of_the_data_source_is_the_scrape_interval_of_phasewatch() -> None:
    (source,) = yaml.safe_load((DASHBOARDS / "provisioning/datasources/phasewatch.yml").read_text())["datasources"]
    jobs = yaml.safe_load((ALERTS / "prometheus.yml").read_text())["scrape_configs"]
    (job,) = (job for job in jobs if job["job_name"] == "phasewatch")
    assert source["jsonData"]["timeInterval"] == job["scrape_interval"]
    assert source["type"] == "prometheus"


def test_the_min_interval_of_vllm_histograms_is_the_scrape_interval_of_vllm() -> None:
    prometheus = yaml.safe_load((ALERTS / "prometheus.yml").read_text())
    native = [
        target
        for _, target in iterate_queries(BOARDS[pack.SLO])
        if any("vllm" in selector.name for selector in parse_selectors(target["expr"]))
    ]
    assert native
    assert {target.get("interval") for target in native} == {prometheus["global"]["scrape_interval"]}
