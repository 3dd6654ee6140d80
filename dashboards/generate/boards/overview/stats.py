"""Overview: the large numbers at the top."""

from typing import Final

from dashboards.generate.colours import INTER_TOKEN, UTILIZATION, WAITING, uncolour_missing
from dashboards.generate.model import TOKENS_PER_SECOND, Query, Stat
from dashboards.generate.queries import INTER_TOKEN_P99, MBU, select_engines
from dashboards.generate.remedies import describe_remedies
from dashboards.generate.states import STATE_CODES, query_state_codes
from phasewatch.analysis.advice.remedy import Cause
from phasewatch.backends.vllm.complaint_advice import SLOW_STREAM

_UNKNOWN: Final = "Not known"


def build_stats() -> tuple[Stat, ...]:
    """Throughput, utilization, and the worst state, latency and queue of all chosen servers."""
    return (
        Stat(
            title="Prefill",
            description=(
                "Prompt tokens computed per second, all servers together; tokens from the prefix cache are not in it. "
                "Prefill is limited by compute and makes the time to first token. How fast one prompt is read, and how "
                "near that is to the ceiling, is in the table."
            ),
            queries=(Query(f"sum({select_engines('llm_prefill_throughput_tokens_per_second')})"),),
            unit=TOKENS_PER_SECOND,
            no_value=_UNKNOWN,
        ),
        Stat(
            title="Decode",
            description=(
                "Tokens after the first of each answer per second (of a llama-server with the first), all streams of all servers together. Decode is limited "
                "by memory bandwidth. How fast one stream is, and how near that is to the ceiling, is in the table."
            ),
            queries=(Query(f"sum({select_engines('llm_decode_throughput_tokens_per_second')})"),),
            unit=TOKENS_PER_SECOND,
            no_value=_UNKNOWN,
        ),
        Stat(
            title="Bandwidth",
            description=(
                "Model bandwidth utilization (MBU) of the busiest engine: engine steps per second x bytes per step / "
                "memory bandwidth. 50 to 80 % is what good engines reach under load; near that, decode cannot get faster "
                "without smaller weights, fewer or shorter streams, or more bandwidth. Above 100 % a fact is wrong, or the "
                "model is a mixture of experts."
            ),
            queries=(Query(f"max({MBU})"),),
            unit="percentunit",
            no_value="Not known: see Phases, Facts",
            decimals=0,
            minimum=0,
            thresholds=UTILIZATION,
        ),
        Stat(
            title="Worst state",
            description=(
                "The most urgent state of any engine, named: why requests wait, if they do. Slots, prefill and a full KV "
                "cache need opposite remedies; the board Saturation says which, and what to change. No queue says nothing "
                "about latencies. Down: a server does not answer. Not known: PhaseWatch itself does not."
            ),
            queries=(Query(f"max({query_state_codes()})"),),
            no_value=_UNKNOWN,
            mappings=STATE_CODES,
            colour_background=True,
        ),
        Stat(
            title="ITL p99",
            description=(
                "The slowest engine: one output of a stream in a hundred comes later than this after the one before. Red "
                f"from {INTER_TOKEN[-1][0]:g} s on, where reading stumbles and the alert pages. High with a good mean: "
                + describe_remedies(SLOW_STREAM, Cause.SHARED_STEPS)
            ),
            queries=(Query(f"max({INTER_TOKEN_P99})"),),
            unit="s",
            no_value="Nothing decoded",
            thresholds=uncolour_missing(INTER_TOKEN),
        ),
        Stat(
            title="Longest queue",
            description=(
                "Requests that wait at the engine that has most of them. Some waiting is normal under load; a queue that grows "
                f"is not. The state says what they wait for. Red from {WAITING[-1][0]:g} on, where the alert on a growing queue begins to look."
            ),
            queries=(Query(f"max({select_engines('llm_requests_waiting')})"),),
            decimals=0,
            no_value=_UNKNOWN,
            thresholds=WAITING,
        ),
    )
