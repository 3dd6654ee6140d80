"""Saturation: assembles the dashboard, with states, remedies, queue and KV cache."""

from collections.abc import Mapping
from typing import Any, Final

from dashboards.generate.boards.saturation.advice import build_advice, query_advice
from dashboards.generate.boards.saturation.causes import build_cache, build_queue, build_states
from dashboards.generate.colours import GOOD, KV_CACHE, QUEUE
from dashboards.generate.model import Column, Dashboard, Override, Query, Row, StateTimeline, Table, TimeSeries
from dashboards.generate.no_value import NO_ENGINE, NO_TARGET
from dashboards.generate.overrides import extend_axis, fix_colour
from dashboards.generate.pack import PHASES, SATURATION, build_dashboard
from dashboards.generate.queries import BY_ENGINE, ENGINE_LEGEND, ENGINE_MATCHERS, select_engines
from dashboards.generate.states import MET, STATE_CODES, STATES, SYMPTOMS, query_state_codes
from phasewatch.analysis.objectives import Objective

_RUNNING, _WAITING, _CACHE = "running", "waiting", "cache"
"""Reference ids of queries."""

_OBJECTIVES: Final[Mapping[Objective, str]] = {
    Objective.INTER_TOKEN_LATENCY: "Inter-token (p99)",
    Objective.TIME_TO_FIRST_TOKEN: "First token (p95)",
    Objective.DECODE_TOKENS_PER_SECOND: "Stream speed",
}
"""What the legend calls each objective."""


def build_saturation() -> Dashboard:
    """What requests wait for, and what to change."""
    return build_dashboard(
        SATURATION,
        "Why do requests wait: slots, prefill, a full KV cache or something else, and what is to be changed?",
        Row("Now", (_build_timeline(), _build_objectives(), _build_remedies(), _build_queue_and_cache())),
        Row("Queue", build_queue()),
        Row("KV cache", build_cache()),
        Row("States", build_states()),
        Row("Advice", build_advice(), collapsed=True),
    )


def _build_timeline() -> StateTimeline:
    return StateTimeline(
        title="State",
        description=(
            "Why requests wait, if they do. Green is no queue and grey idle; whether users are served well is below, under "
            "Objectives. Yellow (slots), blue (prefill), orange (KV cache) and teal (deferred) are queues with different "
            "causes and opposite remedies; red shades lose work or answers. A gap: not known. An Ollama does not "
            "report what waits: it is here only if it is stuck."
        ),
        queries=(Query(query_state_codes(), ENGINE_LEGEND),),
        width=24,
        height=8,
        mappings=STATE_CODES,
        no_value=NO_ENGINE,
        link_to=PHASES,
    )


def _build_objectives() -> StateTimeline:
    return StateTimeline(
        title="Objectives",
        description=(
            "Whether users are served within the objectives of the target: p99 of inter-token latency, p95 of the time to "
            "first token, speed of a stream where one is set. Red beside a green state: no queue, but slow; the table "
            "below says what to change. A gap: no traffic, or too little to decide."
        ),
        queries=tuple(
            Query(
                f'min by ({BY_ENGINE}) (llm_objective_met{{{ENGINE_MATCHERS}, objective="{objective}"}})',
                f"{name} {ENGINE_LEGEND}",
                objective,
            )
            for objective, name in _OBJECTIVES.items()
        ),
        width=24,
        height=8,
        mappings=MET,
        no_value="No traffic in this time, or no latencies are known",
        link_to=PHASES,
    )


def _build_remedies() -> Table:
    return Table(
        title="What to change",
        description=(
            "What each server is doing now, the most urgent first; what that means, what helps, at once first, and what "
            "looks like a remedy but is not. A missed objective beside a queue has a row of its own; of the causes that it "
            "lists, the live page of PhaseWatch names the likely one. The same words are in the alerts and in docs/saturation.md. A state that has "
            "just ended is in the timeline above, and all of the advice at the end of this board."
        ),
        queries=(Query(query_advice()),),
        columns=(
            Column("target", "Target", width=150, link_to=PHASES),
            Column("model_name", "Model", width=150),
            Column("engine", "Engine", width=65),
            Column("state", "State", width=120, mappings={**STATES, **SYMPTOMS}),
            Column("meaning", "What it means", wrap_text=True),
            Column("change", "What to change", wrap_text=True),
            Column("avoid", "What not to do", wrap_text=True),
        ),
        width=24,
        height=14,
        no_value=NO_TARGET,
    )


def _build_queue_and_cache() -> TimeSeries:
    return TimeSeries(
        title="Queue and KV cache",
        description=(
            "Left: requests that run (green) and wait (yellow). Right: share of the KV cache in use (orange, dashed). Engines "
            "have the same colours; the legend and a pointer on a line tell which is which. Waiting beside a full cache is a matter of memory; beside an empty one, of slots if what runs stands still at its "
            "most, else of prefill. Choose one target above to see it alone."
        ),
        queries=(
            Query(select_engines("llm_requests_running"), f"running {ENGINE_LEGEND}", _RUNNING),
            Query(select_engines("llm_requests_waiting"), f"waiting {ENGINE_LEGEND}", _WAITING),
            Query(select_engines("llm_kv_cache_usage_ratio"), f"KV cache {ENGINE_LEGEND}", _CACHE),
        ),
        width=24,
        height=9,
        minimum=0,
        overrides=(
            extend_axis(1),
            _draw_query(_RUNNING, GOOD, {"custom.fillOpacity": 0}),
            _draw_query(_WAITING, QUEUE, {"custom.fillOpacity": 10}),
            _draw_query(
                _CACHE,
                KV_CACHE,
                {
                    "custom.fillOpacity": 0,
                    "custom.axisPlacement": "right",
                    "custom.lineStyle": {"fill": "dash", "dash": [4, 4]},
                    "unit": "percentunit",
                    "max": 1,
                },
            ),
        ),
        no_value=NO_ENGINE,
    )


def _draw_query(ref_id: str, colour: str, properties: Mapping[str, Any]) -> Override:
    """Draws all engines in one colour: its shades would look like the colours of the other queries."""
    return Override({**fix_colour(colour), **properties}, by_query=ref_id)
