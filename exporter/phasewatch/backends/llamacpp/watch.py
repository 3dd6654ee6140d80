"""Reads one llama-server process, live: decides what to read, and folds it into the state of the process."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.facts import ProcessFacts, Props
from phasewatch.backends.llamacpp.process import (
    ProcessState,
    excuses_silence,
    fold_failure,
    fold_reading,
    fold_slots,
    is_another_process,
    is_idle,
    needs_frequent_reads,
    rename,
)
from phasewatch.backends.llamacpp.reading import Reading, ReadingParser
from phasewatch.backends.llamacpp.rest import create_rest, record_full_read, record_sleep, should_rest
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.snapshot.health import ScrapeTiming

MODEL_SECONDS: Final = 60.0
"""Seconds between two requests of /v1/models while the size of the model is unknown."""


class ProcessWatch:
    """One llama-server process and its state.

    Args:
        target: the server that the process belongs to, with window and thresholds.
        client: client of the process.
        clock: monotonic seconds.
        model: name of the model, where something else than the process decides it; empty to ask the process.

    Attributes:
        state: the newest state.
    """

    def __init__(self, target: Target, client: LlamacppClient, clock: Callable[[], float], *, model: str = "") -> None:
        self.state = ProcessState(facts=ProcessFacts(model=model, kv_unified=target.server.kv_unified))
        self._target = target
        self._client = client
        self._clock = clock
        self._named = bool(model)
        self._parser = ReadingParser()
        self._rest = create_rest(target.server.sleep_idle)
        self._reading = False
        self._model_asked_at: float | None = None

    def let_queue_elsewhere(self) -> None:
        """Take the requests to wait in front of the process, see `ProcessFacts.queues_elsewhere`."""
        self.state = replace(self.state, facts=replace(self.state.facts, queues_elsewhere=True))

    def rename(self, model: str) -> None:
        """Give the model of the process another name."""
        if self.state.facts.model != model:
            self.state = rename(self.state, model)

    async def scrape(self) -> ScrapeError | None:
        """Read the process once.

        Returns:
            The error of a read that got no page in time, where that is no failure; otherwise None.

        Raises:
            ScrapeError: it did not show its figures, and nothing excuses that.
        """
        sent = self._clock()
        self._reading = True
        try:
            reading = await self._read()
        except ScrapeError as error:
            await self._fold_failure(error)
            return error
        finally:
            self._reading = False
        timing = ScrapeTiming(sent, self._clock(), None)
        before = self.state
        self.state = fold_reading(before, reading, timing, self._target)
        if is_another_process(before, self.state):
            self._rest = create_rest(self._target.server.sleep_idle)
        if not reading.asleep and not reading.resting:
            self._rest = record_full_read(self._rest, timing.done, idle=is_idle(before, self.state))
        return None

    async def poll_slots(self) -> None:
        """Read the slots once more between two scrapes, if the process shows nothing else and works."""
        if not needs_frequent_reads(self.state, self._clock()) or self._reading:
            return
        try:
            response = await self._client.fetch_slots()
            slots = self._parser.parse_slots(response)
        except ScrapeError:
            return  # the next scrape says what is wrong
        if slots is not None and not self._reading:
            self.state = fold_slots(self.state, slots, self._clock())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _read(self) -> Reading:
        props = await self._client.fetch_props()
        if props.asleep:
            self._rest = record_sleep(self._rest)
            await self._learn(props)
            return Reading(asleep=True)
        if should_rest(self._rest, self._clock(), can_sleep=props.asleep is not None):
            return Reading(resting=True)
        metrics = await self._client.fetch_metrics()
        slots = await self._client.fetch_slots()
        # In a thread: neither /metrics nor other targets must wait for a large page.
        reading = await asyncio.to_thread(self._parser.parse, metrics, slots)
        await self._learn(props)
        return reading

    async def _learn(self, props: Props) -> None:
        """Take over what the process says about itself. Its model is asked for once, and again each minute until its
        size is known: it is not while the model loads.
        """
        facts, now = self.state.facts, self._clock()
        known = facts.props == replace(props, asleep=facts.props.asleep)
        asked = self._model_asked_at is not None and now - self._model_asked_at < MODEL_SECONDS
        if known and (facts.weight_bytes is not None or asked):
            return
        self._model_asked_at = now
        model = await self._client.fetch_model(facts.model if self._named else "")
        facts = self.state.facts  # it may have been renamed meanwhile
        name = facts.model if self._named else (model.name if model else props.model or "")
        self.state = replace(
            self.state,
            facts=replace(facts, model=name, props=props, weight_bytes=model.weight_bytes if model else None),
        )

    async def _fold_failure(self, error: ScrapeError) -> None:
        self.state = fold_failure(self.state, error)
        if error.refused:  # the next process may have another setting
            self._rest = create_rest(self._target.server.sleep_idle)
        if error.reason is not Reason.TIMEOUT:
            raise error
        alive = await self._client.is_alive()
        if not excuses_silence(self.state, self._clock(), alive=alive):
            raise error
