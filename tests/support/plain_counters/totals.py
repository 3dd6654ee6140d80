"""Totals of each phase from plain counters."""

from typing import Final

from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory
from phasewatch.backends.page_state import PageContext, PageRules
from tests.support.plain_counters.quirks import find_corrupt_histograms


def measure_totals(past: EngineHistory, _: PageContext) -> PhaseTotals | None:
    """Tokens and seconds of each phase over a history; None for a single scrape."""
    if past.seconds <= 0:
        return None
    growth = past.growth
    return PhaseTotals(
        seconds=past.seconds,
        prefill_tokens=growth.prompt_tokens_computed,
        prefill_seconds=growth.prefill_seconds,
        timed_prefill_tokens=growth.prompt_tokens_computed,
        decode_tokens=growth.generation_tokens,
        decode_seconds=growth.decode_seconds,
        generated_tokens=growth.generation_tokens,
    )


PAGE_RULES: Final = PageRules(
    measure_totals=measure_totals,
    count_interval_steps=lambda past, _: (None,) * (len(past.times) - 1),
    read_kv_cache_size=lambda _: None,
    read_cache_dtype=lambda _: None,
    find_corrupt_histograms=find_corrupt_histograms,
)
