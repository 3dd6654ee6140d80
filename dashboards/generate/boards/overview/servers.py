"""Overview: the table of servers."""

from typing import Final

from dashboards.generate.colours import (
    DECODE_SHARE,
    FIRST_TOKEN,
    INTER_TOKEN,
    KV_CACHE,
    UTILIZATION,
    WAITING,
    uncolour_missing,
)
from dashboards.generate.model import Column, Query, Table
from dashboards.generate.no_value import NO_TARGET
from dashboards.generate.pack import PHASES, SATURATION
from dashboards.generate.queries import (
    DECODE_CEILING_RATIO,
    INTER_TOKEN_P99,
    MBU,
    OBJECTIVES_MET,
    PREFILL_CEILING_RATIO,
    select_engines,
)
from dashboards.generate.states import MET, STATE_CODES, query_all_state_codes

_KV_CACHE: Final = uncolour_missing(((None, KV_CACHE),))


def build_servers() -> Table:
    """All servers, the most urgent state first."""
    columns = (
        Column("target", "Target", width=175, link_to=SATURATION),
        Column("model_name", "Model", link_to=PHASES),
        Column("engine", "Engine", width=62),
        Column("urgency", "State", width=125, mappings=STATE_CODES),
        Column("objectives", "Objectives", width=90, mappings=MET),
        Column("prefill", "Prefill tok/s", decimals=0, width=100),
        Column("prefill_share", "of ceiling", unit="percentunit", decimals=0, width=82, thresholds=UTILIZATION),
        Column("decode", "Decode tok/s", decimals=1, width=100),
        Column("decode_share", "of ceiling ", unit="percentunit", decimals=0, width=82, thresholds=DECODE_SHARE),
        Column("bandwidth", "Bandwidth", unit="percentunit", decimals=0, width=90, thresholds=UTILIZATION),
        Column("latency", "ITL p99", unit="s", width=85, thresholds=uncolour_missing(INTER_TOKEN)),
        Column("first", "TTFT p95", unit="s", width=90, thresholds=uncolour_missing(FIRST_TOKEN)),
        Column("running", "Running", decimals=0, width=74),
        Column("waiting", "Waiting", decimals=0, width=74, thresholds=WAITING),
        Column("cache", "KV cache", unit="percentunit", decimals=0, width=85, thresholds=_KV_CACHE),
    )
    return Table(
        title="Servers",
        description=(
            "A row for each engine of a vLLM or llama-server, each model that an Ollama has in memory, and each server that is down or of which "
            "no exporter reports any more; the most urgent state is first. The state says why requests wait, the objectives whether "
            "latencies are within those of the target; which one is missed is on the board Saturation, under Objectives. Speeds are those of one request or stream. Ceilings: compute for prefill, memory bandwidth at the present batch and "
            "context for decode (basis read). An empty cell is a number that cannot be known now: nothing was decoded, the "
            "server does not report it (a llama-server has no latencies), or the facts of device and model are missing. An idle llama-server is left "
            "alone so that it can sleep, and has no row meanwhile. A click leads to the closer look."
        ),
        queries=(
            Query(query_all_state_codes(), ref_id="urgency"),
            Query(OBJECTIVES_MET, ref_id="objectives"),
            Query(select_engines("llm_prefill_tokens_per_second"), ref_id="prefill"),
            Query(PREFILL_CEILING_RATIO, ref_id="prefill_share"),
            Query(select_engines("llm_decode_tokens_per_second"), ref_id="decode"),
            Query(DECODE_CEILING_RATIO, ref_id="decode_share"),
            Query(MBU, ref_id="bandwidth"),
            Query(INTER_TOKEN_P99, ref_id="latency"),
            Query(select_engines("llm_time_to_first_token_seconds", quantile="0.95"), ref_id="first"),
            Query(select_engines("llm_requests_running"), ref_id="running"),
            Query(select_engines("llm_requests_waiting"), ref_id="waiting"),
            Query(select_engines("llm_kv_cache_usage_ratio"), ref_id="cache"),
        ),
        columns=columns,
        width=24,
        height=8,
        no_value=NO_TARGET,
    )
