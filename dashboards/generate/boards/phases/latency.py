"""Phases: latency that users see, as time to first token and time between tokens."""

from collections.abc import Mapping
from typing import Any, Final

from dashboards.generate.colours import DECODE, FIRST_TOKEN, INTER_TOKEN, PREFILL, QUEUE
from dashboards.generate.model import Override, Query, TimeSeries
from dashboards.generate.no_value import NOTHING_DECODED
from dashboards.generate.overrides import UNFILLED, fix_colour
from dashboards.generate.queries import ENGINE_LEGEND, INTER_TOKEN_P99, build_quantile_queries, select_engines
from dashboards.generate.remedies import describe_remedies
from phasewatch.analysis.advice.remedy import Cause
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN, SLOW_STREAM

_UPPER, _LOWER = "upper edge", "lower edge"
_SLOWEST_P99: Final = f"max({INTER_TOKEN_P99})"

_QUEUE_TIME, _PREFILL_TIME = (select_engines(f"llm_{name}_time_mean_seconds") for name in ("queue", "prefill"))
_FINISHED_PER_SECOND: Final = f"({select_engines('llm_prefill_streams')} / ({_PREFILL_TIME} > 0) and {_QUEUE_TIME})"
"""Requests per second that finished = (prefill seconds / second) / (prefill seconds / request), where both times are known."""


def build_first_token() -> tuple[TimeSeries, ...]:
    """Time to first token, and its parts: queue and prefill."""
    return (
        TimeSeries(
            title="Queue and prefill, means",
            description=(
                "Where the time to the first token goes: all engines that are chosen and tell both, each request once, when it ends. "
                "Mostly yellow: requests wait, and the board Saturation says for what. Mostly blue: "
                + describe_remedies(SLOW_FIRST_TOKEN, Cause.PREFILL)
            ),
            queries=(
                Query(_query_mean_of_requests(_QUEUE_TIME), "queue", "queue"),
                Query(_query_mean_of_requests(_PREFILL_TIME), "prefill", "prefill"),
            ),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            stacked=True,
            overrides=(_fill_part("queue", QUEUE), _fill_part("prefill", PREFILL)),
            no_value="No request finished in this time, or its two times are not both told",
        ),
        TimeSeries(
            title="Time to first token",
            description=(
                "From arrival to first token, queue and prefill included. The dashed line is where the alert begins for p95. "
                "A p95 far above the mean: some requests wait, or some prompts are long. Requests that still wait are not "
                "in it. Of an Ollama there is only the mean of its probes."
            ),
            queries=_build_latency_queries("llm_time_to_first_token"),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            thresholds=FIRST_TOKEN,
            show_thresholds=True,
            overrides=(UNFILLED,),
            no_value="No first token in this time",
        ),
    )


def build_inter_token() -> tuple[TimeSeries, ...]:
    """Inter-token latency, and how precise its p99 is."""
    return (
        TimeSeries(
            title="Inter-token latency",
            description=(
                "Time between two outputs of a stream. The dashed line is where reading stumbles, and where p99 pages. High "
                f"p99 with a good mean: {describe_remedies(SLOW_STREAM, Cause.SHARED_STEPS)} All high: decode "
                "is slow; fewer streams, smaller weights. Preemptions are in it, too."
            ),
            queries=_build_latency_queries("llm_inter_token_latency"),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            thresholds=INTER_TOKEN,
            show_thresholds=True,
            overrides=(UNFILLED,),
            no_value=NOTHING_DECODED,
        ),
        TimeSeries(
            title="p99 of the slowest engine, and its bucket",
            description=(
                "The band is the bucket of vLLM's histogram that holds the 99th percentile: the truth lies in it, and the "
                "line is interpolated. Judge by the band where it is wide. A lower edge of 0 means at most; no upper edge, "
                "at least."
            ),
            queries=(
                Query(f"{_query_bucket_bound('upper')} >= {_SLOWEST_P99}", _UPPER, "upper"),
                Query(_SLOWEST_P99, "p99", "p99"),
                Query(_query_bucket_bound("lower"), _LOWER, "lower"),
            ),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            overrides=(
                _draw_line(_UPPER, width=0, fill={"custom.fillBelowTo": _LOWER, "custom.fillOpacity": 25}),
                _draw_line(_LOWER, width=0),
                _draw_line("p99", width=2),
            ),
            no_value=NOTHING_DECODED,
        ),
    )


def _build_latency_queries(family: str) -> tuple[Query, ...]:
    """Quantiles and mean of a latency for each engine."""
    mean = Query(select_engines(f"{family}_mean_seconds"), f"mean {ENGINE_LEGEND}", "mean")
    return (*build_quantile_queries(f"{family}_seconds"), mean)


def _query_mean_of_requests(mean: str) -> str:
    """The mean over the requests of all engines, from the mean of each engine."""
    return f"sum({mean} * {_FINISHED_PER_SECOND})\n/ (sum({_FINISHED_PER_SECOND}) > 0)"


def _query_bucket_bound(bound: str) -> str:
    """A bound of the bucket that holds the p99 of the slowest engine: bounds are equal on all engines, so it is the highest."""
    return f"max({select_engines('llm_inter_token_latency_bound_seconds', quantile='0.99', bound=bound)})"


def _fill_part(ref_id: str, colour: str) -> Override:
    properties = {**fix_colour(colour), "custom.lineWidth": 1, "custom.fillOpacity": 60}
    return Override(properties, by_query=ref_id)


def _draw_line(name: str, *, width: int, fill: Mapping[str, Any] | None = None) -> Override:
    """A line in the colour of decode, without a filled area unless `fill` has the properties of one."""
    properties = {**fix_colour(DECODE), "custom.lineWidth": width, **(fill or {"custom.fillOpacity": 0})}
    return Override(properties, by_name=name)
