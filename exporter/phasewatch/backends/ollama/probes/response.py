"""Timings in the final object of /api/generate, without those that are unreliable.

Durations are whole nanoseconds, left out where 0. `prompt_eval_duration` ends and `eval_duration` begins with the first
token, so a GGUF model's `eval_duration` covers one step less than `eval_count` (llama.cpp divides likewise since
b10488); the MLX runner leaves the last token out of the count instead. Quirks by release are in `_times_whole_prompt`
and `_get_resolution`.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from phasewatch.backends.ollama.inventory import OllamaVersion
from phasewatch.base.errors import PhaseWatchError
from phasewatch.scrape.http import HTTP_OK, Response
from phasewatch.snapshot.probes import ProbeReason

FEWEST_TOKENS: Final = 16
"""Least output tokens for a decode rate: shorter outputs last only a few steps."""

_NANO: Final = 1e-9
_MILLISECOND: Final = 1e-3
_MICROSECOND: Final = 1e-6
_RESOLVED: Final = 50
"""Least duration in steps of its clock: shorter ones are off by more than 2 %."""

_CACHED_STEPS: Final = 2.0
"""Least duration of a prompt in decode steps: a faster one was cached, where one token is still computed, or is too
short for a prefill rate.
"""

_LAST_BATCH_ONLY: Final = ((0, 12, 5), (0, 12, 6))
_SMALLEST_BATCH: Final = 512
_MLX_PREFILL_SINCE: Final = (0, 17, 5)
_MILLISECONDS_ONLY: Final = ((0, 4, 0), (0, 6, 1))

# Tokens per second, wide enough for every real machine; a server with other units is off by a factor of 1000 or more.
_DECODE_BAND: Final = (0.01, 20_000.0)
_PREFILL_BAND: Final = (0.05, 2_000_000.0)
_PARTS_TOLERANCE: Final = (1.05, 0.05)


class ProbeError(PhaseWatchError):
    """A probe failed.

    Args:
        reason: class of the failure.
        message: the problem and its remedy; never contains a part of the server's response.
    """

    def __init__(self, reason: ProbeReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class ProbeTimings:
    """Tokens and seconds of one response; None where it lacks a figure, or has an unreliable one.

    Attributes:
        prompt_tokens: the whole prompt, cached tokens included.
        computed_tokens: prompt tokens that were computed.
        prompt_seconds: duration of their computation, up to the first token.
        output_tokens: generated tokens.
        decode_steps: number of steps in `decode_seconds`.
        decode_seconds: time from the first token to the last.
        total_seconds: the whole request, on the server.
        load_seconds: time until the model was ready: waiting for the scheduler, and loading.
        unaccounted_seconds: total - load - prompt - decode: waiting for a slot, and templating.
    """

    prompt_tokens: int | None
    computed_tokens: int | None
    prompt_seconds: float | None
    output_tokens: int
    decode_steps: int
    decode_seconds: float
    total_seconds: float
    load_seconds: float
    unaccounted_seconds: float

    @property
    def decode_tokens_per_second(self) -> float:
        """Decode rate of the single stream."""
        return self.decode_steps / self.decode_seconds

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prefill rate over the computed tokens."""
        if not self.computed_tokens or not self.prompt_seconds:
            return None
        return self.computed_tokens / self.prompt_seconds

    @property
    def first_token_seconds(self) -> float:
        """From the request to its first token without the load, on the server."""
        return self.total_seconds - self.decode_seconds - self.load_seconds


@dataclass(frozen=True, slots=True)
class RequestOverhead:
    """Time of a request outside its two phases, seconds. Available even for outputs too short for `ProbeTimings`.

    Attributes:
        load_seconds: time until the model was ready: waiting for the scheduler, and loading.
        unaccounted_seconds: total - load - prompt - decode: waiting for a slot, and templating.
    """

    load_seconds: float
    unaccounted_seconds: float


def parse_final_object(response: Response) -> dict[str, Any]:
    """The JSON object of a response of /api/generate.

    Raises:
        ProbeError: the server refused the request, did not finish it, or sent something else.
    """
    try:
        payload = json.loads(response.body)
    except (ValueError, RecursionError):
        payload = None
    if response.status != HTTP_OK:
        raise _build_refusal(response.status, payload.get("error") if isinstance(payload, dict) else None)
    if not isinstance(payload, dict):
        raise ProbeError(ProbeReason.PARSE, "the answer is no JSON object")
    if payload.get("done") is not True:
        message = "the answer ends without done: true, as after an error or a repeated token; it counts for nothing"
        raise ProbeError(ProbeReason.NOT_DONE, message)
    return payload


def _build_refusal(status: int, error: Any) -> ProbeError:
    words = error if isinstance(error, str) else ""
    if status == 503:  # noqa: PLR2004  # Service Unavailable
        return ProbeError(ProbeReason.BUSY, "the server's queue is full (503)")
    if status == 404:  # noqa: PLR2004  # Not Found
        return ProbeError(ProbeReason.MODEL_GONE, "the server no longer has the model (404)")
    if status in {401, 403}:
        return ProbeError(
            ProbeReason.AUTH, f"the server answered {status}: set authorization, or give its url by IP address"
        )
    too_long = "exceed_context_size" in words or "longer than the context" in words
    if status == 400 and too_long:  # noqa: PLR2004  # Bad Request
        return ProbeError(ProbeReason.CONTEXT_EXCEEDED, "the prompt is longer than the model's context")
    if status == 400 and "does not support generate" in words:  # noqa: PLR2004  # Bad Request
        return ProbeError(ProbeReason.UNSUPPORTED, "the model does not complete text")
    return ProbeError(ProbeReason.HTTP_STATUS, f"the server answered {status} instead of 200")


def extract_timings(
    payload: dict[str, Any], *, version: OllamaVersion | None, model_format: str
) -> ProbeTimings | None:
    """The timings in a final object.

    Args:
        payload: the final object, as `parse_final_object` returns it.
        version: version of the server; None stands for the newest.
        model_format: `gguf`, or `safetensors` for the MLX runner.

    Returns:
        The timings; None for too few output tokens.

    Raises:
        ProbeError: `parse`, `no_numbers` or `implausible`.
    """
    overhead = measure_overhead(payload)
    total, decode = _get_seconds(payload, "total_duration"), _get_seconds(payload, "eval_duration")
    output = _get_count(payload, "eval_count")
    if output is not None and output < FEWEST_TOKENS:
        return None
    if total is None or decode is None or output is None:
        raise _build_missing_durations()
    mlx = model_format == "safetensors"
    timings = ProbeTimings(
        prompt_tokens=_get_count(payload, "prompt_eval_count"),
        computed_tokens=_count_computed_tokens(payload),
        prompt_seconds=_get_seconds(payload, "prompt_eval_duration"),
        output_tokens=output,
        decode_steps=output if mlx else output - 1,
        decode_seconds=decode,
        total_seconds=total,
        load_seconds=overhead.load_seconds,
        unaccounted_seconds=overhead.unaccounted_seconds,
    )
    return _drop_unreliable_prefill(timings, version, mlx=mlx)


def measure_overhead(payload: dict[str, Any]) -> RequestOverhead:
    """The overhead of the request of a final object, however short its output.

    Raises:
        ProbeError: `parse`, `no_numbers` or `implausible`.
    """
    if str(payload.get("done_reason")) in {"load", "unload"}:  # a list has no hash
        raise ProbeError(ProbeReason.NO_NUMBERS, "the server loaded or unloaded the model and put out nothing")
    total = _get_seconds(payload, "total_duration")
    prompt, decode = _get_seconds(payload, "prompt_eval_duration"), _get_seconds(payload, "eval_duration")
    if total is None or (prompt is None and decode is None):
        raise _build_missing_durations()
    load = _get_seconds(payload, "load_duration") or 0.0
    factor, slack = _PARTS_TOLERANCE
    parts = load + (prompt or 0.0) + (decode or 0.0)
    if parts > total * factor + slack:
        raise ProbeError(ProbeReason.IMPLAUSIBLE, "the parts of the answer's duration are longer than the whole")
    return RequestOverhead(load, total - parts)


def _build_missing_durations() -> ProbeError:
    return ProbeError(ProbeReason.NO_NUMBERS, "the answer has no durations, as that of a model on another machine")


def _drop_unreliable_prefill(timings: ProbeTimings, version: OllamaVersion | None, *, mlx: bool) -> ProbeTimings:
    """The timings, without those of the prompt if they are unreliable.

    Raises:
        ProbeError: `implausible` if no machine has such a rate, `no_numbers` if decode is too short for its clock.
    """
    resolution = _get_resolution(version)
    if timings.decode_seconds < _RESOLVED * resolution:
        if resolution == _MILLISECOND:
            raise ProbeError(
                ProbeReason.NO_NUMBERS, "releases 0.4.0 to 0.6.1 count whole milliseconds: too coarse here"
            )
        raise _build_wrong_units()
    _check_band(_DECODE_BAND, timings.decode_tokens_per_second)
    _check_band(_PREFILL_BAND, timings.prefill_tokens_per_second)
    step = timings.decode_seconds / timings.decode_steps
    reliable = (
        timings.prompt_seconds is not None
        and timings.prompt_seconds >= max(_RESOLVED * resolution, _CACHED_STEPS * step)
        and _times_whole_prompt(version, timings.prompt_tokens, mlx=mlx)
    )
    if reliable:
        return timings
    return replace(timings, computed_tokens=None, prompt_seconds=None)


def _check_band(band: tuple[float, float], rate: float | None) -> None:
    if rate is not None and not band[0] <= rate <= band[1]:
        raise _build_wrong_units()


def _build_wrong_units() -> ProbeError:
    return ProbeError(
        ProbeReason.IMPLAUSIBLE, "the durations cannot be nanoseconds: is this another server than Ollama?"
    )


def _get_resolution(version: OllamaVersion | None) -> float:
    """Resolution of durations, seconds: releases 0.4.0 to 0.6.1 truncate them to whole milliseconds."""
    first, last = _MILLISECONDS_ONLY
    return _MILLISECOND if version is not None and first <= version <= last else _MICROSECOND


def _times_whole_prompt(version: OllamaVersion | None, prompt_tokens: int | None, *, mlx: bool) -> bool:
    """Whether `prompt_eval_duration` covers the whole prompt: in 0.12.5 and 0.12.6 it covers the last batch, in the MLX
    runner before 0.17.5 the last token.
    """
    if version is None:
        return True
    if mlx:
        return version >= _MLX_PREFILL_SINCE
    first, last = _LAST_BATCH_ONLY
    return not (first <= version <= last and (prompt_tokens or 0) > _SMALLEST_BATCH)


def _count_computed_tokens(payload: dict[str, Any]) -> int | None:
    """Prompt tokens that were computed. Only proposals for later releases list cached tokens, under these names; until
    then only a prompt that cannot be in the cache has a known number.
    """
    prompt = _get_count(payload, "prompt_eval_count")
    cached = [_get_count(payload, name) for name in ("prompt_eval_cached_count", "prompt_cached_count")]
    if prompt is None:
        return None
    computed = prompt - max((count for count in cached if count is not None), default=0)
    return computed if computed > 0 else None


def _get_seconds(payload: dict[str, Any], key: str) -> float | None:
    value = _get_count(payload, key)
    return None if value is None else value * _NANO


def _get_count(payload: dict[str, Any], key: str) -> int | None:
    """A positive integer; the server leaves out zeros.

    Raises:
        ProbeError: it is something else.
    """
    value = payload.get(key)
    if value is None or (value == 0 and not isinstance(value, bool)):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ProbeError(ProbeReason.PARSE, f"the answer's {key} is no whole number")
    return value
