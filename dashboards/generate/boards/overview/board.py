"""Overview: every target, and whether it is prefill, decode, the queue or the cache."""

from dashboards.generate.model import Board, Column, Lines, Query, Section, Steps, Table, Tile, Timeline
from dashboards.generate.pack import (
    CACHE,
    DECODE_SHARE,
    ENGINE_NAME,
    FIRST_TOKEN,
    INTER_TOKEN,
    UTILIZATION,
    WAITING,
    board,
    of_engine,
    quiet,
    utilization,
)
from dashboards.generate.states import STATE_CODES, state_code, states_by_urgency

_CACHE: Steps = ((None, CACHE),)
_FACTS = "Idle, or device and model unknown: see Phases, Facts"


def overview() -> Board:
    """The board that people open first."""
    return board(
        "phasewatch-overview",
        "Is it prefill, decode, the queue or the cache, and how close to the hardware is each server?",
        Section("Now", (*_tiles(), _fleet())),
        Section("Over time", _courses()),
    )


def _tiles() -> tuple[Tile, ...]:
    return (
        Tile(
            title="Prefill",
            description=(
                "Prompt tokens computed per second, all servers together; tokens from the prefix cache are not in it. "
                "Prefill is limited by compute and makes the time to first token. How fast one prompt is read, and how "
                "near that is to the ceiling, is in the table."
            ),
            queries=(Query(f"sum({of_engine('llm_prefill_throughput_tokens_per_second')})"),),
            unit="suffix: tok/s",
            empty="Not known",
        ),
        Tile(
            title="Decode",
            description=(
                "Tokens after the first of each answer per second, all streams of all servers together. Decode is limited "
                "by memory bandwidth. How fast one stream is, and how near that is to the ceiling, is in the table."
            ),
            queries=(Query(f"sum({of_engine('llm_decode_throughput_tokens_per_second')})"),),
            unit="suffix: tok/s",
            empty="Not known",
        ),
        Tile(
            title="Bandwidth",
            description=(
                "Model bandwidth utilization (MBU) of the busiest engine: engine steps per second x bytes per step / "
                "memory bandwidth. 50 to 80 % is what good engines reach under load; near that, decode cannot get faster "
                "without smaller weights, fewer or shorter streams, or more bandwidth. Above 100 % a fact is wrong, or the "
                "model is a mixture of experts."
            ),
            queries=(Query(f"max({utilization('llm_memory_bandwidth_utilization_ratio')})"),),
            unit="percentunit",
            empty="Not known: see Phases, Facts",
            decimals=0,
            minimum=0,
            steps=UTILIZATION,
        ),
        Tile(
            title="Worst state",
            description=(
                "The most urgent state of any engine, named: why requests wait, if they do. Slots, prefill and a full KV "
                "cache need opposite remedies; the board Saturation tells which, and what to change. Down: a server does "
                "not answer. Not known: PhaseWatch itself does not."
            ),
            queries=(Query(f"max({state_code()})"),),
            empty="Not known",
            mappings=STATE_CODES,
            filled=True,
        ),
        Tile(
            title="ITL p99",
            description=(
                "The slowest engine: one output of a stream in a hundred comes later than this after the one before. Red "
                "from 0.3 s on, where reading stumbles and the alert pages. High with a good mean: prompts of others stall "
                "the steps; lower --max-num-batched-tokens."
            ),
            queries=(Query(f"max({of_engine('llm_inter_token_latency_seconds', quantile='0.99')})"),),
            unit="s",
            empty="Nothing decoded",
            steps=quiet(INTER_TOKEN),
        ),
        Tile(
            title="Longest queue",
            description=(
                "Requests that wait at the engine that has most of them. Some waiting is normal under load; a queue that grows "
                "is not. The state says what they wait for. Red from 10 on, where the alert on a growing queue begins to look."
            ),
            queries=(Query(f"max({of_engine('llm_requests_waiting')})"),),
            decimals=0,
            empty="Not known",
            steps=WAITING,
        ),
    )


def _fleet() -> Table:
    columns = (
        Column("target", "Target", width=130, linked="phasewatch-saturation"),
        Column("model_name", "Model", linked="phasewatch-phases"),
        Column("engine", "Engine", width=62),
        Column("urgency", "State", width=125, mappings=STATE_CODES),
        Column("prefill", "Prefill tok/s", decimals=0, width=100),
        Column("prefill_share", "of ceiling", unit="percentunit", decimals=0, width=82, steps=UTILIZATION),
        Column("decode", "Decode tok/s", decimals=1, width=100),
        Column("decode_share", "of ceiling ", unit="percentunit", decimals=0, width=82, steps=DECODE_SHARE),
        Column("bandwidth", "Bandwidth", unit="percentunit", decimals=0, width=90, steps=UTILIZATION),
        Column("latency", "ITL p99", unit="s", width=85, steps=quiet(INTER_TOKEN)),
        Column("first", "TTFT p95", unit="s", width=90, steps=quiet(FIRST_TOKEN)),
        Column("running", "Running", decimals=0, width=74),
        Column("waiting", "Waiting", decimals=0, width=74, steps=WAITING),
        Column("cache", "KV cache", unit="percentunit", decimals=0, width=85, steps=quiet(_CACHE)),
    )
    return Table(
        title="Servers",
        description=(
            "A row for each engine of a vLLM, each model that an Ollama has in memory, and each server that is down or of which "
            "no exporter tells any more; the most urgent state is first. Speeds are those of one request or stream. Ceilings: compute for prefill, memory bandwidth at the present batch and "
            "context for decode (basis read). An empty cell is a number that cannot be known now: nothing was decoded, the "
            "server does not tell, or the facts of device and model are missing. A click leads to the closer look."
        ),
        queries=(
            Query(states_by_urgency(), name="urgency"),
            Query(of_engine("llm_prefill_tokens_per_second"), name="prefill"),
            Query(of_engine("llm_prefill_ceiling_ratio"), name="prefill_share"),
            Query(of_engine("llm_decode_tokens_per_second"), name="decode"),
            Query(of_engine("llm_decode_ceiling_ratio", basis="read"), name="decode_share"),
            Query(utilization("llm_memory_bandwidth_utilization_ratio"), name="bandwidth"),
            Query(of_engine("llm_inter_token_latency_seconds", quantile="0.99"), name="latency"),
            Query(of_engine("llm_time_to_first_token_seconds", quantile="0.95"), name="first"),
            Query(of_engine("llm_requests_running"), name="running"),
            Query(of_engine("llm_requests_waiting"), name="waiting"),
            Query(of_engine("llm_kv_cache_usage_ratio"), name="cache"),
        ),
        columns=columns,
        width=24,
        height=8,
        empty="No target is known: does Prometheus scrape PhaseWatch?",
    )


def _courses() -> tuple[Timeline | Lines, ...]:
    return (
        Timeline(
            title="State",
            description=(
                "What each engine was doing. Green is healthy and grey idle; yellow (slots), blue (prefill) and orange (KV "
                "cache) are queues with different causes; red shades lose work or answers. A gap: not known."
            ),
            queries=(Query(state_code(), ENGINE_NAME),),
            width=12,
            height=8,
            mappings=STATE_CODES,
            empty="Not told: no vLLM answered, or none has had a request yet",
            linked="phasewatch-saturation",
        ),
        Lines(
            title="Requests that wait",
            description=(
                "A queue that grows is not served. Beside a full KV cache it is a matter of memory; beside an empty one, of "
                "slots or prefill: the state says which."
            ),
            queries=(Query(of_engine("llm_requests_waiting"), ENGINE_NAME),),
            width=6,
            height=8,
            minimum=0,
            decimals=0,
            steps=WAITING,
            empty="Not told: no vLLM answered, or none has had a request yet",
            linked="phasewatch-saturation",
        ),
        Lines(
            title="KV cache in use",
            description=(
                "Share of the cache that running requests hold. A new request needs room for its whole prompt, so 80 % may "
                "be full already. Full without a queue is full use and no trouble."
            ),
            queries=(Query(of_engine("llm_kv_cache_usage_ratio"), ENGINE_NAME),),
            width=6,
            height=8,
            unit="percentunit",
            minimum=0,
            maximum=1,
            empty="Not told: no vLLM answered, or none has had a request yet",
            linked="phasewatch-saturation",
        ),
        Lines(
            title="Prefill, percent of its ceiling",
            description=(
                "Speed at which one prompt is read / what compute allows. It falls when prompts are prefilled together or "
                "beside decoding streams, since each counts the whole time. Low while alone: short prompts, or something "
                "else than compute."
            ),
            queries=(Query(of_engine("llm_prefill_ceiling_ratio"), ENGINE_NAME),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            empty=_FACTS,
            linked="phasewatch-phases",
        ),
        Lines(
            title="Decode, percent of its ceiling",
            description=(
                "Speed of one stream / what memory bandwidth allows at this batch and context (basis read). Half and more "
                "is good on most devices; below 25 % while tokens flow, look at prompts in the steps and at the device. "
                "Above 100 %: speculation, a mixture of experts, or a wrong fact."
            ),
            queries=(Query(of_engine("llm_decode_ceiling_ratio", basis="read"), ENGINE_NAME),),
            width=8,
            height=8,
            unit="percentunit",
            minimum=0,
            empty=_FACTS,
            linked="phasewatch-phases",
        ),
        Lines(
            title="Inter-token latency, p99 by server",
            description=(
                "One output in a hundred comes later than this. The dashed line is where the alert pages. Stalls by the "
                "prompts of others and by preemptions are in it; the mean is on the board Phases."
            ),
            queries=(Query(of_engine("llm_inter_token_latency_seconds", quantile="0.99"), ENGINE_NAME),),
            width=8,
            height=8,
            unit="s",
            minimum=0,
            steps=INTER_TOKEN,
            marked=True,
            empty="Nothing was decoded in this time",
            linked="phasewatch-phases",
        ),
    )
