"""Phases: speeds against ceilings, throughput, streams, engine steps and context."""

from typing import Final

from dashboards.generate.colours import GREY, KV_CACHE
from dashboards.generate.model import PER_SECOND, TOKENS_PER_SECOND, Override, Query, TimeSeries
from dashboards.generate.no_value import NO_ENGINE, NO_REQUEST_FINISHED, NOTHING_DECODED
from dashboards.generate.overrides import UNFILLED, dash_limit, extend_axis, fix_colour
from dashboards.generate.queries import ENGINE_LEGEND, select_engines
from dashboards.generate.thresholds import read_threshold

_SPEED, _WEIGHTS, _READ = "speed", "weights", "read"

_STEPS: Final = select_engines("llm_engine_steps_per_second")
_READ_BYTES: Final = select_engines("llm_memory_read_bytes_per_second", source="derived")
_WEIGHT_BYTES: Final = f"sum({_STEPS} * {select_engines('llm_weight_read_bytes')} and {_READ_BYTES})"
_STEPS_WITH_READ_BYTES: Final = f"(sum({_STEPS} and {_READ_BYTES}) > 0)"
"""Per second, of the engines whose reads are known: weight bytes that are read, and steps."""

_WEIGHT_BYTES_PER_STEP: Final = f"{_WEIGHT_BYTES}\n/ {_STEPS_WITH_READ_BYTES}"
# Weights of a mixture of experts are estimated, and may exceed all that is read by a little.
_KV_CACHE_BYTES_PER_STEP: Final = f"clamp_min((sum({_READ_BYTES}) - {_WEIGHT_BYTES}) / {_STEPS_WITH_READ_BYTES}, 0)"


def build_speeds() -> tuple[TimeSeries, ...]:
    """Speed, throughput and concurrency: prefill on the left, decode on the right."""
    return (
        TimeSeries(
            title="Prefill, speed of one request",
            description=(
                "Computed prompt tokens / time from first scheduling to first token. Dashed: what compute allows, if the "
                "facts are known; the axis is logarithmic to hold both. Near the dashed line only less work or more "
                "compute helps. Far below it: prompts share the device with each other and with streams."
            ),
            queries=(
                Query(select_engines("llm_prefill_tokens_per_second"), ENGINE_LEGEND, _SPEED),
                Query(select_engines("llm_prefill_ceiling_tokens_per_second"), f"ceiling {ENGINE_LEGEND}", _WEIGHTS),
            ),
            width=12,
            height=9,
            unit=TOKENS_PER_SECOND,
            log_base=10,
            overrides=(UNFILLED, dash_limit(_WEIGHTS)),
            no_value=NO_REQUEST_FINISHED,
        ),
        TimeSeries(
            title="Decode, speed of one stream",
            description=(
                "Tokens per second as a reader sees them; 5 is reading speed. Long dashes: what bandwidth allows one stream "
                "alone (weights); short ones: at the present batch and context (read). Near the short ones the device is at "
                "its limit; far below, look for prompts in the steps and for preemptions."
            ),
            queries=(
                Query(select_engines("llm_decode_tokens_per_second"), ENGINE_LEGEND, _SPEED),
                Query(
                    select_engines("llm_decode_ceiling_tokens_per_second", basis="read"),
                    f"ceiling, read {ENGINE_LEGEND}",
                    _READ,
                ),
                Query(
                    select_engines("llm_decode_ceiling_tokens_per_second", basis="weights"),
                    f"ceiling, weights {ENGINE_LEGEND}",
                    _WEIGHTS,
                ),
            ),
            width=12,
            height=9,
            unit=TOKENS_PER_SECOND,
            log_base=10,
            overrides=(UNFILLED, dash_limit(_READ, dash=3), dash_limit(_WEIGHTS)),
            no_value=NOTHING_DECODED,
        ),
        _build_time_series(
            "Prefill, throughput",
            (
                "Prompt tokens that the server computed per second, all requests together; what the prefix cache had is not "
                "in it. A prompt counts as a whole when its first token comes, so long prompts come in jumps."
            ),
            "llm_prefill_throughput_tokens_per_second",
            unit=TOKENS_PER_SECOND,
        ),
        _build_time_series(
            "Decode, throughput",
            (
                "Tokens after the first of each answer per second, all streams together; of a llama-server with the first. Good: it grows with the streams. If "
                "it stands still while they grow, the device is at its limit and each stream only gets slower."
            ),
            "llm_decode_throughput_tokens_per_second",
            unit=TOKENS_PER_SECOND,
        ),
        _build_time_series(
            "Prefill, requests at once",
            (
                f"Mean number of requests in prefill. Below {read_threshold('decode_ceiling_prefill_streams'):g} prompts hardly disturb the streams. Above 1 prompts wait for "
                "each other: each takes longer though the server does no less. Counted when a request ends, so it lags."
            ),
            "llm_prefill_streams",
        ),
        _build_time_series(
            "Decode, streams at once",
            (
                "Mean number of streams that decode: the batch that one reading of the weights serves. More of them make "
                "better use of the device and each a little slower; what is good is a matter of the speed that users need."
            ),
            "llm_decode_streams",
        ),
    )


def build_steps() -> tuple[TimeSeries, ...]:
    """Rate of engine steps, and the tokens in each."""
    return (
        _build_time_series(
            "Steps per second",
            (
                "Steps that put out a token. Without speculation it is the most tokens per second that a stream can get. Few "
                "steps with many tokens each: prompts are read in them."
            ),
            "llm_engine_steps_per_second",
            unit=PER_SECOND,
            width=8,
        ),
        _build_time_series(
            "Tokens per step, all requests",
            (
                "Prompt and generated tokens of a mean step. Near the number of streams: decode alone. Near "
                "--max-num-batched-tokens: steps are full of prompts, and streams stall in them. With chunked prefill the "
                "figure is too high, since a prompt counts in its last step."
            ),
            "llm_step_tokens",
            width=8,
            no_value="No step was made in this time",
        ),
        _build_time_series(
            "Tokens per step, one stream",
            (
                "1 without speculative decoding, more with it: as many tokens come from one reading of the weights. Near 1 "
                "in spite of speculation: its guesses are turned down, and cost compute for nothing."
            ),
            "llm_tokens_per_step",
            width=8,
            no_value=NOTHING_DECODED,
        ),
    )


def build_context() -> tuple[TimeSeries, ...]:
    """How contexts grow, and what a step reads because of them."""
    return (
        _build_time_series(
            "Context of a running request",
            (
                "Mean tokens that a running request holds in the KV cache. As it grows, each step reads more and fewer "
                "requests fit. To hold it down: shorter prompts, fewer tokens asked for, a lower --max-model-len."
            ),
            "llm_context_tokens",
            unit="suffix: tok",
            width=8,
            no_value="Nothing ran, or the server does not report its KV cache",
        ),
        TimeSeries(
            title="Bytes that a step reads",
            description=(
                "A mean step of all engines that are chosen. Weights are read once for all streams; the KV cache of every "
                "stream comes on top and grows with batch and context. Where it is the larger part, --kv-cache-dtype fp8 or "
                "fewer and shorter streams help more than smaller weights."
            ),
            queries=(
                Query(_WEIGHT_BYTES_PER_STEP, "weights", "weights"),
                Query(_KV_CACHE_BYTES_PER_STEP, "KV cache", "cache"),
            ),
            width=8,
            height=7,
            unit="decbytes",
            minimum=0,
            stacked=True,
            overrides=(_fill_part("weights", GREY), _fill_part("cache", KV_CACHE)),
            no_value="Idle, or a fact is missing: see above",
        ),
        _build_time_series(
            "Prefix cache hits",
            (
                "Share of prompt tokens that were found in the prefix cache and not computed again. High is good and spares "
                "prefill, not decode. Low though prompts begin alike: put what they share at their beginning, and give the "
                "KV cache more room."
            ),
            "llm_prefix_cache_hit_ratio",
            unit="percentunit",
            width=8,
            maximum=1,
            no_value="No prompt was looked up in this time",
        ),
    )


def _build_time_series(
    title: str,
    description: str,
    name: str,
    *,
    unit: str = "short",
    width: int = 12,
    maximum: float | None = None,
    no_value: str = NO_ENGINE,
) -> TimeSeries:
    """One metric of each engine over time."""
    return TimeSeries(
        title=title,
        description=description,
        queries=(Query(select_engines(name), ENGINE_LEGEND),),
        width=width,
        height=7,
        unit=unit,
        minimum=0,
        maximum=maximum,
        overrides=(extend_axis(1),),
        no_value=no_value,
    )


def _fill_part(ref_id: str, colour: str) -> Override:
    return Override({**fix_colour(colour), "custom.fillOpacity": 60}, by_query=ref_id)
