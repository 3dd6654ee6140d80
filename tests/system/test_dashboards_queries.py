"""Every query of every panel against a real Prometheus with recordings, a simulated Ollama and a running exporter."""

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from dashboards.generate.states import STATE_CODES
from phasewatch.analysis.advice.remedy import list_words
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends import list_handbooks
from tests.support.dashboard_lint import (
    Json,
    choose,
    expand_variables,
    iterate_panels,
    iterate_queries,
    load_dashboards,
)
from tests.support.dashboard_stack import FIRST, FLEET, TWICE, Stack, run_filled_prometheus
from tests.support.processes import eventually, needs
from tests.support.rule_files import promtool

BOARDS: Final = load_dashboards()
SECONDS: Final = 130.0
"""The recordings are a little shorter."""
OLLAMA_SECONDS: Final = 3600.0

COLUMNS: Final = {
    "Prefill tok/s": "llm_prefill_tokens_per_second",
    "of ceiling": "llm_prefill_ceiling_ratio",
    "Decode tok/s": "llm_decode_tokens_per_second",
    "of ceiling ": 'llm_decode_ceiling_ratio{basis="read"}',
    "Bandwidth": 'llm_memory_bandwidth_utilization_ratio{source="derived"}',
    "ITL p99": 'llm_inter_token_latency_seconds{quantile="0.99"}',
    "TTFT p95": 'llm_time_to_first_token_seconds{quantile="0.95"}',
    "Running": "llm_requests_running",
    "Waiting": "llm_requests_waiting",
    "KV cache": "llm_kv_cache_usage_ratio",
}
STATS: Final = {
    "Prefill": 'sum(llm_prefill_throughput_tokens_per_second{instance="pw:10061"})',
    "Decode": 'sum(llm_decode_throughput_tokens_per_second{instance="pw:10061"})',
    "Bandwidth": 'max(llm_memory_bandwidth_utilization_ratio{source="derived"})',
    "ITL p99": 'max(llm_inter_token_latency_seconds{quantile="0.99"})',
    "Longest queue": "max(llm_requests_waiting)",
}
EMPTY: Final[Mapping[tuple[str, str, str], str]] = {
    (
        "phasewatch-ollama",
        "Duration of a load",
        "A",
    ): "loads by users cannot be timed, and the probes here load nothing",
    ("phasewatch-saturation", "Objectives", "decode_tokens_per_second"): "no target here sets this objective",
    **dict.fromkeys(
        (
            ("phasewatch-ollama", "Decode of users, one stream", "speed"),
            ("phasewatch-ollama", "Decode of users, one stream", "ceiling"),
            ("phasewatch-ollama", "Decode of users, throughput", "A"),
            ("phasewatch-ollama", "Prefill of users, throughput", "A"),
            ("phasewatch-ollama", "Requests at once", "running"),
            ("phasewatch-ollama", "Requests at once", "streams"),
            ("phasewatch-ollama", "Memory bandwidth used", "A"),
            ("phasewatch-ollama", "Context of a running request", "A"),
        ),
        "the Ollama here is measured by probes alone",
    ),
}
"""Dashboard, panel and query that return nothing here, with the reason."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    native = ("mfu-metrics", "prefill-interference")
    with run_filled_prometheus(
        tmp_path_factory.mktemp("dashboards"), FLEET, ollama_seconds=OLLAMA_SECONDS, native=native
    ) as running:
        yield running


@needs("prometheus")
@pytest.mark.parametrize("uid", BOARDS)
def test_every_query_returns_data_where_the_recordings_have_some(stack: Stack, uid: str) -> None:
    wanted = {place for place in EMPTY if place[0] == uid}
    with contextlib.suppress(AssertionError):  # the assertion below says more
        eventually(lambda: find_empty_queries(stack, uid) == wanted, f"queries of {uid}")
    assert find_empty_queries(stack, uid) == wanted


def find_empty_queries(stack: Stack, uid: str) -> set[tuple[str, str, str]]:
    return {
        (uid, panel["title"], target["refId"])
        for panel, target in iterate_queries(BOARDS[uid])
        if not has_data(stack, target, OLLAMA_SECONDS if uid == "phasewatch-ollama" else SECONDS)
    }


def has_data(stack: Stack, target: Json, seconds: float) -> bool:
    """Whether a query returns anything over the time of the recordings; an instant query: at some moment of it."""
    expr = choose(expand_variables(target["expr"], "60s"))
    if target.get("instant"):
        moments = (time.time(), *(stack.end - back * seconds / 8 - 1 for back in range(8)))
        return any(stack.instant(expr, moment) for moment in moments)
    values = (value for series in stack.course(expr, seconds, seconds / 60) for _, value in series["values"])
    return any(value != "NaN" for value in values)


@needs("prometheus")
@pytest.mark.parametrize("uid", BOARDS)
def test_every_variable_offers_values(stack: Stack, uid: str) -> None:
    for variable in BOARDS[uid]["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((.+), *(\w+)\)", variable["query"])
            assert query
            series = stack.course(f"count by ({query[2]}) ({choose(query[1])})", SECONDS)
            assert any(one["metric"] for one in series), variable["name"]


@needs("prometheus")
def test_choosing_one_target_shows_only_that_target(stack: Stack) -> None:
    (expr,) = (
        target["expr"]
        for panel, target in iterate_queries(BOARDS["phasewatch-overview"])
        if panel["title"] == "Requests that wait"
    )
    series = stack.course(choose(expr, target=TWICE), SECONDS)
    assert [one["metric"] for one in series] == [{"target": TWICE, "model_name": "tiny", "engine": "0"}]


MODELS: Final = ("phasewatch-overview", "phasewatch-phases", "phasewatch-saturation", "phasewatch-ollama")


@needs("prometheus")
@pytest.mark.parametrize("uid", MODELS)
def test_two_exporters_of_one_target_show_the_same_as_one(stack: Stack, uid: str) -> None:
    seen = 0
    for panel, target in iterate_queries(BOARDS[uid]):
        expr = expand_variables(target["expr"], "10s")
        for moment in (stack.end - 60, stack.end - 30):
            one, both = (
                stack.instant(choose(expr, target=TWICE, instance=instance), moment) for instance in (FIRST, ".+")
            )
            assert as_set(one) == as_set(both), (panel["title"], target["refId"])
            seen += len(one)
    assert seen or uid == "phasewatch-ollama"


def as_set(samples: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(*sorted(sample["metric"].items()), sample["value"][1]) for sample in samples}


@needs("prometheus")
@pytest.mark.parametrize("uid", MODELS)
@pytest.mark.parametrize("choice", ["target", "model_name"])
def test_choosing_what_does_not_exist_shows_nothing(stack: Stack, uid: str, choice: str) -> None:
    for panel, target in iterate_queries(BOARDS[uid]):
        if panel["title"] not in NOT_EMPTY.get(choice, ()):
            expr = choose(expand_variables(target["expr"], "10s"), **{choice: "nobody"})
            assert stack.instant(expr, stack.end - 30) == [], (panel["title"], target["refId"])


NOT_EMPTY: Final = {
    "target": {"Facts that are missing"},  # says that nobody answers
    "model_name": {
        *("Facts that are missing", "Servers"),  # an Ollama as a whole
        *("HTTP answers by status", "Error ratio"),  # of all models of a server together
    },
}


@needs("prometheus")
@pytest.mark.parametrize(("title", "metric"), COLUMNS.items())
def test_each_column_of_the_servers_table_shows_the_metric_of_its_title(stack: Stack, title: str, metric: str) -> None:
    (panel,) = (panel for panel in iterate_panels(BOARDS["phasewatch-overview"]) if panel["title"] == "Servers")
    (names,) = (step["options"]["renameByName"] for step in panel["transformations"] if step["id"] == "organize")
    (name,) = (source.removeprefix("Value #") for source, header in names.items() if header == title)
    (expr,) = (target["expr"] for target in panel["targets"] if target["refId"] == name)
    moment = stack.end - 60
    assert as_set(stack.instant(choose(expr, instance=FIRST), moment)) == as_set(
        [
            keep_identity(sample)
            for sample in stack.instant(f"{metric} * 1", moment)
            if sample["metric"]["instance"] == FIRST
        ]
    )


def keep_identity(sample: dict[str, Any]) -> dict[str, Any]:
    labels = {key: value for key, value in sample["metric"].items() if key in {"target", "model_name", "engine"}}
    return {**sample, "metric": labels}


@needs("prometheus")
@pytest.mark.parametrize(("title", "expr"), STATS.items())
def test_each_stat_of_the_overview_shows_the_metric_of_its_title(stack: Stack, title: str, expr: str) -> None:
    (own,) = (
        target["expr"] for panel, target in iterate_queries(BOARDS["phasewatch-overview"]) if panel["title"] == title
    )
    moment = stack.end - 60
    (actual,) = stack.instant(choose(own), moment)
    (expected,) = stack.instant(expr, moment)
    assert float(actual["value"][1]) == pytest.approx(float(expected["value"][1]))


@needs("prometheus")
def test_the_servers_table_shows_every_state_the_most_urgent_first(stack: Stack) -> None:
    (expr,) = (
        target["expr"]
        for panel, target in iterate_queries(BOARDS["phasewatch-overview"])
        if panel["title"] == "Servers" and target["refId"] == "urgency"
    )
    samples = stack.instant(choose(expr), stack.end - 35)
    states = {sample["metric"]["target"]: STATE_CODES[sample["value"][1]].text for sample in samples}
    assert states == {
        "restarted": "Down",
        "paused": "Stuck",
        "shedding": "Shedding load",
        "kv-cache": "Preempting",
        "preempting": "Preempting",
        "prefill": "Prefill limited",
        "slots": "All slots taken",
        "healthy": "No queue",
        "speculative": "No queue",
        "two-engines": "No queue",
        "workstation": "In memory",
    }
    codes = [float(sample["value"][1]) for sample in samples]
    assert codes == sorted(codes, reverse=True)


@needs("prometheus")
def test_a_target_without_samples_is_not_known_instead_of_healthy(stack: Stack) -> None:
    (expr,) = (
        target["expr"]
        for panel, target in iterate_queries(BOARDS["phasewatch-overview"])
        if panel["title"] == "Worst state"
    )
    (sample,) = stack.instant(choose(expr, target="healthy"), stack.end + 30)
    assert STATE_CODES[sample["value"][1]].text == "Not known"


OBJECTIVES_MISSED: Final[Mapping[str, tuple[str, tuple[str, ...], set[str]]]] = {
    "well": ("healthy", (), {"healthy"}),
    "tokens": ("healthy", ("inter_token_latency",), {"slow_tokens"}),
    "stream": ("healthy", ("decode_tokens_per_second",), {"slow_tokens"}),
    "first": ("healthy", ("time_to_first_token",), {"slow_first_token"}),
    "both": ("healthy", ("decode_tokens_per_second", "time_to_first_token"), {"slow_both"}),
    "queue": ("kv_cache_full", (), {"kv_cache_full"}),
    "slow-queue": ("deferred", ("inter_token_latency",), {"deferred", "also_slow_tokens"}),
    "late-queue": (
        "prefill_limited",
        ("time_to_first_token", "inter_token_latency"),
        {"prefill_limited", "also_slow_tokens", "also_slow_first_token"},
    ),
    "over": ("stuck", ("inter_token_latency",), {"stuck"}),
}
"""State and missed objectives of some targets, and the rows that they have in the table of remedies."""


@needs("promtool")
def test_the_table_of_remedies_names_missed_objectives_with_and_without_a_queue(tmp_path: Path) -> None:
    (expr,) = (
        target["expr"]
        for panel, target in iterate_queries(BOARDS["phasewatch-saturation"])
        if panel["title"] == "What to change"
    )
    objectives = ("inter_token_latency", "time_to_first_token", "decode_tokens_per_second")
    series = []
    for target, (state, missed, _) in OBJECTIVES_MISSED.items():
        labels = f'job="phasewatch", instance="pw", target="{target}", model_name="m", engine="0"'
        series.append({"series": f'llm_saturation_state{{{labels}, state="{state}"}}', "values": "1"})
        series.append({"series": f'llm_target_up{{job="phasewatch", instance="pw", target="{target}"}}', "values": "1"})
        series += [
            {
                "series": f'llm_objective_met{{{labels}, objective="{objective}"}}',
                "values": "0" if objective in missed else "1",
            }
            for objective in objectives
        ]
    rows = [
        {"labels": f'{{target="{target}", state="{row}"}}', "value": 1}
        for target, (*_, rows) in OBJECTIVES_MISSED.items()
        for row in sorted(rows)
    ]
    test = {"expr": f"count by (target, state) ({choose(expr)})", "eval_time": "0s", "exp_samples": rows}
    whole = {"interval": "1m", "input_series": series, "promql_expr_test": [test]}
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [], "tests": [whole]}))
    promtool("test", "rules", tmp_path / "tests.yml")


def find_remedies(tmp_path: Path, series: Mapping[str, str], rows: Mapping[str, int], labels: str) -> None:
    """Assert how many rows of the table of remedies have each set of some labels."""
    (expr,) = (
        target["expr"]
        for panel, target in iterate_queries(BOARDS["phasewatch-saturation"])
        if panel["title"] == "What to change"
    )
    samples = [{"labels": row, "value": count} for row, count in rows.items()]
    test = {"expr": f"count by ({labels}) ({choose(expr)})", "eval_time": "0s", "exp_samples": samples}
    inputs = [{"series": name, "values": value} for name, value in series.items()]
    whole = {"interval": "1m", "input_series": inputs, "promql_expr_test": [test]}
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [], "tests": [whole]}))
    promtool("test", "rules", tmp_path / "tests.yml")


@needs("promtool")
def test_the_table_of_remedies_advises_each_server_in_its_own_settings(tmp_path: Path) -> None:
    series, rows = {}, {}
    for backend, handbook in list_handbooks().items():
        labels = f'job="phasewatch", instance="pw", target="{backend}", backend="{backend}"'
        series[f"llm_target_up{{{labels}}}"] = "1"
        series[f'llm_saturation_state{{{labels}, model_name="m", engine="0", state="stuck"}}'] = "1"
        series[f'llm_saturation_state{{{labels}, model_name="n", engine="0", state="healthy"}}'] = "1"
        series[f'llm_objective_met{{{labels}, model_name="n", engine="0", objective="decode_tokens_per_second"}}'] = "0"
        for advice in (handbook.states[SaturationState.STUCK], handbook.slow_stream):
            words = json.dumps("\n".join(list_words(advice.change)))
            rows[f'{{target="{backend}", change={words}}}'] = 1
    find_remedies(tmp_path, series, rows, "target, change")


@needs("promtool")
def test_a_model_of_an_ollama_that_is_in_a_state_is_shown_by_that_alone(tmp_path: Path) -> None:
    labels = 'job="phasewatch", instance="pw", target="home", backend="ollama"'
    series = {
        f"llm_target_up{{{labels}}}": "1",
        f'llm_model_loaded{{{labels}, model_name="seen"}}': "1",
        f'llm_saturation_state{{{labels}, model_name="seen", state="stuck"}}': "1",
        f'llm_model_loaded{{{labels}, model_name="probed"}}': "1",
    }
    rows = {'{model_name="seen", state="stuck"}': 1, '{model_name="probed", state="in_memory"}': 1}
    find_remedies(tmp_path, series, rows, "model_name, state")
