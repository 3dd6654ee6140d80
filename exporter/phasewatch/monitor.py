"""Watches one target: scrapes it when told, keeps its state, and says in one line when trouble begins and ends."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import httpx

from phasewatch.config import Target
from phasewatch.engines.vllm import VllmEngine
from phasewatch.errors import Reason, ScrapeError
from phasewatch.log import logger
from phasewatch.target import (
    ServerFacts,
    TargetSnapshot,
    TargetState,
    Timing,
    fail,
    snapshot,
    stale,
    succeed,
)
from phasewatch.units import human_duration

MISSED_SCRAPES: Final = 3
"""Intervals, on top of the timeout, after which the last scrape no longer speaks for now."""


class Monitor:
    """One target and what is known of it.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        transport: stands in for the network in tests.
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.target = target
        self._clock = clock
        self._wall_clock = wall_clock
        self._engine = VllmEngine(target, transport)
        self._state = TargetState()
        self._snapshot = snapshot(self._state, target)
        self._shown_at = clock()
        self._under_way: set[asyncio.Task[Any]] = set()

    def current(self) -> TargetSnapshot:
        """What is known now. When scrapes have stopped coming, what the last one said is not."""
        age = self._clock() - self._shown_at
        if age <= MISSED_SCRAPES * self.target.interval + self.target.timeout:
            return self._snapshot
        return stale(self._snapshot, age)

    async def scrape(self) -> None:
        """Scrape once. Never raises: whatever goes wrong becomes a failed scrape of this target alone."""
        await self._until_closed(self._scrape())

    async def refresh_facts(self) -> None:
        """Ask the server for its version and models if they are not known, as after a start or a restart."""
        await self._until_closed(self._refresh_facts())

    async def close(self) -> None:
        """Give up what is under way and close the connections."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._engine.close()

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
        before = self._state
        sent = self._clock()
        done = None
        try:
            answer = await self._engine.fetch()
            done = self._clock()
            # A large page takes long to read; /metrics and the other targets go on meanwhile.
            page = await asyncio.to_thread(self._engine.interpret, answer)
            self._show(succeed(self._state, page, Timing(sent, done, self._wall_clock()), self.target))
        except ScrapeError as error:
            self._fail(error, sent, done)
        except Exception as error:  # noqa: BLE001  # a mistake of ours must not end the watch
            logger().error("scrape broke", target=self.target.name, exc_info=True)
            self._fail(ScrapeError(Reason.INTERNAL, f"a defect of the exporter: {type(error).__name__}"), sent, done)
        self._shown_at = self._clock()
        self._tell(before, self._state)

    async def _refresh_facts(self) -> None:
        facts = self._state.facts
        if facts.version is not None and facts.models:
            return
        try:
            asked = await self._engine.facts()
        except Exception:  # noqa: BLE001  # facts are a convenience, whatever is wrong with them
            logger().debug("facts cannot be had", target=self.target.name, exc_info=True)
            return
        if self._state.facts == facts:  # otherwise the server has restarted while it was asked
            merged = ServerFacts(asked.version or facts.version, asked.models or facts.models, asked.limits)
            self._show(replace(self._state, facts=merged))

    def _fail(self, error: ScrapeError, sent: float, done: float | None) -> None:
        timing = Timing(sent, self._clock() if done is None else done, None)
        self._show(fail(self._state, error, timing))

    def _show(self, state: TargetState) -> None:
        self._state = state
        self._snapshot = snapshot(state, self.target)

    def _tell(self, before: TargetState, after: TargetState) -> None:
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
