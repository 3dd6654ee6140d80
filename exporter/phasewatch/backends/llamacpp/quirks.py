"""What depends on the build of a llama-server, told by what it shows: packages report any number as their build."""

import json
import math
from typing import Final

from phasewatch.analysis.queue import KvCacheSize
from phasewatch.analysis.samples import EngineSample

SIGNIFICANT_DIGITS: Final = 6
"""Digits with which a value on the page is printed (C++'s default for numbers)."""


def compute_resolution(value: float | None) -> float:
    """Width of the range of values that are printed as this one; 0 for 0, which is printed for nothing else.

    Seconds are printed in steps of 1 from 10^5 on, which is a day of one stream.
    """
    return 10.0 ** (math.floor(math.log10(abs(value))) - SIGNIFICANT_DIGITS + 1) if value else 0.0


def compute_count_resolution(value: float | None) -> float:
    """The same for a whole number, which is printed in full below 10^6, in steps of 10 from there on, and in steps of
    1000 from 10^8 on.
    """
    step = compute_resolution(value)
    return step if step > 1 else 0.0


def measure_stream_steps(sample: EngineSample) -> tuple[float, float] | None:
    """Steps x mean busy slots since the start, and the largest error that their rounding leaves; None if unknown."""
    steps, mean = sample.engine_steps, sample.streams_per_step
    if steps is None:
        return None
    if mean is None:  # not a number before the first step
        return (0.0, 0.0) if steps == 0 else None
    single = sample.cache_config.get("slots") == "1"  # then the mean is 1, to every digit
    mean_error = 0.0 if single else compute_resolution(mean)
    return steps * mean, (mean_error * steps + compute_count_resolution(steps) * mean) / 2


def undo_json(text: str) -> str:
    """The page, if it is written as one JSON string (b7010 to about b7190); otherwise the text as it is."""
    if not text.startswith('"'):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def counts_prompt_time_once(sample: EngineSample) -> bool:
    """Whether the time of a batch counts once, however many prompts share it (b10408 and newer, which count cached
    tokens apart). Before, it was counted for each of their slots.
    """
    return sample.prompt_tokens_local_hits is not None


def drafts(sample: EngineSample) -> bool:
    """Whether the server has ever drafted tokens."""
    return bool(sample.draft_tokens)


def read_kv_cache_size(sample: EngineSample) -> KvCacheSize | None:
    """Size of the KV cache in tokens; None if unknown.

    Each slot shows a context. It is the slot's own, or with a unified cache (`--kv-unified`, the default where the
    number of slots is not given) that of all slots together, and nothing on the pages tells which.
    """
    config = sample.cache_config
    context, slots, unified = config.get("n_ctx"), config.get("slots"), config.get("kv_unified")
    if context is None or slots is None:
        return None
    if slots == "1" or unified == "true":
        return KvCacheSize(float(context))
    return KvCacheSize(float(context) * float(slots)) if unified == "false" else None
