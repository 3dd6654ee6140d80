"""Tokens, seconds and steps of one engine over a window, independent of how its server counts them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PhaseTotals:
    """Totals of one engine over a window; None for those that the server does not count.

    A backend fills them from histograms or from plain counters. They are all that the speeds of both phases need.

    Attributes:
        seconds: length of the window, above 0.
        prefill_tokens: prompt tokens that the engine computed, excluding cached and transferred ones.
        prefill_seconds: time that requests spent in prefill, summed over requests.
        timed_prefill_tokens: the computed prompt tokens to which `prefill_seconds` belongs. They differ from
            `prefill_tokens` if the server counts a request's prefill time only when the request finishes.
        decode_tokens: generated tokens except the first of each stream.
        decode_seconds: time that streams spent between tokens, summed over streams.
        decode_outputs: outputs except the first of each stream; with speculative decoding one holds several tokens.
        generated_tokens: all generated tokens, first ones included.
        steps: engine steps that generated at least one token.
        prefix_cache_queries: prompt tokens of which the server counts how many came from the prefix cache.
        prefix_cache_hits: those that came from the prefix cache.
        local_cache_tokens: prompt tokens that came from the engine's own prefix cache.
        external_cache_tokens: prompt tokens whose keys and values came from another cache or server.
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
    local_cache_tokens: float | None = None
    external_cache_tokens: float | None = None
