"""Overview: charts over time."""

from typing import Final

from dashboards.generate.colours import INTER_TOKEN, WAITING
from dashboards.generate.model import Query, StateTimeline, TimeSeries
from dashboards.generate.no_value import NO_ENGINE, NOTHING_DECODED
from dashboards.generate.pack import PHASES, SATURATION
from dashboards.generate.queries import (
    DECODE_CEILING_RATIO,
    ENGINE_LEGEND,
    INTER_TOKEN_P99,
    PREFILL_CEILING_RATIO,
    select_engines,
)
from dashboards.generate.states import STATE_CODES, query_state_codes
from dashboards.generate.thresholds import read_threshold

_NO_FACTS: Final = "Idle, or device and model unknown: see Phases, Facts"


def build_history() -> tuple[StateTimeline | TimeSeries, ...]:
    """States, queues, KV cache, distance from the ceilings and latency of each engine."""
    return (
        StateTimeline(
            title="State",
            description=(
                "Why requests wait, if they do. Green is no queue, whatever the latencies, and grey idle; yellow (slots), blue (prefill) and orange (KV "
                "cache) are queues with different causes; red shades lose work or answers. A gap: not known."
            ),
            queries=(Query(query_state_codes(), ENGINE_LEGEND),),
            width=12,
            height=8,
            mappings=STATE_CODES,
            no_value=NO_ENGINE,
            link_to=SATURATION,
        ),
        TimeSeries(
            title="Requests that wait",
            description=(
                "A queue that grows is not served. Beside a full KV cache it is a matter of memory; beside an empty one, of "
                "slots or prefill: the state says which."
            ),
            queries=(Query(select_engines("llm_requests_waiting"), ENGINE_LEGEND),),
            width=6,
            height=8,
            minimum=0,
            decimals=0,
            thresholds=WAITING,
            no_value=NO_ENGINE,
            link_to=SATURATION,
        ),
        TimeSeries(
            title="KV cache in use",
            description=(
                "Share of the cache that running requests hold. A new request needs room for its whole prompt, so 80 % may "
                "be full already. Full without a queue is full use and no trouble."
            ),
            queries=(Query(select_engines("llm_kv_cache_usage_ratio"), ENGINE_LEGEND),),
            width=6,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            no_value=NO_ENGINE,
            link_to=SATURATION,
        ),
        TimeSeries(
            title="Prefill, percent of its ceiling",
            description=(
                "Speed at which one prompt is read / what compute allows. It falls when prompts are prefilled together or "
                "beside decoding streams, since each counts the whole time. Low while alone: short prompts, or something "
                "else than compute."
            ),
            queries=(Query(PREFILL_CEILING_RATIO, ENGINE_LEGEND),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            no_value=_NO_FACTS,
            link_to=PHASES,
        ),
        TimeSeries(
            title="Decode, percent of its ceiling",
            description=(
                "Speed of one stream / what memory bandwidth allows at this batch and context (basis read). Half and more "
                f"is good on most devices; below {100 * read_threshold('decode_ceiling_ratio'):g} % while tokens flow, look at prompts in the steps and at the device. "
                "Above 100 %: speculation, a mixture of experts, or a wrong fact."
            ),
            queries=(Query(DECODE_CEILING_RATIO, ENGINE_LEGEND),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            no_value=_NO_FACTS,
            link_to=PHASES,
        ),
        TimeSeries(
            title="Inter-token latency, p99 by server",
            description=(
                "One output in a hundred comes later than this. The dashed line is where the alert pages. Stalls by the "
                "prompts of others and by preemptions are in it; the mean is on the board Phases."
            ),
            queries=(Query(INTER_TOKEN_P99, ENGINE_LEGEND),),
            width=8,
            height=8,
            unit="s",
            minimum=0,
            thresholds=INTER_TOKEN,
            show_thresholds=True,
            no_value=NOTHING_DECODED,
            link_to=PHASES,
        ),
    )
