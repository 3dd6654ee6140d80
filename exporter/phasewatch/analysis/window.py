"""The last minute of a target: a ring of snapshots, the increase of counters over it, and restarts.

Pure: time comes in with each snapshot. A window never spans a restart of the server, a gap in what an engine tells, or
a change of histogram buckets, so an increase is never negative, never a guess, and never counts what happened before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from phasewatch.analysis.samples import COUNTERS, HISTOGRAMS, EngineKey, EngineSample, Histogram, Page

_LONGEST: Final = 1.25
"""How far a window may exceed its nominal length. Scrapes are not exactly on time, so the snapshot nearest to the
nominal start is taken; but after a gap in the scrapes an old one must not stand in for it."""


@dataclass(frozen=True, slots=True)
class TimedPage:
    """A page and the monotonic time, in seconds, at which it was complete."""

    time: float
    page: Page


@dataclass(frozen=True, slots=True)
class Continuity:
    """How far back the pages of one engine can be compared with the newest.

    Attributes:
        since: time of the first page that has everything the later ones have, with the same buckets.
        corrupt: histograms that took in an impossible observation, and the time of the page that showed it.
    """

    since: float
    corrupt: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PageWindow:
    """Snapshots of one target since its last restart, oldest first, and the continuity of each engine on the newest.

    `restarts` counts the restarts that were seen. A gap that empties the window is none.
    """

    snapshots: tuple[TimedPage, ...] = ()
    engines: Mapping[EngineKey, Continuity] = field(default_factory=dict)
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class EngineHistory:
    """What one engine said at each comparable scrape of the window, oldest first, at least one.

    `corrupt` names the histograms that cannot be trusted over it.
    """

    times: tuple[float, ...]
    samples: tuple[EngineSample, ...]
    corrupt: frozenset[str]


@dataclass(frozen=True, slots=True)
class Increase:
    """How much an engine's counters grew between the first and the last scrape of a window.

    `seconds` is the time between the two, above 0. A field is None where either page lacks it. `grown` holds
    differences: its gauges are None.
    """

    seconds: float
    grown: EngineSample


def append_page(window: PageWindow, page: Page, time: float, length: float) -> PageWindow:
    """The window with one more page.

    Args:
        window: what was known before.
        page: what the server says now.
        time: monotonic seconds at which the page was complete; later than every snapshot in the window.
        length: nominal length of the window in seconds.

    Returns:
        A window that ends with this page and begins near `time - length`; it holds this page alone if the server
        restarted since the page before.
    """
    restart = bool(window.snapshots) and has_restarted(window.snapshots[-1].page, page)
    if restart or not window.snapshots:
        new = {key: Continuity(time, {}) for key in page.engines}
        return PageWindow((TimedPage(time, page),), new, window.restarts + restart)
    before = window.snapshots[-1].page
    snapshots = (*window.snapshots, TimedPage(time, page))
    start = time - length
    first = 0
    while first < len(snapshots) - 2 and abs(snapshots[first + 1].time - start) <= abs(snapshots[first].time - start):
        first += 1
    if time - snapshots[first].time > length * _LONGEST:
        first += 1
    engines = {
        key: _continue(window.engines.get(key), before.engines.get(key), sample, time)
        for key, sample in page.engines.items()
    }
    return PageWindow(snapshots[first:], engines, window.restarts)


def _continue(known: Continuity | None, before: EngineSample | None, after: EngineSample, time: float) -> Continuity:
    if known is None or before is None or not _covers(before, after):
        return Continuity(time, {})
    corrupt = dict.fromkeys(_corrupt(before, after), time)
    return Continuity(known.since, {**known.corrupt, **corrupt} if corrupt else known.corrupt)


def has_restarted(before: Page, after: Page) -> bool:
    """Whether the server's counters began anew between two pages: a start time changed or a counter fell.

    The sums of histograms do not count: they fall on a real vLLM without a restart (see `Snapshot.corrupt`).
    """
    if _changed(before.process_start, after.process_start):
        return True
    return any(
        _changed(before.engines[key].created, sample.created) or _fell(before.engines[key], sample)
        for key, sample in after.engines.items()
        if key in before.engines
    )


def extract_history(window: PageWindow, key: EngineKey) -> EngineHistory:
    """What an engine on the newest page said, back to the start of the window or to the last gap.

    Raises:
        KeyError: the newest page does not speak of this engine.
    """
    continuity = window.engines[key]
    snapshots = [snapshot for snapshot in window.snapshots if snapshot.time >= continuity.since]
    return EngineHistory(
        times=tuple(snapshot.time for snapshot in snapshots),
        samples=tuple(snapshot.page.engines[key] for snapshot in snapshots),
        corrupt=frozenset(name for name, time in continuity.corrupt.items() if time > snapshots[0].time),
    )


def compute_increase(past: EngineHistory) -> Increase | None:
    """The growth over a history; None while it holds a single scrape."""
    if len(past.times) < 2:  # noqa: PLR2004  # two ends
        return None
    return Increase(past.times[-1] - past.times[0], subtract_counters(past.samples[0], past.samples[-1], past.corrupt))


def subtract_counters(first: EngineSample, last: EngineSample, corrupt: frozenset[str] = frozenset()) -> EngineSample:
    """The difference of the counters of two samples of one engine; histograms named in `corrupt` are left out."""
    differences: dict[str, float | Histogram | None] = {}
    for name in COUNTERS:
        a, b = getattr(first, name), getattr(last, name)
        differences[name] = None if a is None or b is None else b - a
    for name in HISTOGRAMS:
        old, new = getattr(first, name), getattr(last, name)
        differences[name] = None if old is None or new is None or name in corrupt else _difference(old, new)
    return EngineSample(**differences)  # type: ignore[arg-type]  # the names are those of the fields


def _difference(old: Histogram, new: Histogram) -> Histogram:
    cumulative = tuple(b - a for a, b in zip(old.cumulative, new.cumulative, strict=True))
    return Histogram(new.sum - old.sum, new.count - old.count, new.edges, cumulative)


def _changed(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and before != after


def _fell(before: EngineSample, after: EngineSample) -> bool:
    for name in COUNTERS:
        a, b = getattr(before, name), getattr(after, name)
        if a is not None and b is not None and b < a:
            return True
    for name in HISTOGRAMS:
        old, new = getattr(before, name), getattr(after, name)
        if old is None or new is None:
            continue
        if new.count < old.count:
            return True
        if old.edges == new.edges and any(b < a for a, b in zip(old.cumulative, new.cumulative, strict=True)):
            return True
    return False


def _covers(before: EngineSample, after: EngineSample) -> bool:
    """Whether a page has all that the next one has, so that the two can be compared."""
    for name in (*COUNTERS, *HISTOGRAMS):
        new = getattr(after, name)
        if new is None:
            continue
        old = getattr(before, name)
        if old is None or (isinstance(old, Histogram) and old.edges != new.edges):
            return False
    return True


def _corrupt(before: EngineSample, after: EngineSample) -> Iterator[str]:
    """Histograms that took in an impossible observation.

    A request that fails before it is ever scheduled records minus the process's uptime as its queue time and plus the
    uptime as its prefill time (vLLM 0.8 to 0.32). The first shows as a falling sum, unless others make up for it. The
    second shows as a prefill that is longer than any whole request; then the queue time is wrong as well.
    """
    impossible = _outlasts_the_request(before, after)
    for name in HISTOGRAMS:
        old, new = getattr(before, name), getattr(after, name)
        fell = old is not None and new is not None and new.sum < old.sum
        if fell or (impossible and name in _WRONG_TOGETHER):
            yield name


def _outlasts_the_request(before: EngineSample, after: EngineSample) -> bool:
    """Whether prefill times between two pages cannot be those of the requests that finished between them.

    Each prefill is a part of a whole request, so no more prefills than requests can lie above an edge. The two are on
    different clocks, so the edge below is taken for the requests.
    """
    if not (before.prefill_time and after.prefill_time and before.request_latency and after.request_latency):
        return False
    prefill = _difference(before.prefill_time, after.prefill_time)
    whole = _difference(before.request_latency, after.request_latency)
    # A page of several processes can be read halfway through an update; then the two speak of different requests.
    if prefill.edges != whole.edges or prefill.count != whole.count:
        return False
    up_to_the_edge_below = (0.0, *whole.cumulative)
    return any(
        prefill.count - prefills > whole.count - requests
        for prefills, requests in zip(prefill.cumulative, up_to_the_edge_below, strict=False)
    )


_WRONG_TOGETHER: Final = frozenset({"queue_time", "prefill_time"})
