"""Ollama: results and cost of the probes, and whether they do harm."""

from collections.abc import Mapping
from typing import Final

from dashboards.generate.boards.ollama.queries import LAST_SUCCESS_AGE_IN_MEMORY, NO_PROBE
from dashboards.generate.colours import BAD, GOOD, WARNING, ZERO_OR_BAD
from dashboards.generate.model import (
    RANGE,
    RATE_INTERVAL,
    Column,
    Override,
    Panel,
    Query,
    Stat,
    StateTimeline,
    Table,
    Thresholds,
    TimeSeries,
    ValueMapping,
)
from dashboards.generate.no_value import NO_EVENTS
from dashboards.generate.queries import BY_MODEL, MODEL_LEGEND, MODEL_MATCHERS, select_models
from phasewatch.backends.ollama.probes.result import QUEUED_SECONDS

_UNPROBED: Final = "No model in memory was probed in this time"
_NO_NUMBERS: Final = "No numbers of a model in memory"

PROBE_RESULTS: Final[Mapping[str, ValueMapping]] = {
    "1": ValueMapping("Answered", GOOD),
    "0": ValueMapping("Failed", BAD),
}
"""Values of llm_probe_success."""

_QUEUED: Final[Thresholds] = ((None, GOOD), (QUEUED_SECONDS, WARNING))
"""From there on the exporter counts a probe as queued, and pauses."""


def build_probe_stats() -> tuple[Stat, ...]:
    """Failed probes, loads that probes caused, and the age of the newest numbers."""
    return (
        Stat(
            title="Bad probes",
            description=(
                "Models in memory whose newest probe failed. A single one happens when a model is removed, say; more than that: see the "
                "reasons below and the log of the server. A server that answers its inventory and no probe hangs."
            ),
            queries=(Query(f"sum({select_models('llm_probe_success')} == bool 0)"),),
            decimals=0,
            thresholds=ZERO_OR_BAD,
            no_value="No probe of a model in memory",
        ),
        Stat(
            title="Probe loads",
            description=(
                "Loads of a model that a probe has caused, in the shown time or with the alert LLMProbeCausedReload firing. It must be 0. "
                "Otherwise that model is not probed any more: see the log line 'model no longer probed', and give the options that its "
                "users load it with (probe.models), or switch its probes off."
            ),
            queries=(Query(_query_caused_reloads(), "in this time"),),
            decimals=0,
            thresholds=ZERO_OR_BAD,
            no_value="No probe yet",
            show_names=True,
        ),
        Stat(
            title="Probe age",
            description=(
                "Time since a probe last gave numbers, of the model in memory that has waited longest. Probes are 5 minutes apart by "
                "default, more where the budget paces them or the server is busy with its users, which is no fault. Much more: see "
                "below why probes were not sent."
            ),
            queries=(Query(f"max({LAST_SUCCESS_AGE_IN_MEMORY})"),),
            unit="s",
            decimals=0,
            no_value=_NO_NUMBERS,
        ),
    )


def build_newest_probes() -> tuple[Panel, ...]:
    """Result, age, duration and wait of the newest probe of each model."""
    return (
        StateTimeline(
            title="Newest probe of each model",
            description=(
                "Green: the newest probe was answered; red: it failed. A gap: the model is not in memory, or none was sent since it "
                "is. Red that stays raises the alert LLMProbeFailing."
            ),
            queries=(Query(select_models("llm_probe_success"), MODEL_LEGEND),),
            width=12,
            height=8,
            mappings=PROBE_RESULTS,
            no_value=_UNPROBED,
        ),
        TimeSeries(
            title="Age of the newest numbers",
            description=(
                "Time since a probe last gave numbers, of models in memory. It falls to 0 with each good probe and rises between them, "
                "5 minutes by default, longer where the budget paces them. Rising without end: see why probes were not sent."
            ),
            queries=(Query(LAST_SUCCESS_AGE_IN_MEMORY, MODEL_LEGEND),),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            no_value=f"{_NO_NUMBERS} in this time",
        ),
        TimeSeries(
            title="Duration of a probe",
            description=(
                "Time that the newest probe took, its wait included and failed ones too. On a server with one slot a user who comes in it "
                "waits for the rest of it. A probe of 1 s is followed by 99 s without one at the default budget."
            ),
            queries=(Query(select_models("llm_probe_duration_seconds"), MODEL_LEGEND),),
            width=6,
            height=8,
            unit="s",
            minimum=0,
            no_value=_UNPROBED,
        ),
        TimeSeries(
            title="Wait for a slot",
            description=(
                "How long the newest probe had to wait behind users' requests; users wait as long. Above the dashed line the "
                "server counts as busy and is left alone for a while. Often above it: raise OLLAMA_NUM_PARALLEL if there is memory "
                "for it, or add a server."
            ),
            queries=(Query(select_models("llm_probe_queue_seconds"), MODEL_LEGEND),),
            width=6,
            height=8,
            unit="s",
            minimum=0,
            thresholds=_QUEUED,
            show_thresholds=True,
            no_value=NO_PROBE,
            overrides=(Override({"custom.axisSoftMax": 0.3}, by_regexp=".+"),),
        ),
    )


def build_probes_without_numbers() -> Table:
    """Failed, skipped and discarded probes by reason."""
    counters = {
        "failed": "llm_probe_failures_total",
        "not sent": "llm_probes_skipped_total",
        "counts for nothing": "llm_probes_discarded_total",
    }
    labels = f"{BY_MODEL}, reason"
    counts = [
        f'label_replace(round({_query_increase(name, RANGE, labels)}) > 0, "what", "{what}", "", "")'
        for what, name in counters.items()
    ]
    return Table(
        title="Probes without numbers in this time",
        description=(
            "How often in the shown time a probe failed, was due and not sent, or gave an answer that counts for nothing, by reason. "
            "budget, active and first_after_load are everyday; quarantined is not. docs/ollama.md has each reason and what to do."
        ),
        queries=(Query("sort_desc(\n  " + "\n  or ".join(counts) + "\n)", ref_id="times"),),
        columns=(
            Column("target", "Target", width=130),
            Column("model_name", "Model"),
            Column("what", "Probe", width=140),
            Column("reason", "Reason", width=140),
            Column("times", "Times", decimals=0, width=70),
        ),
        width=12,
        height=8,
        no_value=NO_EVENTS,
    )


def build_probe_counts() -> tuple[TimeSeries, ...]:
    """Probes over time by outcome and reason."""
    charts = (
        (
            "Probes sent",
            "llm_probes_total",
            "",
            "Idle servers and busy ones are probed least: only models in memory are, when nobody uses them.",
        ),
        (
            "Failed probes by reason",
            "llm_probe_failures_total",
            "reason",
            "Any that comes again and again is worth a look at the server's log.",
        ),
        (
            "Probes not sent by reason",
            "llm_probes_skipped_total",
            "reason",
            "A probe that stays due is counted when its reason begins and then once an interval.",
        ),
        (
            "Discarded answers by reason",
            "llm_probes_discarded_total",
            "reason",
            "The first answer after a load always is: the model was not up to speed.",
        ),
    )
    return tuple(
        TimeSeries(
            title=title,
            description=f"About how many in the moments before each point. {meaning} docs/ollama.md has the reasons and what to do.",
            queries=(
                Query(
                    _query_increase(name, RATE_INTERVAL, f"{BY_MODEL}{', reason' if label else ''}")
                    + (" > 0" if label else ""),
                    MODEL_LEGEND + (" {{reason}}" if label else ""),
                ),
            ),
            width=12,
            height=7,
            unit="none",
            minimum=0,
            bars=True,
            no_value=NO_EVENTS,
        )
        for title, name, label, meaning in charts
    )


def _query_increase(name: str, time_range: str, labels: str) -> str:
    return f"max by ({labels}) (increase({name}{{{MODEL_MATCHERS}}}[{time_range}]))"


def _query_caused_reloads() -> str:
    """PromQL: loads that probes caused. The alert adds those that a new counter began with, which increase() misses."""
    firing = f'ALERTS{{{MODEL_MATCHERS}, alertname="LLMProbeCausedReload", alertstate="firing"}}'
    counted = f"increase(llm_probe_caused_reloads_total{{{MODEL_MATCHERS}}}[{RANGE}])"
    return f"sum(max by ({BY_MODEL}) ({counted} or {firing}))"
