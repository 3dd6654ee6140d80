"""What a prompt costs on a simulated Ollama runner: tokens, cached and computed, and the time of both phases.

Counts and durations are those of llama-server's timings, as Ollama hands them on: a prompt is counted whole and timed
without its cached part; the first generated token belongs to the prompt's time, so that `eval_duration` covers one
token less than `eval_count` and is 1 microsecond for a single one.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from phasewatch.demo.ollama.api import Generate, Model, Refusal
from phasewatch.demo.ollama.go_time import SECOND

_MICROSECOND: Final = 1_000

_TOO_LONG: Final = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


@dataclass(frozen=True, slots=True)
class Work:
    """A prompt's two phases; durations in nanoseconds. `reply` are the generated words."""

    prompt_count: int
    cached_count: int
    prompt_duration: int
    eval_count: int
    eval_duration: int
    done_reason: str
    reply: tuple[str, ...]


def work(model: Model, request: Generate, num_ctx: int, cached: Sequence[str], *, warm: bool) -> Work:
    """The work of a request on a runner whose slot last held the words `cached`.

    Raises:
        Refusal: the prompt is longer than the context, and the request forbids to cut it.
    """
    count = _fitting(_token_count(model, len(request.words)), request, num_ctx)
    common = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(request.words, cached, strict=False))
    )
    # The last token is computed always: there is no next one without it.
    cached_count = min(1 + int(common * model.tokens_per_word), count - 1) if cached else 0
    # num_predict is `omitempty` on the way to the runner: 0 arrives as nothing, which is no limit.
    limit = request.num_predict if request.num_predict > 0 else 10 * num_ctx
    if not request.options.shift:
        limit = min(limit, num_ctx - count)
    eval_count = min(limit, model.reply_tokens or limit)
    slowness = 1.0 if warm else model.cold_factor
    prefill = model.prefill_fixed_seconds + model.prefill_seconds_per_token * (count - cached_count)
    decode = model.decode_seconds_per_token * (eval_count - 1)
    return Work(
        prompt_count=count,
        cached_count=cached_count,
        prompt_duration=_whole_microseconds(prefill * slowness),
        eval_count=eval_count,
        eval_duration=max(_MICROSECOND, _whole_microseconds(decode * slowness)),
        done_reason="length" if eval_count == limit else "stop",
        reply=tuple(f"word{index}" for index in range(max(1, round(eval_count / model.tokens_per_word)))),
    )


def _token_count(model: Model, words: int) -> int:
    return 1 + round(words * model.tokens_per_word)


def _fitting(count: int, request: Generate, num_ctx: int) -> int:
    """The prompt's tokens after cutting it to the context (llm/llama_server.go)."""
    if count < num_ctx:
        return count
    if not request.truncate:
        message = f"request ({count} tokens) exceeds the available context size ({num_ctx} tokens), try increasing it"
        told = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        nested = {"error": {**told, "n_prompt_tokens": count, "n_ctx": num_ctx}}
        raise Refusal(400, json.dumps(nested, separators=(",", ":")))
    if not request.options.shift:
        raise Refusal(400, _TOO_LONG)
    kept = request.num_keep + 1
    return num_ctx - max((num_ctx - kept) // 2, 1)


def _whole_microseconds(seconds: float) -> int:
    return round(seconds * SECOND / _MICROSECOND) * _MICROSECOND
