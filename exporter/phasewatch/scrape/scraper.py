"""Watches one target: scrapes it when told, and logs one line when trouble begins and one when it ends.

What differs between kinds of servers is in their backends.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.log import logger
from phasewatch.base.units import human_duration
from phasewatch.config.settings import Target
from phasewatch.snapshot.health import Health, ScrapeTiming
from phasewatch.snapshot.target import TargetSnapshot, create_snapshot, mark_stale

MISSED_SCRAPES: Final = 3
"""Intervals, on top of the timeout, after which the last scrape no longer speaks for now."""


@dataclass(frozen=True)
class Job:
    """Something to do over and over: `kind` names it, `seconds` lie between two starts."""

    kind: str
    run: Callable[[], Awaitable[None]]
    seconds: float


class Scraper(ABC):
    """One target and what is known of it.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
    """

    def __init__(self, target: Target, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.target = target
        self._clock = clock
        self._wall_clock = wall_clock
        self._snapshot = create_snapshot(target, Health())
        self._shown_at = clock()
        self._under_way: set[asyncio.Task[Any]] = set()

    def jobs(self) -> Sequence[Job]:
        """What is to be done for this target, and how often."""
        return (Job("scrape", self.scrape, self.target.interval),)

    def current(self) -> TargetSnapshot:
        """What is known now. When scrapes have stopped coming, what the last one said is not."""
        age = self._clock() - self._shown_at
        if age <= MISSED_SCRAPES * self.target.interval + self.target.timeout:
            return self._snapshot
        return mark_stale(self._snapshot, age)

    async def scrape(self) -> None:
        """Scrape once. Never raises: whatever goes wrong becomes a failed scrape of this target alone."""
        await self._until_closed(self._scrape())

    async def close(self) -> None:
        """Give up what is under way and close the connections."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._disconnect()

    def take_over(self, before: "Scraper") -> None:  # noqa: B027  # most kinds of servers lose nothing by a reload
        """Go on from what another monitor of the same server knows, where that must not be forgotten.

        Args:
            before: watched the target of this name until its configuration changed.
        """

    @abstractmethod
    def _health(self) -> Health:
        """How the scrapes went so far."""

    @abstractmethod
    async def _read(self, sent: float) -> None:
        """Ask the server and take in what it says; `sent` is when the scrape began.

        Raises:
            ScrapeError: it could not be had.
        """

    @abstractmethod
    def _take_failure(self, error: ScrapeError, timing: ScrapeTiming) -> None:
        """Take in that a scrape failed."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connections."""

    async def _until_closed(self, work: Coroutine[None, None, None]) -> None:
        """Work that may be given up. Whoever runs it, the scheduler, sees it end like any other."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # this is a coroutine
        self._under_way.add(task)
        try:
            await work
        except asyncio.CancelledError:
            logger().debug("given up", target=self.target.name)
        finally:
            self._under_way.discard(task)

    async def _scrape(self) -> None:
        before = self._health()
        sent = self._clock()
        try:
            await self._read(sent)
        except ScrapeError as error:
            self._take_failure(error, ScrapeTiming(sent, self._clock(), None))
        except Exception as error:  # noqa: BLE001  # a mistake of ours must not end the watch
            logger().error("scrape broke", target=self.target.name, exc_info=True)
            defect = ScrapeError(Reason.INTERNAL, f"a defect of the exporter: {type(error).__name__}")
            self._take_failure(defect, ScrapeTiming(sent, self._clock(), None))
        self._shown_at = self._clock()
        self._tell(before, self._health())

    def _tell(self, before: Health, after: Health) -> None:
        log = logger().bind(target=self.target.name, url=self.target.url)
        if after.trouble and not before.trouble:
            if self.target.optional and not after.answered:
                hint = "give its address with --config.file if it is elsewhere"
                log.info("optional target not there yet", reason=after.trouble.reason.value, hint=hint)
            else:
                log.warning("target down", reason=after.trouble.reason.value, error=after.trouble.message)
        elif before.trouble and not after.trouble:
            lasted = human_duration(self._clock() - before.trouble.since)
            event = "target up again" if before.answered else "target up"
            log.info(event, failed_scrapes=before.trouble.failures, down_for=lasted)
