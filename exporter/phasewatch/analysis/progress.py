"""Whether an engine works: when a counter of work last moved, and for how long it has had requests.

Generated tokens alone are no measure: an engine that serves embeddings never generates any. So any counter of work
counts: tokens of either phase, first outputs, finished requests, and the server's own estimate of operations. Gauges do
not count. They may stand still while the engine hangs, and go on to show the requests of a mass abort (vLLM 0.8 to
0.22) or of a dead replica (Ray).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.analysis.samples import EngineSample, Histogram

_WORK_COUNTERS: Final = (
    "prompt_tokens",
    "prompt_tokens_computed",
    "prefill_progress",
    "prefill_seconds",
    "generation_tokens",
    "decode_seconds",
    "tracked_tokens",
    "engine_steps",
    "estimated_flops_per_gpu",
)
_WORK_HISTOGRAMS: Final = ("iteration_tokens", "time_to_first_token", "inter_token_latency", "request_latency")
"""Look-ups in the prefix cache are left out: a request that is looked up, or refused, has not been worked on."""

_OUTCOMES: Final = ("time_to_first_token", "request_latency")
"""Counters of work that move when a request has an outcome."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The work of an engine so far, to the precision of the scrapes. Times are monotonic seconds.

    Attributes:
        work: newest known value of each counter of work, by the field of `EngineSample`.
        moved_at: first scrape with these values.
        occupied_since: first scrape of the present run of scrapes with running or waiting requests; None without any.
        running_since: the same for running requests.
        prefilling_at: newest scrape that saw a request in prefill; None without any.
        most_running: most requests that any scrape has seen running.
        watched: whether there was an earlier scrape to compare with.
    """

    work: Mapping[str, float]
    moved_at: float
    occupied_since: float | None
    running_since: float | None
    prefilling_at: float | None
    most_running: float
    watched: bool

    @property
    def generates(self) -> bool:
        """Whether the engine generates tokens, as far as is known: False once requests came to an end without any."""
        return self.work.get("generation_tokens", 0.0) > 0 or not any(self.work.get(name) for name in _OUTCOMES)


def advance_progress(before: Progress | None, sample: EngineSample, time: float) -> Progress | None:
    """The progress after one more scrape; None before the first page with counters of work.

    A counter that is missing from a page keeps its value, and one that appears for the first time was 0.

    Args:
        before: the progress after the previous scrape; None after a start or a restart.
        sample: the sample of this scrape.
        time: monotonic seconds of this scrape.
    """
    known = before.work if before else {}
    work = {**known, **dict(list_work(sample))}
    if not work:
        return None
    running, waiting = sample.requests_running or 0.0, sample.requests_waiting or 0.0
    moved = _has_moved(known, work)
    return Progress(
        work=work,
        moved_at=time if moved or before is None else before.moved_at,
        occupied_since=_continue_run(before.occupied_since if before else None, time, going_on=running + waiting > 0),
        running_since=_continue_run(before.running_since if before else None, time, going_on=running > 0),
        prefilling_at=time if sample.requests_prefilling else before.prefilling_at if before else None,
        most_running=max(running, before.most_running if before else 0.0),
        watched=before is not None,
    )


def has_worked(before: EngineSample, after: EngineSample) -> bool:
    """Whether any counter of work has moved between two samples of one history. One that appears has counted."""
    return _has_moved(dict(list_work(before)), dict(list_work(after)))


def _has_moved(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return any(value != before.get(name, 0.0) for name, value in after.items())


def list_work(sample: EngineSample) -> Iterator[tuple[str, float]]:
    """List the counters of work that a sample has, by name of the field."""
    for name in _WORK_COUNTERS:
        value: float | None = getattr(sample, name)
        if value is not None:
            yield name, value
    for name in _WORK_HISTOGRAMS:
        histogram: Histogram | None = getattr(sample, name)
        if histogram is not None:
            yield name, histogram.count


def measure_inactivity(progress: Progress | None, now: float) -> float | None:
    """Seconds for which an engine has had requests, running or waiting, without working; None while it has none.

    None also for a page without counters of work. It counts from the later of the last work and the first request: an
    idle engine is not inactive in this sense. Nor is one that is seen to read a prompt: counters may stand still until
    a batch of it is done, which takes minutes on a slow machine (llama-server).
    """
    if progress is None or progress.occupied_since is None:
        return None
    return now - max(progress.moved_at, progress.occupied_since, progress.prefilling_at or -math.inf)


def measure_token_stall(progress: Progress | None, now: float) -> float | None:
    """Seconds for which requests have been running without any work; None while nothing runs.

    None also for an engine that never generates tokens, and after a single scrape. The last token may have come at any
    time since the previous scrape, so the true stall is up to one interval longer. Counting starts when requests start
    to run: time in which the engine was idle, or paused with a queue, is not a stall.
    """
    if progress is None or progress.running_since is None or not progress.watched or not progress.generates:
        return None
    return now - max(progress.moved_at, progress.running_since)


def _continue_run(since: float | None, time: float, *, going_on: bool) -> float | None:
    if not going_on:
        return None
    return time if since is None else since
