"""What vLLM's counters say of each phase. Each formula follows from what 0.8 to 0.32 count and when:

- `generation_tokens` counts every token, `time_to_first_token` has one observation per sequence, so their difference is
  the tokens that decode made; the first token of a sequence is the last act of its prefill.
- `inter_token_latency` has one observation per sequence and engine output after the first, which with speculative
  decoding covers several tokens. Its sum is the time that streams spent decoding.
- `request_prefill_*` are observed when a request finishes, for the same requests.
"""

from typing import Final

from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory
from phasewatch.backends.page_state import PageContext, PageRules
from phasewatch.backends.vllm import quirks


def measure_totals(past: EngineHistory, context: PageContext) -> PhaseTotals | None:
    """Tokens and seconds of each phase over a history; None for a single scrape."""
    if past.seconds <= 0:
        return None
    growth, now = past.growth, past.newest
    latency, prefill = growth.inter_token_latency, growth.prefill_time
    return PhaseTotals(
        seconds=past.seconds,
        prefill_tokens=quirks.count_computed_prompt_tokens(growth, now, context.version),
        prefill_seconds=prefill.sum if prefill else None,
        timed_prefill_tokens=_count_timed_prefill_tokens(growth, now),
        decode_tokens=_count_decode_tokens(growth),
        decode_seconds=latency.sum if latency else None,
        decode_outputs=latency.count if latency else None,
        generated_tokens=growth.generation_tokens,
        steps=quirks.count_steps(past, one_api_server=_has_one_api_server(context)),
        prefix_cache_queries=growth.prefix_cache_queries,
        prefix_cache_hits=growth.prefix_cache_hits,
    )


def _count_decode_tokens(growth: EngineSample) -> float | None:
    """Tokens after the first of each sequence. A page of several processes may be read between the update of one
    counter and the other; then their difference can be below 0, and is unknown.
    """
    if growth.generation_tokens is None or growth.time_to_first_token is None:
        return None
    decoded = growth.generation_tokens - growth.time_to_first_token.count
    return decoded if decoded >= 0 else None


def _count_timed_prefill_tokens(growth: EngineSample, now: EngineSample) -> float | None:
    """Computed prompt tokens of the requests that finished, as their prefill time is.

    Unknown on an engine that takes over finished prefills: the decode side of a disaggregated pair reports the prefill
    side's cached tokens (0.16 to 0.32), so what it computed itself cannot be known.
    """
    if growth.prompt_tokens_transferred:
        return None
    tokens = growth.request_computed_tokens
    if tokens is None and (quirks.never_caches(now) or now.prefix_cache_hits == 0):
        tokens = growth.request_prompt_tokens
    return tokens.sum if tokens and tokens.count > 0 else None


def _has_one_api_server(context: PageContext) -> bool | None:
    return quirks.has_one_api_server(context.page, context.sample, context.api_servers)


def _count_interval_steps(past: EngineHistory, context: PageContext) -> tuple[float | None, ...]:
    return quirks.count_interval_steps(past, one_api_server=_has_one_api_server(context))


def _read_kv_cache_capacity(context: PageContext) -> float | None:
    return quirks.read_kv_cache_capacity(context.sample, alone=len(context.page.engines) == 1)


PAGE_RULES: Final = PageRules(
    measure_totals=measure_totals,
    count_interval_steps=_count_interval_steps,
    read_kv_cache_capacity=_read_kv_cache_capacity,
    find_corrupt_histograms=quirks.find_corrupt_histograms,
)
