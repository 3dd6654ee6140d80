"""What the alerts say of real servers: each recording plays a target of one Prometheus, and a table tells what fires.

The recordings last two minutes, so everything that the rules wait for is divided by `HURRY`: `for`, `keep_firing_for`,
and the windows of their expressions. Thresholds and the window of the exporter itself stay as they are. But the servers
ran on busy CPUs, so what a reader of a chat may expect is overridden for this site, in the documented way.

Series go into `promtool test rules` second by second, with a stale marker where a scrape lacked what one before had.
Blocks made of OpenMetrics have no such markers: there, what vanishes goes on for five minutes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from alerts.generate import slo
from tests.support.accelerated_rules import accelerate
from tests.support.llamacpp_truth import LLAMACPP
from tests.support.pages import bodies, replayed
from tests.support.paths import RECORDINGS
from tests.support.processes import needs
from tests.support.promtool_plan import list_groups, render_values, selector
from tests.support.rule_files import RULES, promtool

HURRY: Final = 20
STEP: Final = 2
"""Seconds between two evaluations."""
END: Final = 140
"""Seconds until everything was played and what fired at the end has fired."""

SITE: Final = """\
groups:
  - name: site-thresholds
    rules:
      - {record: 'phasewatch_threshold_override:inter_token_latency_seconds', expr: vector(5)}
      - {record: 'phasewatch_threshold_override:time_to_first_token_seconds', expr: vector(10)}
"""
OBJECTIVES: Final = {"inter_token_latency": 5.0, "time_to_first_token": 10.0}

NONE: Final = frozenset[str]()
EXPECTED: Final[Mapping[str, frozenset[str]]] = {
    "batch-ramp": NONE,
    "data-parallel": NONE,
    "disaggregated-decode": NONE,
    # Its four clients wait ten to twenty seconds for a prompt to be computed and written to the shared folder.
    "disaggregated-prefill": frozenset({"LLMTimeToFirstTokenHighPrefill", "LLMTimeToFirstTokenBudgetBurn"}),
    "llamacpp/aborts": NONE,
    "llamacpp/after-1e8": NONE,
    "llamacpp/context-full": NONE,
    "llamacpp/four-streams": NONE,
    "llamacpp/long-prefill": NONE,
    "llamacpp/mixed": NONE,
    "llamacpp/ollama-children": NONE,
    "llamacpp/ollama-children-metrics": NONE,
    "llamacpp/queue": frozenset({"LLMConcurrencyLimited"}),
    "llamacpp/shared-prefix": NONE,
    "llamacpp/single-stream": NONE,
    "llamacpp/sleep": NONE,
    "llamacpp/sleep-disturbed": NONE,
    "llamacpp/speculative": NONE,
    "llamacpp/turnover": NONE,
    "llamacpp/two-scrapers": NONE,
    "llamacpp/two-scrapers.2": NONE,
    "kv-saturation": frozenset({"LLMPreempting", "LLMTimeToFirstTokenHighQueue", "LLMTimeToFirstTokenBudgetBurn"}),
    "mfu-metrics": NONE,
    "paused": frozenset({"LLMEngineStuck", "LLMRequestsDeferred"}),
    # Forty clients of a server that never generates a token: a queue and late answers, and neither a stall nor stuck.
    "pooling": frozenset(
        {
            "LLMPrefillLimited",
            "LLMTimeToFirstTokenHighQueue",
            "LLMTimeToFirstTokenBudgetBurn",
            "LLMWaitingQueueGrowing",
        }
    ),
    # A request that was thrown out while it was read has a long prefill.
    "preemption": frozenset(
        {
            "LLMPreempting",
            "LLMTimeToFirstTokenHighPrefill",
            "LLMTimeToFirstTokenHighQueue",
            "LLMWaitingQueueGrowing",
        }
    ),
    "prefill-interference": frozenset({"LLMInterTokenLatencyHigh"}),
    "prefill-limited": frozenset(
        {"LLMPrefillLimited", "LLMTimeToFirstTokenHighQueue", "LLMTimeToFirstTokenBudgetBurn"}
    ),
    "prefill-limited-long-outputs": frozenset(
        {"LLMPrefillLimited", "LLMTimeToFirstTokenHighQueue", "LLMTimeToFirstTokenBudgetBurn"}
    ),
    "prefix-cache": NONE,
    # Loading the model takes half a minute, ten in the time of the rules.
    "restart": frozenset({"LLMTargetDown"}),
    "rust-front-end": NONE,
    "seq-limit": frozenset({"LLMConcurrencyLimited", "LLMTimeToFirstTokenHighQueue", "LLMTimeToFirstTokenBudgetBurn"}),
    "seq-limit-long-prompts": frozenset(
        {"LLMConcurrencyLimited", "LLMTimeToFirstTokenHighQueue", "LLMTimeToFirstTokenBudgetBurn"}
    ),
    "shedding": frozenset({"LLMShedding"}),
    "single-stream": NONE,
    "speculative": NONE,
    "two-api-servers": NONE,
    "vllm-0.10.0": NONE,
    "vllm-0.10.0-two-api-servers": NONE,
    "vllm-0.12.0": NONE,
    "vllm-0.16.0": NONE,
    "vllm-0.8.5": NONE,
    "vllm-0.9.1": NONE,
}

State = TypeVar("State")
Series = dict[str, dict[int, float]]
"""A series as PromQL writes it -> second -> value."""


@needs("promtool")
def test_each_recording_gets_the_alerts_it_should_and_no_others(tmp_path: Path) -> None:
    series: Series = {selector("up", {"job": "phasewatch", "instance": "pw:10061"}): dict.fromkeys(range(END), 1.0)}
    for name in recordings():
        series |= exported(name) | scraped(name)
    expected = [
        {"labels": selector("", {"alertname": alert, "target": name}), "value": 1}
        for name, alerts in EXPECTED.items()
        for alert in sorted(alerts)
    ]
    fired = 'group by (alertname, target) (max_over_time(ALERTS{alertstate="firing", severity!="info"}[10m]))'
    plan = {
        "rule_files": [path.name for path in hurried_rules(tmp_path)],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": in_order(tmp_path),
        "tests": [
            {
                "interval": "1s",
                "input_series": [{"series": name, "values": render_values(values)} for name, values in series.items()],
                "promql_expr_test": [{"expr": fired, "eval_time": f"{END}s", "exp_samples": expected}],
            }
        ],
    }
    (tmp_path / "plan").write_text(json.dumps(plan))
    promtool("test", "rules", tmp_path / "plan")


def test_every_recording_is_in_the_table() -> None:
    assert sorted(EXPECTED) == recordings()


def recordings() -> list[str]:
    paths = [*RECORDINGS.glob("*.jsonl.xz"), *LLAMACPP.glob("*.jsonl.xz")]
    names = {str(path.relative_to(RECORDINGS)).removesuffix(".jsonl.xz") for path in paths}
    return sorted(name for name in names if not name.endswith((".requests", ".ledger")))


def hurried_rules(folder: Path) -> Iterator[Path]:
    objectives = [
        one.model_copy(update={"seconds": OBJECTIVES[one.name]}) for one in slo.read_objectives(slo.OBJECTIVES)
    ]
    texts = {path.name: path.read_text() for path in sorted(RULES.glob("*.yml"))}
    for name, text in {**texts, "phasewatch-slo.yml": slo.render_rules(objectives), "site.yml": SITE}.items():
        (folder / name).write_text(accelerate(text, HURRY))
        yield folder / name


def in_order(folder: Path) -> list[str]:
    """Names of all groups, those first whose recordings others read. A group left out would be the first."""
    first = ("phasewatch-thresholds.yml", "site.yml", "phasewatch-effective.yml", "phasewatch-recording.yml")
    return list_groups(folder / name for name in (*first, "phasewatch-slo.yml", "phasewatch-alerts.yml"))


def exported(recording: str) -> Series:
    """What PhaseWatch shows of a recording. Its wall clock begins with the test."""
    labels = {"target": recording, "job": "phasewatch", "instance": "pw:10061"}
    read = re.compile(r"\b(?:llm|phasewatch)_\w+")
    used = {name for path in RULES.glob("*.yml") for name in read.findall(path.read_text())}
    series: Series = {}
    start: float | None = None
    for second, metrics in by_the_second(replayed(recording)):
        for (name, own), value in metrics.items():
            relative = value
            if name.endswith("_timestamp_seconds"):
                start = value - second if start is None else start
                relative = value - start
            if name in used:
                series.setdefault(selector(name, {**dict(own), **labels}), {})[second] = relative
    return series


def scraped(recording: str) -> Series:
    """What a Prometheus that scrapes the server itself has for the objectives."""
    bounds = "|".join(f"{seconds:g}" for seconds in OBJECTIVES.values())
    histograms = "|".join(slo.BOUNDS)
    line = re.compile(
        rf'^(vllm:(?:{histograms})_(?:count\{{|bucket\{{(?=[^}}]*le="(?:{bounds})(?:\.0)?"))[^}}]*)\}} (\S+)$',
        re.MULTILINE,
    )
    series: Series = {}
    if recording.startswith(f"{LLAMACPP.name}/"):
        return series
    for second, body in by_the_second(bodies(recording)):
        for name, value in line.findall(body):
            whole = f'{name}, target="{recording}", job="vllm", instance="{recording}"}}'
            series.setdefault(whole, {})[second] = float(value)
    return series


def by_the_second(scrapes: Iterable[tuple[float, State]]) -> Iterator[tuple[int, State]]:
    """The scrape that is the newest at each whole second, for as long as there are any."""
    states = list(scrapes)
    ends = [*(time for time, _ in states[1:]), states[-1][0] + 1]
    second = 0
    for (_, state), end in zip(states, ends, strict=True):
        while second < end:
            yield second, state
            second += 1
