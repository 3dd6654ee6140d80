"""Saturation: why requests wait, and what to change."""

from collections.abc import Mapping
from typing import Any

from dashboards.generate.boards.saturation.advice import advice, advised
from dashboards.generate.boards.saturation.causes import cache, queue, states
from dashboards.generate.model import Board, Column, Lines, Override, Query, Section, Table, Timeline
from dashboards.generate.pack import (
    CACHE,
    ENGINE_NAME,
    GOOD,
    QUEUE,
    board,
    of_engine,
    reaching,
)
from dashboards.generate.states import STATE_CODES, STATES, state_code

_RUNNING, _WAITING, _CACHE = "running", "waiting", "cache"
_UNTOLD = "Not told: no vLLM answered, or none has had a request yet"


def saturation() -> Board:
    """The board for what requests wait for."""
    return board(
        "phasewatch-saturation",
        "Why do requests wait: slots, prefill, a full KV cache or something else, and what is to be changed?",
        Section("Now", (_timeline(), _remedies(), _queue_and_cache())),
        Section("Queue", queue()),
        Section("KV cache", cache()),
        Section("States", states()),
        Section("Advice", (advice(),), closed=True),
    )


def _timeline() -> Timeline:
    return Timeline(
        title="State",
        description=(
            "What each engine was doing. Green is healthy and grey idle: nothing is to be done. Yellow (slots), blue "
            "(prefill), orange (KV cache) and teal (deferred) are queues with different causes and opposite remedies; red "
            "shades lose work or answers. A gap: not known. An Ollama does not tell what waits and is not here."
        ),
        queries=(Query(state_code(), ENGINE_NAME),),
        width=24,
        height=8,
        mappings=STATE_CODES,
        empty=_UNTOLD,
        linked="phasewatch-phases",
    )


def _remedies() -> Table:
    return Table(
        title="What to change",
        description=(
            "What each server is doing now, the most urgent first; what that means, what helps, the cheapest first, and what "
            "looks like a remedy and is none. The same words are in the alerts and in docs/saturation.md. A state that has "
            "just ended is in the timeline above, and all of the advice at the end of this board."
        ),
        queries=(Query(advised()),),
        columns=(
            Column("target", "Target", width=105, linked="phasewatch-phases"),
            Column("model_name", "Model", width=105),
            Column("engine", "Engine", width=65),
            Column("state", "State", width=120, mappings=STATES),
            Column("meaning", "What it means", wrapped=True),
            Column("change", "What to change", wrapped=True),
            Column("avoid", "What not to do", wrapped=True),
        ),
        width=24,
        height=10,
        empty="No target is known: does Prometheus scrape PhaseWatch?",
    )


def _queue_and_cache() -> Lines:
    return Lines(
        title="Queue and KV cache",
        description=(
            "Left: requests that run (green) and wait (yellow). Right: share of the KV cache in use (orange, dashed). Engines "
            "have the same colours; the legend and a pointer on a line tell which is which. Waiting beside a full cache is a matter of memory; beside an empty one, of slots if what runs stands still at its "
            "most, else of prefill. Choose one target above to see it alone."
        ),
        queries=(
            Query(of_engine("llm_requests_running"), f"running {ENGINE_NAME}", _RUNNING),
            Query(of_engine("llm_requests_waiting"), f"waiting {ENGINE_NAME}", _WAITING),
            Query(of_engine("llm_kv_cache_usage_ratio"), f"KV cache {ENGINE_NAME}", _CACHE),
        ),
        width=24,
        height=9,
        minimum=0,
        overrides=(
            reaching(1),
            _drawn(_RUNNING, GOOD, {"custom.fillOpacity": 0}),
            _drawn(_WAITING, QUEUE, {"custom.fillOpacity": 10}),
            _drawn(
                _CACHE,
                CACHE,
                {
                    "custom.fillOpacity": 0,
                    "custom.axisPlacement": "right",
                    "custom.lineStyle": {"fill": "dash", "dash": [4, 4]},
                    "unit": "percentunit",
                    "max": 1,
                },
            ),
        ),
        empty=_UNTOLD,
    )


def _drawn(query: str, colour: str, properties: Mapping[str, Any]) -> Override:
    """The lines of all engines in one colour: shades of it would look like the colours of the others."""
    return Override({"color": {"mode": "fixed", "fixedColor": colour}, **properties}, query=query)
