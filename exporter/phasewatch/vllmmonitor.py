"""Watches a vLLM server: its page of metrics at each scrape, and now and then what it says of itself."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import httpx

from phasewatch.config import Target
from phasewatch.engines.vllm import VllmEngine
from phasewatch.errors import ScrapeError
from phasewatch.health import Health, Timing
from phasewatch.log import logger
from phasewatch.monitor import Job, Monitor
from phasewatch.snapshot import ServerFacts
from phasewatch.target import TargetState, fail, snapshot, succeed

FACTS_INTERVAL: Final = 15.0
"""Seconds between looks whether a server's version and models are known; asks only if they are not."""


class VllmMonitor(Monitor):
    """One vLLM and what is known of it.

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
        super().__init__(target, clock, wall_clock)
        self._engine = VllmEngine(target, transport)
        self._state = TargetState()

    def jobs(self) -> Sequence[Job]:
        """The scrape, and the look at facts."""
        return (*super().jobs(), Job("facts", self.refresh_facts, FACTS_INTERVAL))

    async def refresh_facts(self) -> None:
        """Ask the server for its version and models if they are not known, as after a start or a restart."""
        await self._until_closed(self._refresh_facts())

    def _health(self) -> Health:
        return self._state.health

    async def _read(self, sent: float) -> None:
        answer = await self._engine.fetch()
        done = self._clock()
        # A large page takes long to read; /metrics and the other targets go on meanwhile.
        page = await asyncio.to_thread(self._engine.interpret, answer)
        self._show(succeed(self._state, page, Timing(sent, done, self._wall_clock()), self.target))

    def _take_failure(self, error: ScrapeError, timing: Timing) -> None:
        self._show(fail(self._state, error, timing))

    async def _disconnect(self) -> None:
        await self._engine.close()

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

    def _show(self, state: TargetState) -> None:
        self._state = state
        self._snapshot = snapshot(state, self.target)
