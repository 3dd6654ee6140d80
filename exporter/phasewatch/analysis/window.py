"""The last minute of a target: a ring of pages, the growth of counters over it, and restarts.

Pure: time comes in with each page. A window never spans a restart of the server, a gap in what an engine reports, or a
change of histogram buckets, so growth is never negative, never a guess, and never counts what happened before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from phasewatch.analysis.samples import COUNTERS, HISTOGRAMS, EngineKey, EngineSample, Histogram, Page

_LONGEST: Final = 1.25
"""How far a window may exceed its nominal length. Scrapes are not exactly on time, so the page nearest to the nominal
start is taken; but after a gap in the scrapes an old page must not stand in for it."""


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
    """Pages of one target since its last restart, oldest first, and the continuity of each engine on the newest.

    `restarts` counts the restarts that were seen. A gap that empties the window is not one.
    """

    pages: tuple[TimedPage, ...] = ()
    engines: Mapping[EngineKey, Continuity] = field(default_factory=dict)
    restarts: int = 0

    @property
    def newest(self) -> Page | None:
        """The newest page; None before the first."""
        return self.pages[-1].page if self.pages else None


@dataclass(frozen=True)
class EngineHistory:
    """What one engine said at each comparable scrape of the window, oldest first, at least one.

    `corrupt` names the histograms that cannot be trusted over it.
    """

    times: tuple[float, ...]
    samples: tuple[EngineSample, ...]
    corrupt: frozenset[str] = frozenset()

    @property
    def newest(self) -> EngineSample:
        """The newest sample."""
        return self.samples[-1]

    @property
    def seconds(self) -> float:
        """Time from the first to the last scrape; 0 for a single one."""
        return self.times[-1] - self.times[0]

    @cached_property
    def growth(self) -> EngineSample:
        """Differences of the counters between the first and the last scrape.

        A field is None where either sample lacks it, as every field is for a single scrape. Gauges are None.
        """
        if len(self.times) < 2:  # noqa: PLR2004  # two ends
            return EngineSample()
        return subtract_counters(self.samples[0], self.samples[-1], self.corrupt)


def append_page(
    window: PageWindow,
    page: Page,
    time: float,
    length: float,
    corrupt: Mapping[EngineKey, Iterable[str]] | None = None,
) -> PageWindow:
    """The window with one more page.

    Args:
        window: what was known before.
        page: what the server says now.
        time: monotonic seconds at which the page was complete; later than every page in the window.
        length: nominal length of the window in seconds.
        corrupt: histograms that took in an impossible observation since the page before, for reasons that only the
            server's backend knows; a falling sum is noticed here.

    Returns:
        A window that ends with this page and begins near `time - length`; it holds this page alone if the server
        restarted since the page before.
    """
    before = window.newest
    restart = before is not None and has_restarted(before, page)
    if restart or before is None:
        new = {key: Continuity(time, {}) for key in page.engines}
        return PageWindow((TimedPage(time, page),), new, window.restarts + restart)
    pages = (*window.pages, TimedPage(time, page))
    start = time - length
    first = 0
    while first < len(pages) - 2 and abs(pages[first + 1].time - start) <= abs(pages[first].time - start):
        first += 1
    if time - pages[first].time > length * _LONGEST:
        first += 1
    engines = {
        key: _continue(window.engines.get(key), before.engines.get(key), sample, time, (corrupt or {}).get(key, ()))
        for key, sample in page.engines.items()
    }
    return PageWindow(pages[first:], engines, window.restarts)


def _continue(
    known: Continuity | None, before: EngineSample | None, after: EngineSample, time: float, impossible: Iterable[str]
) -> Continuity:
    if known is None or before is None or not _covers(before, after):
        return Continuity(time, {})
    corrupt = dict.fromkeys((*_fallen_sums(before, after), *impossible), time)
    return Continuity(known.since, {**known.corrupt, **corrupt} if corrupt else known.corrupt)


def has_restarted(before: Page, after: Page) -> bool:
    """Whether the server's counters began again between two pages: a start time changed or a counter fell.

    The sums of histograms do not count: they fall on a real vLLM without a restart (see `Continuity.corrupt`).
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
    pages = [timed for timed in window.pages if timed.time >= continuity.since]
    return EngineHistory(
        times=tuple(timed.time for timed in pages),
        samples=tuple(timed.page.engines[key] for timed in pages),
        corrupt=frozenset(name for name, time in continuity.corrupt.items() if time > pages[0].time),
    )


def subtract_counters(first: EngineSample, last: EngineSample, corrupt: frozenset[str] = frozenset()) -> EngineSample:
    """The difference of the counters of two samples of one engine; histograms named in `corrupt` are left out."""
    differences: dict[str, float | Histogram | None] = {}
    for name in COUNTERS:
        a, b = getattr(first, name), getattr(last, name)
        differences[name] = None if a is None or b is None else b - a
    for name in HISTOGRAMS:
        old, new = getattr(first, name), getattr(last, name)
        differences[name] = None if old is None or new is None or name in corrupt else subtract_histograms(old, new)
    return EngineSample(**differences)  # type: ignore[arg-type]  # the names are those of the fields


def subtract_histograms(old: Histogram, new: Histogram) -> Histogram:
    """The observations that a histogram took in between two samples with the same buckets."""
    cumulative = tuple(b - a for a, b in zip(old.cumulative, new.cumulative, strict=True))
    return Histogram(new.sum - old.sum, new.count - old.count, new.upper_bounds, cumulative)


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
        same_buckets = old.upper_bounds == new.upper_bounds
        if same_buckets and any(b < a for a, b in zip(old.cumulative, new.cumulative, strict=True)):
            return True
    return False


def _covers(before: EngineSample, after: EngineSample) -> bool:
    """Whether a page has all that the next one has, so that the two can be compared."""
    for name in (*COUNTERS, *HISTOGRAMS):
        new = getattr(after, name)
        if new is None:
            continue
        old = getattr(before, name)
        if old is None or (isinstance(old, Histogram) and old.upper_bounds != new.upper_bounds):
            return False
    return True


def _fallen_sums(before: EngineSample, after: EngineSample) -> Iterator[str]:
    """Histograms whose sum fell while their count did not: they took in a negative observation."""
    for name in HISTOGRAMS:
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and new.sum < old.sum:
            yield name
