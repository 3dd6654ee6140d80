"""Phases: what users feel of them, the time to the first token and the time between tokens."""

from dashboards.generate.model import Lines, Override, Query
from dashboards.generate.pack import (
    DECODE,
    ENGINE_NAME,
    FIRST_TOKEN,
    INTER_TOKEN,
    PREFILL,
    QUEUE,
    UNFILLED,
    of_engine,
)

_NOTHING_DECODED = "Nothing was decoded in this time"
_UPPER, _LOWER = "upper edge", "lower edge"


def first_token() -> tuple[Lines, ...]:
    """Queue and prefill, and what comes of them."""
    return (
        Lines(
            title="Queue and prefill, means",
            description=(
                "Where the time to the first token goes: all engines that are chosen and tell both, each request once, when it ends. "
                "Mostly yellow: requests wait, and the board Saturation says for what. Mostly blue: shorten prompts, keep "
                "prefix caching on, raise --max-num-batched-tokens, use faster devices."
            ),
            queries=(
                Query(_of_requests(_QUEUE_TIME), "queue", "queue"),
                Query(_of_requests(_PREFILL_TIME), "prefill", "prefill"),
            ),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            stacked=True,
            overrides=(_filled("queue", QUEUE), _filled("prefill", PREFILL)),
            empty="No request finished in this time, or its two times are not both told",
        ),
        Lines(
            title="Time to first token",
            description=(
                "From arrival to first token, queue and prefill included. The dashed line is where the alert begins for p95. "
                "A p95 far above the mean: some requests wait, or some prompts are long. Requests that still wait are not "
                "in it. Of an Ollama there is only the mean of its probes."
            ),
            queries=_quantiles("llm_time_to_first_token"),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            steps=FIRST_TOKEN,
            marked=True,
            overrides=(UNFILLED,),
            empty="No first token in this time",
        ),
    )


def inter_token() -> tuple[Lines, ...]:
    """Quantiles and mean, and how exactly the worst is known."""
    return (
        Lines(
            title="Inter-token latency",
            description=(
                "Time between two outputs of a stream. The dashed line is where reading stumbles, and where p99 pages. High "
                "p99 with a good mean: prompts of others stall the steps; lower --max-num-batched-tokens. All high: decode "
                "is slow; fewer streams, smaller weights. Preemptions are in it, too."
            ),
            queries=_quantiles("llm_inter_token_latency"),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            steps=INTER_TOKEN,
            marked=True,
            overrides=(UNFILLED,),
            empty=_NOTHING_DECODED,
        ),
        Lines(
            title="p99 of the slowest engine, and its bucket",
            description=(
                "The band is the bucket of vLLM's histogram that holds the 99th percentile: the truth lies in it, and the "
                "line is interpolated. Judge by the band where it is wide. A lower edge of 0 means at most; no upper edge, "
                "at least."
            ),
            queries=(
                Query(f"{_bound('upper')} >= {_worst()}", _UPPER, "upper"),
                Query(_worst(), "p99", "p99"),
                Query(_bound("lower"), _LOWER, "lower"),
            ),
            width=12,
            height=8,
            unit="s",
            minimum=0,
            overrides=(
                Override({**_drawn(DECODE, 0), "custom.fillBelowTo": _LOWER, "custom.fillOpacity": 25}, name=_UPPER),
                Override({**_drawn(DECODE, 0), "custom.fillOpacity": 0}, name=_LOWER),
                Override({**_drawn(DECODE, 2), "custom.fillOpacity": 0}, name="p99"),
            ),
            empty=_NOTHING_DECODED,
        ),
    )


def _quantiles(family: str) -> tuple[Query, ...]:
    quantiles = {"p99": "0.99", "p95": "0.95", "p50": "0.5"}
    found = [
        Query(of_engine(f"{family}_seconds", quantile=quantile), f"{name} {ENGINE_NAME}", name)
        for name, quantile in quantiles.items()
    ]
    return (*found, Query(of_engine(f"{family}_mean_seconds"), f"mean {ENGINE_NAME}", "mean"))


_QUEUE_TIME, _PREFILL_TIME = (of_engine(f"llm_{name}_time_mean_seconds") for name in ("queue", "prefill"))
_FINISHED = f"({of_engine('llm_prefill_streams')} / ({_PREFILL_TIME} > 0) and {_QUEUE_TIME})"
"""Requests per second that finished: prefill time / time, over prefill time / requests; of engines that tell both times."""


def _of_requests(mean: str) -> str:
    """A mean of each engine as that of all their requests."""
    return f"sum({mean} * {_FINISHED})\n/ (sum({_FINISHED}) > 0)"


def _worst() -> str:
    return f"max({of_engine('llm_inter_token_latency_seconds', quantile='0.99')})"


def _bound(bound: str) -> str:
    """Buckets of the engines have the same edges, so the slowest engine is in the highest bucket."""
    return f"max({of_engine('llm_inter_token_latency_bound_seconds', quantile='0.99', bound=bound)})"


def _filled(query: str, colour: str) -> Override:
    return Override({**_drawn(colour, 1), "custom.fillOpacity": 60}, query=query)


def _drawn(colour: str, width: int) -> dict[str, object]:
    return {"color": {"mode": "fixed", "fixedColor": colour}, "custom.lineWidth": width}
