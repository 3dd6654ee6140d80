"""How fast each phase is: prefill and decode, as one request sees them and for the whole server.

Pure functions over a window's increase. Each formula follows from what vLLM 0.8 to 0.32 counts and when:

- `generation_tokens` counts every token, `time_to_first_token` has one observation per sequence, so their difference is
  the tokens that decode made; the first token of a sequence is the last act of its prefill.
- `inter_token_latency` has one observation per sequence and engine output after the first, which with speculative
  decoding covers several tokens. Its sum is the time that streams spent decoding.
- `request_prefill_*` are observed when a request finishes, for the same requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from phasewatch.analysis.samples import EngineSample, Page
from phasewatch.analysis.window import EngineHistory, Increase, subtract_counters

INFLATED: Final = 1.5
"""Counted steps / steps that follow from latency, above which several processes have counted: one gives about 1, two
that are busy about 2."""


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


def compute_phases(
    past: EngineHistory, growth: Increase | None, *, one_api_server: bool | None, version: str | None
) -> Phases:
    """Both phases over a window.

    Args:
        past: the window, scrape by scrape.
        growth: its increase; without one nothing is known.
        one_api_server: whether a single process writes the page (see `engine_steps`).
        version: the server's own word, which pages older than 0.16 need to be understood.
    """
    if growth is None:
        return Phases()
    delta, seconds = growth.grown, growth.seconds
    decoded = _decoded_tokens(delta)
    computed = computed_prompt_tokens(delta, past.samples[-1], version)
    latency = delta.inter_token_latency
    steps = engine_steps(past, delta, one_api_server=one_api_server)
    return Phases(
        prefill_tokens_per_second=_prefill_speed(delta, past.samples[-1]),
        prefill_throughput_tokens_per_second=divide(computed, seconds),
        prefill_streams=divide(delta.prefill_time.sum, seconds) if delta.prefill_time else None,
        decode_tokens_per_second=divide(decoded, latency.sum) if latency else None,
        decode_throughput_tokens_per_second=divide(decoded, seconds),
        decode_streams=divide(latency.sum, seconds) if latency else None,
        tokens_per_step=divide(decoded, latency.count) if latency else None,
        engine_steps_per_second=divide(steps, seconds),
        step_tokens=divide(_sum(computed, delta.generation_tokens), steps),
        prefix_cache_hit_ratio=divide(delta.prefix_cache_hits, delta.prefix_cache_queries),
    )


def divide(numerator: float | None, denominator: float | None) -> float | None:
    """A quotient, or None where a side is unknown or the denominator is not above 0."""
    if numerator is None or denominator is None or denominator <= 0:
        return None
    return numerator / denominator


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _decoded_tokens(delta: EngineSample) -> float | None:
    """Tokens after the first of each sequence. A page of several processes may be read between the update of one
    counter and the other; then their difference can be below 0, and is unknown.
    """
    if delta.generation_tokens is None or delta.time_to_first_token is None:
        return None
    decoded = delta.generation_tokens - delta.time_to_first_token.count
    return decoded if decoded >= 0 else None


def computed_prompt_tokens(delta: EngineSample, now: EngineSample, version: str | None) -> float | None:
    """Prompt tokens that the engine really computed, cached and transferred ones excluded.

    `prompt_tokens_by_source{source="local_compute"}` says so since 0.16. Before, cached tokens have to be taken off;
    0.8 counted them in blocks, so without the version a page that shows hits cannot be read.

    Args:
        delta: the increase of the counters.
        now: the newest sample, for the cache configuration.
        version: the server's version, if known.
    """
    if delta.prompt_tokens_computed is not None:
        return delta.prompt_tokens_computed
    if delta.prompt_tokens is None:
        return None
    if delta.prompt_tokens_cached is not None:
        return _not_negative(delta.prompt_tokens - delta.prompt_tokens_cached)
    if _never_caches(now) or delta.prefix_cache_hits == 0:
        return delta.prompt_tokens
    hits = _hit_tokens(delta, now, version)
    return None if hits is None else _not_negative(delta.prompt_tokens - hits)


def _never_caches(now: EngineSample) -> bool:
    """Whether prefix caching is off. The V0 engine (0.8) says None for that, and counts no look-ups."""
    told = now.cache_config.get("enable_prefix_caching")
    return told == "False" or (told == "None" and now.prefix_cache_queries is None)


def _hit_tokens(delta: EngineSample, now: EngineSample, version: str | None) -> float | None:
    if delta.prefix_cache_hits is None or version is None:
        return None
    if not version.startswith("0.8."):
        return delta.prefix_cache_hits + (delta.external_prefix_cache_hits or 0.0)
    block_size = now.cache_config.get("block_size", "")
    return delta.prefix_cache_hits * int(block_size) if block_size.isdigit() else None


def _not_negative(tokens: float) -> float | None:
    """Hits are counted at admission and prompts at their first token, so over a short window the difference may be
    below 0; then it is unknown.
    """
    return tokens if tokens >= 0 else None


def _prefill_speed(delta: EngineSample, now: EngineSample) -> float | None:
    """Computed prompt tokens / prefill time of the requests that finished.

    Unknown on an engine that takes over finished prefills: the decode side of a disaggregated pair reports the prefill
    side's cached tokens (0.16 to 0.32), so what it computed itself cannot be told.
    """
    if delta.prefill_time is None or delta.prompt_tokens_transferred:
        return None
    tokens = delta.request_computed_tokens
    nothing_cached = _never_caches(now) or now.prefix_cache_hits == 0
    if tokens is None and nothing_cached:
        tokens = delta.request_prompt_tokens
    return divide(tokens.sum, delta.prefill_time.sum) if tokens and tokens.count > 0 else None


def engine_steps(past: EngineHistory, delta: EngineSample, *, one_api_server: bool | None) -> float | None:
    """Steps of the engine that put out at least one token.

    `iteration_tokens_total_count` counts them, but each API server process counts every step in which one of its own
    requests took part, so N processes count up to N times (0.8 to 0.32; N is the number of ranks under data parallelism
    by default). With several processes the steps follow from inter-token latency instead, scrape by scrape: while
    anything decodes, one step is one mean latency long, so

        steps = observations / max(1, mean number of streams),    streams = latency sum / time,

    and no more than were counted. Steps that put out nothing but first tokens are not in that figure.

    Args:
        past: the window, scrape by scrape.
        delta: its increase.
        one_api_server: whether one process counts. If None, the count is taken unless it is `INFLATED` against the
            latencies, as it is where several processes are busy.
    """
    counted = delta.iteration_tokens.count if delta.iteration_tokens else None
    if one_api_server or delta.inter_token_latency is None:
        return counted if one_api_server else None
    if delta.inter_token_latency.count == 0 and counted:
        return counted if one_api_server is None else None
    told = list(_steps_between_scrapes(past))
    if one_api_server is None and counted is not None and counted <= INFLATED * sum(steps for steps, _ in told):
        return counted
    # No process misses a step that it took part in, so all of them together never count too few.
    return sum(steps if most is None else min(steps, most) for steps, most in told)


def _steps_between_scrapes(past: EngineHistory) -> Iterator[tuple[float, float | None]]:
    """Steps that follow from latency, and steps that were counted, from each scrape to the next."""
    for (start, before), (end, after) in pairwise(zip(past.times, past.samples, strict=True)):
        delta = subtract_counters(before, after)
        latency = delta.inter_token_latency
        if latency is not None and latency.count > 0:
            counted = delta.iteration_tokens.count if delta.iteration_tokens else None
            yield latency.count / max(1.0, latency.sum / (end - start)), counted


def has_one_api_server(page: Page, sample: EngineSample, configured: int | None) -> bool | None:
    """Whether one process writes the page: as configured, or else by what only a single process exposes.

    None for OpenMetrics without that: the Rust front end is one process, but others may speak the dialect as well.
    """
    if configured is not None:
        return configured == 1
    if page.process_start is not None or sample.created is not None:
        return True
    return None if page.openmetrics else False
