"""Watches one target: scrapes it on request, and logs one line when it goes down and one when it is up again.

Whatever depends on the kind of server is defined by its backend.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.base.units import format_duration
from phasewatch.config.settings import Target
from phasewatch.snapshot.health import Health, ScrapeTiming
from phasewatch.snapshot.target import TargetSnapshot, create_snapshot, mark_stale

MISSED_SCRAPES: Final = 3
"""Intervals, in addition to the timeout, after which the last scrape is stale."""


@dataclass(frozen=True)
class Job:
    """A periodic task: `kind` is its name, `seconds` the time between two starts."""

    kind: str
    run: Callable[[], Awaitable[None]]
    seconds: float


class Scraper(ABC):
    """Watches one target and holds its latest snapshot.

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
        self._updated_at = clock()
        self._tasks: set[asyncio.Task[Any]] = set()

    def list_jobs(self) -> Sequence[Job]:
        """The periodic tasks of this target."""
        return (Job("scrape", self.scrape, self.target.interval),)

    def get_snapshot(self) -> TargetSnapshot:
        """The latest snapshot; a stale one, without what the last scrape said, if scrapes have stopped."""
        age = self._clock() - self._updated_at
        if age <= MISSED_SCRAPES * self.target.interval + self.target.timeout:
            return self._snapshot
        return mark_stale(self._snapshot, age)

    async def scrape(self) -> None:
        """Scrape once. Never raises: any error becomes a failed scrape of this target."""
        await self._until_closed(self._scrape())

    async def close(self) -> None:
        """Cancel running tasks and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._disconnect()

    def take_over(self, before: "Scraper") -> None:  # noqa: B027  # a reload loses nothing for most kinds of servers
        """Take over state that must survive a reload of the configuration.

        Args:
            before: the scraper that watched the target of this name until now.
        """

    @abstractmethod
    def _get_health(self) -> Health:
        """Outcome of the scrapes so far."""

    @abstractmethod
    async def _read(self, sent: float) -> None:
        """Request the server's figures and record them; `sent` is the monotonic time at which the scrape began.

        Raises:
            ScrapeError: the scrape failed.
        """

    @abstractmethod
    def _record_failure(self, error: ScrapeError, timing: ScrapeTiming) -> None:
        """Record that a scrape has failed."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connections."""

    async def _until_closed(self, work: Coroutine[None, None, None]) -> None:
        """Run a task that `close` may cancel. A cancelled task ends normally for its caller, the scheduler."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # this is a coroutine
        self._tasks.add(task)
        try:
            await work
        except asyncio.CancelledError:
            get_logger().debug("given up", target=self.target.name)
        finally:
            self._tasks.discard(task)

    async def _scrape(self) -> None:
        before = self._get_health()
        sent = self._clock()
        try:
            await self._read(sent)
        except ScrapeError as error:
            self._record_failure(error, ScrapeTiming(sent, self._clock(), None))
        except Exception as error:  # noqa: BLE001  # a bug of the exporter must not end the watch
            get_logger().error("scrape broke", target=self.target.name, exc_info=True)
            defect = ScrapeError(Reason.INTERNAL, f"a defect of the exporter: {type(error).__name__}")
            self._record_failure(defect, ScrapeTiming(sent, self._clock(), None))
        self._updated_at = self._clock()
        self._log_change(before, self._get_health())

    def _log_change(self, before: Health, after: Health) -> None:
        log = get_logger().bind(target=self.target.name, url=self.target.url)
        if after.trouble and not before.trouble:
            if self.target.optional and not after.answered:
                hint = "give its address with --config.file if it is elsewhere"
                log.info("optional target not there yet", reason=after.trouble.reason.value, hint=hint)
            else:
                log.warning("target down", reason=after.trouble.reason.value, error=after.trouble.message)
        elif before.trouble and not after.trouble:
            lasted = format_duration(self._clock() - before.trouble.since)
            event = "target up again" if before.answered else "target up"
            log.info(event, failed_scrapes=before.trouble.failures, down_for=lasted)
