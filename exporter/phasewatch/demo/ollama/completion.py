"""What a prompt costs on a simulated Ollama runner: tokens, cached and computed, and the time of both phases.

Counts and durations are those of llama-server's timings, as Ollama passes them on. `prompt_eval_count` includes cached
tokens, `prompt_eval_duration` does not. The first generated token is part of the prompt's duration, so `eval_duration`
covers one token less than `eval_count`, and is 1 microsecond for a single token.
"""

import json
from dataclasses import dataclass
from typing import Final

from phasewatch.demo.ollama.api import GenerateRequest, Refusal
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model

_MICROSECOND: Final = 1_000

_TOO_LONG: Final = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt and its reply. Durations in nanoseconds.

    Attributes:
        prompt_count: prompt tokens, including cached ones.
        cached_count: prompt tokens that were in the runner's cache.
        prompt_duration: prefill time.
        eval_count: generated tokens.
        eval_duration: decode time.
        done_reason: why the reply ended: `stop` or `length`.
        reply: the generated words.
    """

    prompt_count: int
    cached_count: int
    prompt_duration: int
    eval_count: int
    eval_duration: int
    done_reason: str
    reply: tuple[str, ...]


def simulate_completion(
    model: Model, request: GenerateRequest, num_ctx: int, cached_words: tuple[str, ...], *, warm: bool
) -> Completion:
    """The completion of a request.

    Args:
        model: the model.
        request: the request.
        num_ctx: context length of the runner, tokens.
        cached_words: words that the runner's slot holds from the previous request.
        warm: whether the runner has completed a prompt before.

    Raises:
        Refusal: the prompt is longer than the context, and the request does not allow cutting it.
    """
    count = _fit_to_context(_count_tokens(model, len(request.words)), request, num_ctx)
    common = _count_common_words(request.words, cached_words)
    # The last token is always computed: the next one follows from it.
    cached_count = min(1 + int(common * model.tokens_per_word), count - 1) if cached_words else 0
    # num_predict is `omitempty` on the way to the runner, so 0 is not sent, which means no limit.
    limit = request.num_predict if request.num_predict > 0 else 10 * num_ctx
    if not request.options.shift:
        limit = min(limit, num_ctx - count)
    eval_count = min(limit, model.reply_tokens or limit)
    slowdown = 1.0 if warm else model.cold_factor
    prefill = model.prefill_fixed_seconds + model.prefill_seconds_per_token * (count - cached_count)
    decode = model.decode_seconds_per_token * (eval_count - 1)
    return Completion(
        prompt_count=count,
        cached_count=cached_count,
        prompt_duration=_round_to_microseconds(prefill * slowdown),
        eval_count=eval_count,
        eval_duration=max(_MICROSECOND, _round_to_microseconds(decode * slowdown)),
        done_reason="length" if eval_count == limit else "stop",
        reply=tuple(f"word{index}" for index in range(max(1, round(eval_count / model.tokens_per_word)))),
    )


def _count_common_words(words: tuple[str, ...], others: tuple[str, ...]) -> int:
    shorter = min(len(words), len(others))
    if words[:shorter] == others[:shorter]:  # a conversation that goes on
        return shorter
    differences = (index for index, (word, other) in enumerate(zip(words, others, strict=False)) if word != other)
    return next(differences)


def _count_tokens(model: Model, words: int) -> int:
    return 1 + round(words * model.tokens_per_word)


def _fit_to_context(count: int, request: GenerateRequest, num_ctx: int) -> int:
    """The prompt's tokens after cutting it to the context (llm/llama_server.go)."""
    if count < num_ctx:
        return count
    if not request.truncate:
        message = f"request ({count} tokens) exceeds the available context size ({num_ctx} tokens), try increasing it"
        error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        nested = {"error": {**error, "n_prompt_tokens": count, "n_ctx": num_ctx}}
        raise Refusal(400, json.dumps(nested, separators=(",", ":")))
    if not request.options.shift:
        raise Refusal(400, _TOO_LONG)
    kept = request.num_keep + 1
    return num_ctx - max((num_ctx - kept) // 2, 1)


def _round_to_microseconds(seconds: float) -> int:
    """Nanoseconds, rounded to whole microseconds."""
    return round(seconds * SECOND / _MICROSECOND) * _MICROSECOND
