"""The window of a target: its recent pages, the growth of counters over them, and detection of restarts.

Pure: times come with the pages. The history of an engine never spans a restart of the server, a gap in what the engine
reports, or a change of histogram buckets. So growth is never negative, never estimated, and never includes anything
from before the window.

A counter that a known engine has never had, and then has, was 0 before: some front ends create a counter only when it
first counts (vLLM's under Ray, and its Rust one, 0.22 to 0.32).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from phasewatch.analysis.samples import COUNTERS, HISTOGRAMS, EngineKey, EngineSample, Histogram, Page

_MAX_STRETCH: Final = 1.25
"""Longest window as a multiple of its nominal length. Scrapes are not exactly on time, so a window starts at the page
nearest to the nominal start; but after a gap in the scrapes that must not be a page from long before."""


@dataclass(frozen=True, slots=True)
class TimedPage:
    """A page and the monotonic time, in seconds, at which it was complete."""

    time: float
    page: Page


@dataclass(frozen=True, slots=True)
class Continuity:
    """How far back the samples of one engine can be compared with the newest one.

    Attributes:
        since: time of the first page that has all metrics of the later ones, except new ones, with the same buckets.
        corrupt: histograms with an impossible observation, and the time of the first page that includes it.
        seen: counters and histograms that the engine has had since the server started.
    """

    since: float
    corrupt: Mapping[str, float]
    seen: frozenset[str]


@dataclass(frozen=True, slots=True)
class PageWindow:
    """Pages of one target since its last restart, oldest first, and the continuity of each engine on the newest.

    `restarts` is the number of restarts seen. A gap that empties the window is not a restart.
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
    """The comparable samples of one engine in the window, oldest first, at least one, with their monotonic times.

    `corrupt` names the histograms that got an impossible observation in the window, `ever_corrupt` those that got one
    since the samples are comparable: their sums stay wrong until the server restarts.
    """

    times: tuple[float, ...]
    samples: tuple[EngineSample, ...]
    corrupt: frozenset[str] = frozenset()
    ever_corrupt: frozenset[str] = frozenset()

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
        """Increase of each counter from the first to the last scrape.

        Gauges are None, and so is a counter that the last sample lacks. For a single scrape all fields are None.
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
        window: the window before.
        page: the new page.
        time: monotonic seconds at which the page was complete; later than every page in the window.
        length: nominal length of the window in seconds.
        corrupt: histograms that the backend knows to include an impossible observation since the previous page, by
            engine. A falling sum is detected here.

    Returns:
        A window that ends with this page and begins near `time - length`. It holds only this page if the server has
        restarted since the previous one.
    """
    before = window.newest
    restart = before is not None and has_restarted(before, page)
    if restart or before is None:
        new = {key: Continuity(time, {}, _list_counters(sample)) for key, sample in page.engines.items()}
        return PageWindow((TimedPage(time, page),), new, window.restarts + restart)
    pages = (*window.pages, TimedPage(time, page))
    start = time - length
    first = 0
    while first < len(pages) - 2 and abs(pages[first + 1].time - start) <= abs(pages[first].time - start):
        first += 1
    if time - pages[first].time > length * _MAX_STRETCH:
        first += 1
    engines = {
        key: _extend_continuity(
            window.engines.get(key), before.engines.get(key), sample, time, (corrupt or {}).get(key, ())
        )
        for key, sample in page.engines.items()
    }
    return PageWindow(pages[first:], engines, window.restarts)


def _extend_continuity(
    continuity: Continuity | None,
    before: EngineSample | None,
    after: EngineSample,
    time: float,
    impossible: Iterable[str],
) -> Continuity:
    present = _list_counters(after)
    seen = present | continuity.seen if continuity else present
    if continuity is None or before is None or not _covers(before, after, present, continuity.seen):
        return Continuity(time, {}, seen)
    corrupt = dict.fromkeys((*_find_fallen_sums(before, after), *impossible), time)
    return Continuity(continuity.since, {**continuity.corrupt, **corrupt} if corrupt else continuity.corrupt, seen)


def has_restarted(before: Page, after: Page) -> bool:
    """Whether the server's counters were reset between two pages: a start time has changed or a counter has fallen.

    The sum of a histogram is no evidence: it may fall without a restart (vLLM 0.8 to 0.32, see `Continuity.corrupt`).
    """
    if _has_changed(before.process_start, after.process_start) and not _is_start_of_another(before, after):
        return True
    if any(after.http_requests.get(status, count) < count for status, count in before.http_requests.items()):
        return True
    return any(
        _has_changed(before.engines[key].created, sample.created) or _has_fallen(before.engines[key], sample)
        for key, sample in after.engines.items()
        if key in before.engines
    )


def _is_start_of_another(before: Page, after: Page) -> bool:
    """Whether a start time that has changed is another program's, whose metrics were merged into the page.

    The engines may have start times of their own. Otherwise their counters show it: those of a process that has started
    between the pages have grown from 0 to what they are, so they have at least doubled if they are not lower.
    """
    if any(sample.created is not None for sample in after.engines.values()):
        return True
    counts = [
        (old, new)
        for key, sample in after.engines.items()
        if key in before.engines
        for name in COUNTERS
        if (old := getattr(before.engines[key], name)) and (new := getattr(sample, name)) is not None
    ]
    return bool(counts) and all(old <= new < 2 * old for old, new in counts)


def extract_history(window: PageWindow, key: EngineKey) -> EngineHistory:
    """The history of an engine on the newest page, back to the start of the window or to the last gap.

    Raises:
        KeyError: the newest page does not have this engine.
    """
    continuity = window.engines[key]
    pages = [timed for timed in window.pages if timed.time >= continuity.since]
    return EngineHistory(
        times=tuple(timed.time for timed in pages),
        samples=tuple(timed.page.engines[key] for timed in pages),
        corrupt=frozenset(name for name, time in continuity.corrupt.items() if time > pages[0].time),
        ever_corrupt=frozenset(continuity.corrupt),
    )


def subtract_counters(first: EngineSample, last: EngineSample, corrupt: frozenset[str] = frozenset()) -> EngineSample:
    """The increase of the counters between two samples of one history; None for histograms named in `corrupt`.

    A counter that only the last sample has was 0 in the first one.
    """
    differences: dict[str, float | Histogram | None] = {}
    for name in COUNTERS:
        a, b = getattr(first, name), getattr(last, name)
        differences[name] = None if b is None else b - (a or 0.0)
    for name in HISTOGRAMS:
        old, new = getattr(first, name), getattr(last, name)
        differences[name] = None if new is None or name in corrupt else subtract_histograms(old, new)
    return EngineSample(**differences)  # type: ignore[arg-type]  # the names are those of the fields


def subtract_histograms(old: Histogram | None, new: Histogram) -> Histogram:
    """The observations that were added to a histogram between two samples with the same buckets.

    `old` is None for a histogram that did not exist yet.
    """
    if old is None:
        return new
    cumulative = tuple(b - a for a, b in zip(old.cumulative, new.cumulative, strict=True))
    return Histogram(new.sum - old.sum, new.count - old.count, new.upper_bounds, cumulative)


def _has_changed(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and before != after


def _has_fallen(before: EngineSample, after: EngineSample) -> bool:
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


def _covers(before: EngineSample, after: EngineSample, present: frozenset[str], seen: frozenset[str]) -> bool:
    """Whether a sample can be compared with the next one: it has the same metrics with the same buckets, except those
    that the engine has never had before. `present`: the metrics of the next one.
    """
    for name in present:
        old, new = getattr(before, name), getattr(after, name)
        if old is None and name in seen:
            return False
        if isinstance(old, Histogram) and old.upper_bounds != new.upper_bounds:
            return False
    return True


def _list_counters(sample: EngineSample) -> frozenset[str]:
    return frozenset(name for name in (*COUNTERS, *HISTOGRAMS) if getattr(sample, name) is not None)


def _find_fallen_sums(before: EngineSample, after: EngineSample) -> Iterator[str]:
    """Names of the histograms whose sum has fallen: they include a negative observation."""
    for name in HISTOGRAMS:
        old, new = getattr(before, name), getattr(after, name)
        if new is not None and new.sum < (old.sum if old is not None else 0.0):
            yield name
