"""What an engine did in each phase over a window, whichever way its server counts it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PhaseTotals:
    """Tokens and seconds of each phase, and steps, of one engine over a window. None where the server does not count.

    A backend fills it from histograms or from plain counters; the analysis needs nothing else of a page to know how
    fast both phases are.

    Attributes:
        seconds: length of the window, above 0.
        prefill_tokens: prompt tokens that the engine computed, cached and transferred ones excluded.
        prefill_seconds: time that requests spent in prefill, summed over requests.
        timed_prefill_tokens: the computed prompt tokens that took `prefill_seconds`. A server that counts a request's
            prefill time when it finishes counts other tokens here than in `prefill_tokens`.
        decode_tokens: tokens after the first of each stream.
        decode_seconds: time that streams spent between tokens, summed over streams.
        decode_outputs: outputs of streams after their first; with speculative decoding one holds several tokens.
        generated_tokens: all tokens put out, first ones included.
        steps: steps of the engine that put out at least one token.
        prefix_cache_queries: prompt tokens looked up in the prefix cache.
        prefix_cache_hits: those of them that were found.
    """

    seconds: float
    prefill_tokens: float | None = None
    prefill_seconds: float | None = None
    timed_prefill_tokens: float | None = None
    decode_tokens: float | None = None
    decode_seconds: float | None = None
    decode_outputs: float | None = None
    generated_tokens: float | None = None
    steps: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
