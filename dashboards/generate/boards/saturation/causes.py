"""Saturation: the queue, the KV cache and the states more closely."""

from typing import Final

from dashboards.generate.model import PLAIN, Lines, Override, Query, Shown, Steps, Timeline
from dashboards.generate.pack import (
    BAD,
    CACHE,
    ENGINE_NAME,
    GOOD,
    NEUTRAL,
    OF_ENGINE,
    UNFILLED,
    WAITING,
    limit,
    of_engine,
    reaching,
    threshold,
)
from dashboards.generate.states import STATES

_UNTOLD: Final = "Not told: no vLLM answered, or none has had a request yet"
_NO_CAPACITY: Final = "The server does not tell the size of its KV cache"
_FINISHED: Final = "No request finished in this time"
_CAPACITY: Final = "capacity"
_STALL: Final = threshold("token_stall_seconds")
_GROWTH: Final = threshold("requests_waiting_growth_per_second")
_UNSEEN: Final = ("deferred", "shedding", "stuck")
"""States that neither the queue nor the KV cache shows."""


def _lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    decimals: int | None = None,
    minimum: float | None = 0,
    maximum: float | None = None,
    steps: Steps = PLAIN,
    marked: bool = False,
    overrides: tuple[Override, ...] = (),
    empty: str = _UNTOLD,
) -> Lines:
    return Lines(
        title=title,
        description=description,
        queries=queries,
        width=8,
        height=8,
        unit=unit,
        decimals=decimals,
        minimum=minimum,
        maximum=maximum,
        steps=steps,
        marked=marked,
        overrides=overrides,
        empty=empty,
    )


def _each(name: str) -> Query:
    return Query(of_engine(name), ENGINE_NAME)


def queue() -> tuple[Lines, ...]:
    """How long it is, whether it grows, and how long requests wait in it."""
    quantiles = {"p99": "0.99", "p95": "0.95", "p50": "0.5"}
    return (
        _lines(
            "Growth of the queue",
            (
                "Slope of the waiting requests over the window. Around 0 the server keeps up; below, it drains. Above the "
                "dashed line for minutes it does not keep up, and the alert pages: act on the state, or send less."
            ),
            _each("llm_requests_waiting_growth_per_second"),
            unit="suffix: req/s",
            decimals=2,
            minimum=None,
            steps=((None, GOOD), (_GROWTH, BAD)),
            marked=True,
            overrides=(
                Override({"custom.axisSoftMin": -2 * _GROWTH, "custom.axisSoftMax": 2 * _GROWTH}, pattern=".*"),
            ),
            empty="Not known before the second scrape of a vLLM",
        ),
        _lines(
            "Most requests waiting",
            (
                "The longest queue that any scrape of the window saw. Short peaks that drain are bursts. The dashed line is "
                "the length from which a queue that grows pages."
            ),
            _each("llm_requests_waiting_peak"),
            decimals=0,
            steps=((None, NEUTRAL), (WAITING[-1][0], BAD)),
            marked=True,
            overrides=(reaching(1.1 * threshold("requests_waiting")),),
        ),
        _lines(
            "Token stall",
            (
                "Time since the newest token while requests run. Seconds are a long prompt being read. Above the dashed line "
                "the alert pages: the engine hangs or is paused; keep its log, record it and restart it. Absent when nothing runs."
            ),
            _each("llm_token_stall_seconds"),
            unit="s",
            steps=((None, GOOD), (_STALL, BAD)),
            marked=True,
            overrides=(reaching(1.1 * _STALL),),
            empty="Nothing ran in this time",
        ),
        _lines(
            "Queue time, mean",
            (
                "How long requests that ended had waited for their first step. Near 0 is good. If it is most of the time to "
                "the first token, look at the queue and not at the model. Who waits now is not in it yet."
            ),
            _each("llm_queue_time_mean_seconds"),
            unit="s",
            empty=_FINISHED,
        ),
        _lines(
            "Queue time, quantiles",
            (
                "The same for one in two, twenty and a hundred. vLLM's first bucket ends at 0.3 s, so exactly 0.3 means at "
                "most that, and then the mean tells more. p99 far above p50: bursts."
            ),
            *(
                Query(of_engine("llm_queue_time_seconds", quantile=quantile), f"{name} {ENGINE_NAME}", name)
                for name, quantile in quantiles.items()
            ),
            unit="s",
            overrides=(UNFILLED,),
            empty=_FINISHED,
        ),
        _lines(
            "Preemptions",
            (
                "Running requests that lost their KV cache, per second; counted when they go on. 0 is good, anything above "
                "is work done twice: keep some of the cache free (--watermark), lower --max-num-seqs, or give the cache more "
                "memory."
            ),
            _each("llm_preemptions_per_second"),
            unit="suffix: /s",
            decimals=2,
            overrides=(reaching(0.1),),
        ),
    )


def cache() -> tuple[Lines | Timeline, ...]:
    """How full it is, and what still fits."""
    return (
        _lines(
            "KV cache, highest use",
            (
                "The highest share that any scrape of the window saw. Full without a queue is no trouble but good use, so "
                "no alert looks at this alone. Full beside a queue: raise --gpu-memory-utilization, set --kv-cache-dtype "
                "fp8, or shorten prompts."
            ),
            _each("llm_kv_cache_usage_ratio_peak"),
            unit="percentunit",
            maximum=1,
        ),
        _lines(
            "Tokens in the KV cache",
            (
                "What running requests hold; dashed: all that the cache holds. Near the dashed line requests wait or are "
                "preempted. Far below with a queue: memory is not what they wait for."
            ),
            Query(of_engine("llm_kv_cache_used_tokens"), ENGINE_NAME, "used"),
            Query(of_engine("llm_kv_cache_capacity_tokens"), f"capacity {ENGINE_NAME}", _CAPACITY),
            overrides=(UNFILLED, limit(_CAPACITY)),
            empty=_NO_CAPACITY,
        ),
        _lines(
            "Requests that still fit",
            (
                "Prompts of mean length for which the KV cache has room now. Many beside a queue: raise --max-num-seqs if "
                "all slots are taken. 0: the next one waits. What requests generate needs room, too, so it falls by itself."
            ),
            _each("llm_kv_cache_headroom_requests"),
            decimals=0,
            overrides=(UNFILLED,),
            empty=_NO_CAPACITY,
        ),
        Timeline(
            title="Does the next request fit?",
            description=(
                "Whether a prompt of mean length finds room in the KV cache. Orange for long with a queue: the cache is the "
                "limit, even below 100 %. Orange without one: full use."
            ),
            queries=(Query(of_engine("llm_kv_cache_next_request_fits"), ENGINE_NAME),),
            width=24,
            height=7,
            mappings={"1": Shown("Fits", GOOD), "0": Shown("No room", CACHE)},
            empty=_NO_CAPACITY,
        ),
    )


def states() -> tuple[Lines, ...]:
    """How long each lasted."""
    return (
        Lines(
            title="Share of the last ten minutes",
            description=(
                "How much of ten minutes the engines that are chosen spent in each state; together 100 %. Green and grey are "
                "fine. The alerts ask for one engine at 30 % of slots, prefill, KV cache or deferred, and at 10 % of "
                "preempting or shedding: less is a passing peak."
            ),
            queries=(Query(f"avg by (state) (\n  {_share()}\n) > 0", "{{state}}"),),
            width=12,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            stacked=True,
            overrides=tuple(_named(state, shown) for state, shown in STATES.items()),
            empty=_UNTOLD,
        ),
        Lines(
            title="Deferred, shedding or stuck",
            description=(
                "Share of ten minutes in states that neither a queue nor the KV cache shows: deferred requests wait for a "
                "grammar, an adapter or another server; a server that sheds keeps its queue short by refusing; a stuck one "
                "runs nothing. Dashed lines: where alerts begin for shedding (lower) and deferred."
            ),
            queries=(Query(f"{_share('|'.join(_UNSEEN))} > 0", f"{{{{state}}}} {ENGINE_NAME}"),),
            width=12,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            steps=(
                (None, NEUTRAL),
                (threshold("shedding_ratio"), STATES["shedding"].colour),
                (threshold("saturated_ratio"), STATES["deferred"].colour),
            ),
            marked=True,
            overrides=tuple(_family(state) for state in _UNSEEN),
            empty="None of the three in this time, or no vLLM",
        ),
    )


def _share(wanted: str = ".+") -> str:
    """Share of ten minutes that each engine spent in each of the wanted states, a regular expression."""
    found = f'avg_over_time(llm_saturation_state{{{OF_ENGINE}, state=~"{wanted}"}}[10m])'
    # Of an engine that two exporters see in two states the mean, so that its states are 100 % together.
    return f"avg by (target, model_name, engine, state) ({found})"


def _named(state: str, shown: Shown) -> Override:
    return Override(
        {
            "displayName": shown.text,
            "color": {"mode": "fixed", "fixedColor": shown.colour},
            "custom.fillOpacity": 70,
            "custom.lineWidth": 0,
        },
        name=state,
    )


def _family(state: str) -> Override:
    return Override({"color": {"mode": "fixed", "fixedColor": STATES[state].colour}}, pattern=f"{state} .*")
