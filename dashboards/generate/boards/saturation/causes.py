"""Saturation: charts of the queue, the KV cache and the states."""

from typing import Final

from dashboards.generate.colours import BAD, GOOD, KV_CACHE, NEUTRAL
from dashboards.generate.model import (
    NO_THRESHOLDS,
    PER_SECOND,
    Override,
    Query,
    StateTimeline,
    Thresholds,
    TimeSeries,
    ValueMapping,
)
from dashboards.generate.no_value import NO_ENGINE, NO_REQUEST_FINISHED
from dashboards.generate.overrides import ALL_FIELDS, UNFILLED, dash_limit, extend_axis, fix_colour
from dashboards.generate.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    ENGINE_MATCHERS,
    build_quantile_queries,
    select_engines,
)
from dashboards.generate.states import STATES
from dashboards.generate.thresholds import read_threshold
from phasewatch.analysis.saturation import SaturationState

_NO_CAPACITY: Final = "The server does not report the size of its KV cache"
_CAPACITY: Final = "capacity"
_STALL_SECONDS: Final = read_threshold("token_stall_seconds")
_GROWTH: Final = read_threshold("requests_waiting_growth_per_second")
_WAITING: Final = read_threshold("requests_waiting")
_SATURATED: Final = read_threshold("saturated_ratio")
_SHEDDING: Final = read_threshold("shedding_ratio")
_HIDDEN_STATES: Final = (SaturationState.DEFERRED.value, SaturationState.SHEDDING.value, SaturationState.STUCK.value)
"""States that show neither in the queue nor in the KV cache."""


def build_queue() -> tuple[TimeSeries, ...]:
    """Growth and length of the queue, time in it, stalls and preemptions."""
    return (
        _build_time_series(
            "Growth of the queue",
            (
                "Slope of the waiting requests over the window. Around 0 the server keeps up; below, it drains. Above the "
                "dashed line for minutes it does not keep up, and the alert pages: act on the state, or send less."
            ),
            _build_query("llm_requests_waiting_growth_per_second"),
            unit="suffix: req/s",
            decimals=2,
            minimum=None,
            thresholds=((None, GOOD), (_GROWTH, BAD)),
            show_thresholds=True,
            overrides=(
                Override({"custom.axisSoftMin": -2 * _GROWTH, "custom.axisSoftMax": 2 * _GROWTH}, by_regexp=ALL_FIELDS),
            ),
            no_value="Not known before the second scrape, or the server does not report what waits",
        ),
        _build_time_series(
            "Most requests waiting",
            (
                "The longest queue that any scrape of the window saw. Short peaks that drain are bursts. The dashed line is "
                "the length from which a queue that grows pages."
            ),
            _build_query("llm_requests_waiting_peak"),
            decimals=0,
            thresholds=((None, NEUTRAL), (_WAITING, BAD)),
            show_thresholds=True,
            overrides=(extend_axis(1.1 * _WAITING),),
        ),
        _build_time_series(
            "Token stall",
            (
                "Time since the newest token while requests run. Seconds are a long prompt being read. Above the dashed line "
                "the alert pages: the engine hangs or is paused; keep its log, record it and restart it. Absent when nothing runs."
            ),
            _build_query("llm_token_stall_seconds"),
            unit="s",
            thresholds=((None, GOOD), (_STALL_SECONDS, BAD)),
            show_thresholds=True,
            overrides=(extend_axis(1.1 * _STALL_SECONDS),),
            no_value="Nothing ran in this time",
        ),
        _build_time_series(
            "Queue time, mean",
            (
                "How long requests that ended had waited for their first step. Near 0 is good. If it is most of the time to "
                "the first token, look at the queue and not at the model. Who waits now is not in it yet."
            ),
            _build_query("llm_queue_time_mean_seconds"),
            unit="s",
            no_value=NO_REQUEST_FINISHED,
        ),
        _build_time_series(
            "Queue time, quantiles",
            (
                "The same for one in two, twenty and a hundred. vLLM's first bucket ends at 0.3 s, so exactly 0.3 means at "
                "most that, and then the mean tells more. p99 far above p50: bursts."
            ),
            *build_quantile_queries("llm_queue_time_seconds"),
            unit="s",
            overrides=(UNFILLED,),
            no_value=NO_REQUEST_FINISHED,
        ),
        _build_time_series(
            "Preemptions",
            (
                "Running requests that lost their KV cache, per second; counted when they go on. 0 is good, anything above "
                "is work done twice: keep some of the cache free (--watermark, vLLM 0.24 and newer), lower --max-num-seqs, or give the cache more "
                "memory."
            ),
            _build_query("llm_preemptions_per_second"),
            unit=PER_SECOND,
            decimals=2,
            overrides=(extend_axis(0.1),),
        ),
    )


def build_cache() -> tuple[TimeSeries | StateTimeline, ...]:
    """Use of the KV cache, and what still fits."""
    return (
        _build_time_series(
            "KV cache, highest use",
            (
                "The highest share that any scrape of the window saw. Full without a queue is no trouble but good use, so "
                "no alert looks at this alone. Full beside a queue: raise --gpu-memory-utilization, set --kv-cache-dtype "
                "fp8, or shorten prompts."
            ),
            _build_query("llm_kv_cache_usage_ratio_peak"),
            unit="percentunit",
            maximum=1,
        ),
        _build_time_series(
            "Tokens in the KV cache",
            (
                "What running requests hold; dashed: all that the cache holds. Near the dashed line requests wait or are "
                "preempted. Far below with a queue: memory is not what they wait for."
            ),
            Query(select_engines("llm_kv_cache_used_tokens"), ENGINE_LEGEND, "used"),
            Query(select_engines("llm_kv_cache_capacity_tokens"), f"capacity {ENGINE_LEGEND}", _CAPACITY),
            overrides=(UNFILLED, dash_limit(_CAPACITY)),
            no_value=_NO_CAPACITY,
        ),
        _build_time_series(
            "Room for more requests",
            (
                "How many more requests of mean length fit into the KV cache, beyond those that run and wait, until all of "
                "them finish. Above 0 while all slots are taken and inter-token latency is within its objective: raise "
                "--max-num-seqs, which needs a restart. 0: more requests would lead to preemptions."
            ),
            _build_query("llm_kv_cache_headroom_requests"),
            decimals=0,
            overrides=(UNFILLED,),
            no_value=_NO_CAPACITY,
        ),
        StateTimeline(
            title="Does the next request fit?",
            description=(
                "Whether a prompt of mean length finds room in the KV cache. Orange for long with a queue: the cache is the "
                "limit, even below 100 %. Orange without one: full use."
            ),
            queries=(Query(select_engines("llm_kv_cache_next_request_fits"), ENGINE_LEGEND),),
            width=24,
            height=7,
            mappings={"1": ValueMapping("Fits", GOOD), "0": ValueMapping("No room", KV_CACHE)},
            no_value=_NO_CAPACITY,
        ),
    )


def build_states() -> tuple[TimeSeries, ...]:
    """Share of time in each state."""
    return (
        TimeSeries(
            title="Share of the last ten minutes",
            description=(
                "How much of ten minutes the engines that are chosen spent in each state; together 100 %. Green and grey are "
                f"without a queue. The alerts ask for one engine at {100 * _SATURATED:g} % of slots, prefill, KV cache or deferred, and at {100 * _SHEDDING:g} % of "
                "preempting or shedding: less is a passing peak."
            ),
            queries=(Query(f"avg by (state) (\n  {_query_time_share()}\n) > 0", "{{state}}"),),
            width=12,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            stacked=True,
            overrides=tuple(_draw_state(state, mapping) for state, mapping in STATES.items()),
            no_value=NO_ENGINE,
        ),
        TimeSeries(
            title="Deferred, shedding or stuck",
            description=(
                "Share of ten minutes in states that neither a queue nor the KV cache shows: deferred requests wait for a "
                "grammar, an adapter, another server or something unknown; a server that sheds keeps its queue short by "
                "refusing; a stuck one does nothing. Dashed lines: where alerts begin for shedding (lower) and deferred."
            ),
            queries=(Query(f"{_query_time_share('|'.join(_HIDDEN_STATES))} > 0", f"{{{{state}}}} {ENGINE_LEGEND}"),),
            width=12,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            thresholds=(
                (None, NEUTRAL),
                (_SHEDDING, STATES[SaturationState.SHEDDING.value].colour),
                (_SATURATED, STATES[SaturationState.DEFERRED.value].colour),
            ),
            show_thresholds=True,
            overrides=tuple(_colour_engines(state) for state in _HIDDEN_STATES),
            no_value="None of the three in this time, or no server with engines",
        ),
    )


def _query_time_share(states: str = ".+") -> str:
    """PromQL: share of ten minutes that each engine spent in each state that matches a regular expression."""
    share = f'avg_over_time(llm_saturation_state{{{ENGINE_MATCHERS}, state=~"{states}"}}[10m])'
    # Two exporters may report one engine in two states: their mean keeps the sum of its states at 100 %.
    return f"avg by ({BY_ENGINE}, state) ({share})"


def _draw_state(state: str, mapping: ValueMapping) -> Override:
    return Override(
        {
            "displayName": mapping.text,
            **fix_colour(mapping.colour),
            "custom.fillOpacity": 70,
            "custom.lineWidth": 0,
        },
        by_name=state,
    )


def _colour_engines(state: str) -> Override:
    """The colour of a state for the series of every engine, whose names begin with it."""
    return Override(fix_colour(STATES[state].colour), by_regexp=f"{state} .*")


def _build_query(name: str) -> Query:
    return Query(select_engines(name), ENGINE_LEGEND)


def _build_time_series(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    decimals: int | None = None,
    minimum: float | None = 0,
    maximum: float | None = None,
    thresholds: Thresholds = NO_THRESHOLDS,
    show_thresholds: bool = False,
    overrides: tuple[Override, ...] = (),
    no_value: str = NO_ENGINE,
) -> TimeSeries:
    """A chart of a third of the width."""
    return TimeSeries(
        title=title,
        description=description,
        queries=queries,
        width=8,
        height=8,
        unit=unit,
        decimals=decimals,
        minimum=minimum,
        maximum=maximum,
        thresholds=thresholds,
        show_thresholds=show_thresholds,
        overrides=overrides,
        no_value=no_value,
    )
