"""Phases: speeds against ceilings, throughputs, streams, steps and context."""

from dashboards.generate.model import Lines, Override, Query
from dashboards.generate.pack import CACHE, ENGINE_NAME, UNFILLED, limit, of_engine, reaching

_TOKENS = "suffix: tok/s"
_SPEED, _WEIGHTS, _READ = "speed", "weights", "read"
_IDLE = "Nothing was done in this time"
_UNTOLD = "Not told: no vLLM answered, or none has had a request yet"


def speeds() -> tuple[Lines, ...]:
    """Prefill on the left, decode on the right."""
    return (
        Lines(
            title="Prefill, speed of one request",
            description=(
                "Computed prompt tokens / time from first scheduling to first token. Dashed: what compute allows, if the "
                "facts are known; the axis is logarithmic to hold both. Near the dashed line only less work or more "
                "compute helps. Far below it: prompts share the device with each other and with streams."
            ),
            queries=(
                Query(of_engine("llm_prefill_tokens_per_second"), ENGINE_NAME, _SPEED),
                Query(of_engine("llm_prefill_ceiling_tokens_per_second"), f"ceiling {ENGINE_NAME}", _WEIGHTS),
            ),
            width=12,
            height=9,
            unit=_TOKENS,
            logarithmic=10,
            overrides=(UNFILLED, limit(_WEIGHTS)),
            empty="No request finished in this time",
        ),
        Lines(
            title="Decode, speed of one stream",
            description=(
                "Tokens per second as a reader sees them; 5 is reading speed. Long dashes: what bandwidth allows one stream "
                "alone (weights); short ones: at the present batch and context (read). Near the short ones the device is at "
                "its limit; far below, look for prompts in the steps and for preemptions."
            ),
            queries=(
                Query(of_engine("llm_decode_tokens_per_second"), ENGINE_NAME, _SPEED),
                Query(
                    of_engine("llm_decode_ceiling_tokens_per_second", basis="read"),
                    f"ceiling, read {ENGINE_NAME}",
                    _READ,
                ),
                Query(
                    of_engine("llm_decode_ceiling_tokens_per_second", basis="weights"),
                    f"ceiling, weights {ENGINE_NAME}",
                    _WEIGHTS,
                ),
            ),
            width=12,
            height=9,
            unit=_TOKENS,
            logarithmic=10,
            overrides=(UNFILLED, limit(_READ, dash=3), limit(_WEIGHTS)),
            empty="Nothing was decoded in this time",
        ),
        _lines(
            "Prefill, throughput",
            (
                "Prompt tokens that the server computed per second, all requests together; what the prefix cache had is not "
                "in it. A prompt counts as a whole when its first token comes, so long prompts come in jumps."
            ),
            "llm_prefill_throughput_tokens_per_second",
            unit=_TOKENS,
        ),
        _lines(
            "Decode, throughput",
            (
                "Tokens after the first of each answer per second, all streams together. Good: it grows with the streams. If "
                "it stands still while they grow, the device is at its limit and each stream only gets slower."
            ),
            "llm_decode_throughput_tokens_per_second",
            unit=_TOKENS,
        ),
        _lines(
            "Prefill, requests at once",
            (
                "Mean number of requests in prefill. Below 0.1 prompts hardly disturb the streams. Above 1 prompts wait for "
                "each other: each takes longer though the server does no less. Counted when a request ends, so it lags."
            ),
            "llm_prefill_streams",
        ),
        _lines(
            "Decode, streams at once",
            (
                "Mean number of streams that decode: the batch that one reading of the weights serves. More of them make "
                "better use of the device and each a little slower; what is good is a matter of the speed that users need."
            ),
            "llm_decode_streams",
        ),
    )


def steps() -> tuple[Lines, ...]:
    """What the engine does in its steps."""
    return (
        _lines(
            "Steps per second",
            (
                "Steps that put out a token. Without speculation it is the most tokens per second that a stream can get. Few "
                "steps with many tokens each: prompts are read in them."
            ),
            "llm_engine_steps_per_second",
            unit="suffix: /s",
            width=8,
        ),
        _lines(
            "Tokens per step, all requests",
            (
                "Prompt and generated tokens of a mean step. Near the number of streams: decode alone. Near "
                "--max-num-batched-tokens: steps are full of prompts, and streams stall in them. With chunked prefill the "
                "figure is too high, since a prompt counts in its last step."
            ),
            "llm_step_tokens",
            width=8,
            empty="No step was made in this time",
        ),
        _lines(
            "Tokens per step, one stream",
            (
                "1 without speculative decoding, more with it: as many tokens come from one reading of the weights. Near 1 "
                "in spite of speculation: its guesses are turned down, and cost compute for nothing."
            ),
            "llm_tokens_per_step",
            width=8,
            empty="Nothing was decoded in this time",
        ),
    )


def context() -> tuple[Lines, ...]:
    """How context grows, and what it costs a step."""
    return (
        _lines(
            "Context of a running request",
            (
                "Mean tokens that a running request holds in the KV cache. As it grows, each step reads more and fewer "
                "requests fit. To hold it down: shorter prompts, fewer tokens asked for, a lower --max-model-len."
            ),
            "llm_context_tokens",
            unit="suffix: tok",
            width=8,
            empty="Nothing ran, or the server does not tell its KV cache",
        ),
        Lines(
            title="Bytes that a step reads",
            description=(
                "A mean step of all engines that are chosen. Weights are read once for all streams; the KV cache of every "
                "stream comes on top and grows with batch and context. Where it is the larger part, --kv-cache-dtype fp8 or "
                "fewer and shorter streams help more than smaller weights."
            ),
            queries=(Query(_step_weights(), "weights", "weights"), Query(_step_cache(), "KV cache", "cache")),
            width=8,
            height=7,
            unit="decbytes",
            minimum=0,
            stacked=True,
            overrides=(_fixed("weights", "#6e7687"), _fixed("cache", CACHE)),
            empty="Idle, or a fact is missing: see above",
        ),
        _lines(
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
            empty="No prompt was looked up in this time",
        ),
    )


def _lines(
    title: str,
    description: str,
    name: str,
    *,
    unit: str = "short",
    width: int = 12,
    maximum: float | None = None,
    empty: str = _UNTOLD,
) -> Lines:
    """One metric of each engine over time."""
    return Lines(
        title=title,
        description=description,
        queries=(Query(of_engine(name), ENGINE_NAME),),
        width=width,
        height=7,
        unit=unit,
        minimum=0,
        maximum=maximum,
        overrides=(reaching(1),),
        empty=empty,
    )


def _fixed(query: str, colour: str) -> Override:
    return Override({"color": {"mode": "fixed", "fixedColor": colour}, "custom.fillOpacity": 60}, query=query)


_STEPS = of_engine("llm_engine_steps_per_second")
_READ_BYTES = of_engine("llm_memory_read_bytes_per_second", source="derived")
_WEIGHT_BYTES = f"sum({_STEPS} * {of_engine('llm_weight_read_bytes')} and {_READ_BYTES})"
"""Bytes of weights that are read per second by the engines of which it is known what their steps read."""

_THEIR_STEPS = f"(sum({_STEPS} and {_READ_BYTES}) > 0)"


def _step_weights() -> str:
    return f"{_WEIGHT_BYTES}\n/ {_THEIR_STEPS}"


def _step_cache() -> str:
    """What is read and not of the weights; their estimate for a mixture of experts may exceed the whole by a little."""
    return f"clamp_min((sum({_READ_BYTES}) - {_WEIGHT_BYTES}) / {_THEIR_STEPS}, 0)"
