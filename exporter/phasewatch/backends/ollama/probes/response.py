"""What the final answer of /api/generate says of speed, and where it must not be believed.

Durations are whole nanoseconds, left out where 0. `prompt_eval_duration` ends and `eval_duration` begins with the first
token, so a GGUF model's `eval_duration` covers one step less than `eval_count` (llama.cpp divides alike since b10488);
the MLX runner leaves the last token out of the count instead. Traps by release are in `_prefill_is_told` and
`_resolution`.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from phasewatch.backends.ollama.inventory import OllamaVersion
from phasewatch.base.errors import PhaseWatchError
from phasewatch.scrape.http import HTTP_OK, Response
from phasewatch.snapshot.probes import ProbeReason

FEWEST_TOKENS: Final = 16
"""Outputs below that say too little about decode: their duration is that of a few steps."""

_NANO: Final = 1e-9
_MILLISECOND: Final = 1e-3
_MICROSECOND: Final = 1e-6
_RESOLVED: Final = 50
"""A duration of fewer steps of its clock is off by more than 2 %."""

_CACHED_STEPS: Final = 2.0
"""A prompt that takes no longer than two decode steps was either found in the cache, where one token is computed all
the same, or is too short for its duration to say anything about prefill."""

_LAST_BATCH_ONLY: Final = ((0, 12, 5), (0, 12, 6))
_SMALLEST_BATCH: Final = 512
_MLX_PREFILL_SINCE: Final = (0, 17, 5)
_MILLISECONDS_ONLY: Final = ((0, 4, 0), (0, 6, 1))

# Wide enough for every real machine; a server that counts in other units is off by a factor of 1000 or more.
_DECODE_BAND: Final = (0.01, 20_000.0)
_PREFILL_BAND: Final = (0.05, 2_000_000.0)
_PARTS_TOLERANCE: Final = (1.05, 0.05)


class ProbeError(PhaseWatchError):
    """A probe failed.

    Args:
        reason: the class of the failure.
        message: what is wrong and what to do; never holds a part of the server's answer.
    """

    def __init__(self, reason: ProbeReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class ProbeTimings:
    """The figures of one answer, in tokens and seconds; None where the answer does not tell, or not truly.

    Attributes:
        prompt_tokens: the whole prompt, cached tokens included.
        computed_tokens: those of them that were computed.
        prompt_seconds: the time that took, up to the first token.
        output_tokens: tokens put out.
        decode_steps: steps that `decode_seconds` covers.
        decode_seconds: from the first token to the last.
        total_seconds: the whole request, on the server.
        load_seconds: until the model was there: waiting for the scheduler, and loading.
        rest_seconds: what is left of the total: waiting for a slot, and templating.
    """

    prompt_tokens: int | None
    computed_tokens: int | None
    prompt_seconds: float | None
    output_tokens: int
    decode_steps: int
    decode_seconds: float
    total_seconds: float
    load_seconds: float
    rest_seconds: float

    @property
    def decode_tokens_per_second(self) -> float:
        """Speed of decode."""
        return self.decode_steps / self.decode_seconds

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Speed of prefill over the tokens that were computed."""
        if not self.computed_tokens or not self.prompt_seconds:
            return None
        return self.computed_tokens / self.prompt_seconds

    @property
    def first_token_seconds(self) -> float:
        """From the request, a load left out, to its first token, on the server."""
        return self.total_seconds - self.decode_seconds - self.load_seconds


@dataclass(frozen=True, slots=True)
class RequestOverhead:
    """Time of a request outside its two phases, in seconds. Known even for outputs too short for `ProbeTimings`.

    Attributes:
        load: until the model was there: waiting for the scheduler, and loading.
        rest: what is left of the total beside load, prompt and output: waiting for a slot, and templating.
    """

    load: float
    rest: float


def parse_final_object(answer: Response) -> dict[str, Any]:
    """The JSON object of an answer of /api/generate.

    Raises:
        ProbeError: the server refused, or did not finish, or says no such thing.
    """
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        told = None
    if answer.status != HTTP_OK:
        raise _refusal(answer.status, told.get("error") if isinstance(told, dict) else None)
    if not isinstance(told, dict):
        raise ProbeError(ProbeReason.PARSE, "the answer is no JSON object")
    if told.get("done") is not True:
        message = "the answer ends without done: true, as after an error or a repeated token; it counts for nothing"
        raise ProbeError(ProbeReason.NOT_DONE, message)
    return told


def _refusal(status: int, error: Any) -> ProbeError:
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


def extract_timings(told: dict[str, Any], *, version: OllamaVersion | None, model_format: str) -> ProbeTimings | None:
    """The figures of a final object.

    Args:
        told: what `parse_final_object` gives.
        version: the server's; None stands for the newest.
        model_format: `gguf`, or `safetensors` for the MLX runner.

    Returns:
        The figures; None for too few tokens to say anything.

    Raises:
        ProbeError: `parse`, `no_numbers` or `implausible`.
    """
    went, total, decode = measure_overhead(told), _seconds(told, "total_duration"), _seconds(told, "eval_duration")
    output = _count(told, "eval_count")
    if output is not None and output < FEWEST_TOKENS:
        return None
    if total is None or decode is None or output is None:
        raise _no_durations()
    mlx = model_format == "safetensors"
    found = ProbeTimings(
        prompt_tokens=_count(told, "prompt_eval_count"),
        computed_tokens=_computed(told),
        prompt_seconds=_seconds(told, "prompt_eval_duration"),
        output_tokens=output,
        decode_steps=output if mlx else output - 1,
        decode_seconds=decode,
        total_seconds=total,
        load_seconds=went.load,
        rest_seconds=went.rest,
    )
    return _believed(found, version, mlx=mlx)


def measure_overhead(told: dict[str, Any]) -> RequestOverhead:
    """How the request of a final object went, however short its output.

    Raises:
        ProbeError: `parse`, `no_numbers` or `implausible`.
    """
    if str(told.get("done_reason")) in {"load", "unload"}:  # a list has no hash
        raise ProbeError(ProbeReason.NO_NUMBERS, "the server loaded or unloaded the model and put out nothing")
    total = _seconds(told, "total_duration")
    prompt, decode = _seconds(told, "prompt_eval_duration"), _seconds(told, "eval_duration")
    if total is None or (prompt is None and decode is None):
        raise _no_durations()
    load = _seconds(told, "load_duration") or 0.0
    factor, slack = _PARTS_TOLERANCE
    parts = load + (prompt or 0.0) + (decode or 0.0)
    if parts > total * factor + slack:
        raise ProbeError(ProbeReason.IMPLAUSIBLE, "the parts of the answer's duration are longer than the whole")
    return RequestOverhead(load, total - parts)


def _no_durations() -> ProbeError:
    return ProbeError(ProbeReason.NO_NUMBERS, "the answer has no durations, as that of a model on another machine")


def _believed(found: ProbeTimings, version: OllamaVersion | None, *, mlx: bool) -> ProbeTimings:
    """The sample without what cannot be believed.

    Raises:
        ProbeError: `implausible` if a speed is out of this world, `no_numbers` if decode is too short for its clock.
    """
    resolution = _resolution(version)
    if found.decode_seconds < _RESOLVED * resolution:
        if resolution == _MILLISECOND:
            raise ProbeError(
                ProbeReason.NO_NUMBERS, "releases 0.4.0 to 0.6.1 count whole milliseconds: too coarse here"
            )
        raise _wrong_units()
    _must_be_within(_DECODE_BAND, found.decode_tokens_per_second)
    _must_be_within(_PREFILL_BAND, found.prefill_tokens_per_second)
    step = found.decode_seconds / found.decode_steps
    told = (
        found.prompt_seconds is not None
        and found.prompt_seconds >= max(_RESOLVED * resolution, _CACHED_STEPS * step)
        and _prefill_is_told(version, found.prompt_tokens, mlx=mlx)
    )
    if told:
        return found
    return replace(found, computed_tokens=None, prompt_seconds=None)


def _must_be_within(band: tuple[float, float], speed: float | None) -> None:
    if speed is not None and not band[0] <= speed <= band[1]:
        raise _wrong_units()


def _wrong_units() -> ProbeError:
    return ProbeError(
        ProbeReason.IMPLAUSIBLE, "the durations cannot be nanoseconds: is this another server than Ollama?"
    )


def _resolution(version: OllamaVersion | None) -> float:
    """Seconds to which durations are exact: releases 0.4.0 to 0.6.1 cut them to whole milliseconds."""
    first, last = _MILLISECONDS_ONLY
    return _MILLISECOND if version is not None and first <= version <= last else _MICROSECOND


def _prefill_is_told(version: OllamaVersion | None, prompt_tokens: int | None, *, mlx: bool) -> bool:
    """Whether `prompt_eval_duration` covers the whole prompt: 0.12.5 and 0.12.6 tell that of its last batch, and the
    MLX runner before 0.17.5 that of its last token.
    """
    if version is None:
        return True
    if mlx:
        return version >= _MLX_PREFILL_SINCE
    first, last = _LAST_BATCH_ONLY
    return not (first <= version <= last and (prompt_tokens or 0) > _SMALLEST_BATCH)


def _computed(told: dict[str, Any]) -> int | None:
    """Prompt tokens that were computed. Cached ones are counted by proposals for later releases alone, under these
    names; before, nothing but a prompt that cannot be in the cache tells.
    """
    whole = _count(told, "prompt_eval_count")
    cached = [_count(told, name) for name in ("prompt_eval_cached_count", "prompt_cached_count")]
    if whole is None:
        return None
    rest = whole - max((count for count in cached if count is not None), default=0)
    return rest if rest > 0 else None


def _seconds(told: dict[str, Any], key: str) -> float | None:
    value = _count(told, key)
    return None if value is None else value * _NANO


def _count(told: dict[str, Any], key: str) -> int | None:
    """A whole number above 0; the server leaves out what is 0.

    Raises:
        ProbeError: it is something else.
    """
    value = told.get(key)
    if value is None or (value == 0 and not isinstance(value, bool)):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ProbeError(ProbeReason.PARSE, f"the answer's {key} is no whole number")
    return value
