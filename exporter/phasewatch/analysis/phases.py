"""Speeds of prefill and decode, as one request sees them and for the whole engine."""

from dataclasses import dataclass

from phasewatch.analysis.totals import PhaseTotals
from phasewatch.base.optional import add, compute_share, divide


@dataclass(frozen=True, slots=True)
class Phases:
    """Both phases of one engine over the window; None where unknown. The names are those of the metrics."""

    prefill_tokens_per_second: float | None = None
    prefill_throughput_tokens_per_second: float | None = None
    prefill_streams: float | None = None
    decode_tokens_per_second: float | None = None
    decode_throughput_tokens_per_second: float | None = None
    decode_streams: float | None = None
    tokens_per_step: float | None = None
    engine_steps_per_second: float | None = None
    step_tokens: float | None = None
    prefix_cache_hit_ratio: float | None = None


def compute_phases(totals: PhaseTotals | None) -> Phases:
    """Both phases over a window.

    By Little's law, the mean number of requests in a phase is the time that all requests spend in it per second.

    Args:
        totals: totals of the window; None for a single scrape, which gives no rates.
    """
    if totals is None:
        return Phases()
    return Phases(
        prefill_tokens_per_second=divide(totals.timed_prefill_tokens, totals.prefill_seconds),
        prefill_throughput_tokens_per_second=divide(totals.prefill_tokens, totals.seconds),
        prefill_streams=divide(totals.prefill_seconds, totals.seconds),
        decode_tokens_per_second=divide(totals.decode_tokens, totals.decode_seconds),
        decode_throughput_tokens_per_second=divide(totals.decode_tokens, totals.seconds),
        decode_streams=divide(totals.decode_seconds, totals.seconds),
        tokens_per_step=divide(totals.decode_tokens, totals.decode_outputs),
        engine_steps_per_second=divide(totals.steps, totals.seconds),
        step_tokens=divide(add(totals.prefill_tokens, totals.generated_tokens), totals.steps),
        prefix_cache_hit_ratio=compute_share(totals.prefix_cache_hits, totals.prefix_cache_queries),
    )
