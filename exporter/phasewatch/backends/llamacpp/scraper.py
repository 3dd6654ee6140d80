"""Watches a target of llama-server processes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import httpx

from phasewatch.analysis.samples import EngineSample
from phasewatch.backends.client import decode_page
from phasewatch.backends.device_discovery import DISCOVERY_SECONDS, DeviceDiscovery
from phasewatch.backends.equipment import resolve_devices
from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.facts import ProcessFacts
from phasewatch.backends.llamacpp.metric_names import LEMONADE_NAMES
from phasewatch.backends.llamacpp.neighbours import (
    Address,
    Arrangement,
    find_arrangement,
    list_router_addresses,
    list_swap_addresses,
    may_know_secret,
)
from phasewatch.backends.llamacpp.process import ProcessState, fold_reading
from phasewatch.backends.llamacpp.reading import Reading
from phasewatch.backends.llamacpp.state import LlamacppState, build_snapshot
from phasewatch.backends.llamacpp.watch import ProcessWatch
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.base.errors import ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.scrape.scraper import Job, Scraper
from phasewatch.snapshot.health import Health, ScrapeTiming, record_failure, record_late, record_success

resolve_llamacpp_devices: Final = partial(resolve_devices, usual_layout=DeviceLayout.PIPELINE)
"""Resolves the devices of a llama-server, which puts whole layers on each device by default (`--split-mode layer`)."""


SLOTS_SECONDS: Final = 0.25
"""Seconds between two reads of /slots of a process without /metrics while a slot is busy. At a second, answers of 80 to
300 tokens cost 1.5 % of the throughput's accuracy, and answers of 0.2 s are not seen at all (measured on b10434)."""


class LlamacppScraper(Scraper):
    """Watches one llama-server, or those behind one address.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(target, clock, wall_clock)
        self._transport = transport
        self._client = LlamacppClient(target, transport=transport)
        self._discovery = DeviceDiscovery(target, resolve_llamacpp_devices, transport)
        self._arrangement: Arrangement | None = None
        self._watches: dict[Address, ProcessWatch] = {}
        self._lemonade = PageReader(LEMONADE_NAMES)
        self._state = LlamacppState()
        self._logged: set[str] = set()

    def list_jobs(self) -> Sequence[Job]:
        """The scrape, the check of devices and model files, and reads of slots between two scrapes."""
        facts = Job("facts", self.refresh_facts, DISCOVERY_SECONDS)
        return (*super().list_jobs(), facts, Job("slots", self.poll_slots, SLOTS_SECONDS))

    async def poll_slots(self) -> None:
        """Read the slots of the processes that show nothing else and work."""
        await self._until_closed(self._poll_slots())

    async def refresh_facts(self) -> None:
        """Determine the devices and the costs of a configured model, once the server has answered."""
        if self._state.health.answered:
            await self._until_closed(self._refresh_equipment())

    def _get_health(self) -> Health:
        return self._state.health

    async def _read(self, sent: float) -> None:
        if self._arrangement is None:
            self._arrangement = await find_arrangement(self._client)
        silence = None
        match self._arrangement:
            case Arrangement.SINGLE:
                silence = await self._scrape_single()
            case Arrangement.ROUTER:
                silence = await self._scrape_each(await list_router_addresses(self._client, self.target.url))
            case Arrangement.SWAP:
                silence = await self._scrape_each(await list_swap_addresses(self._client, self.target.url))
            case Arrangement.LEMONADE:
                await self._scrape_lemonade(sent)
        timing = ScrapeTiming(sent, self._clock(), self._wall_clock())
        before = self._state.health
        self._show(health=record_late(before, silence, timing) if silence else record_success(before, timing))

    def _record_failure(self, error: ScrapeError, timing: ScrapeTiming) -> None:
        self._arrangement = None  # another server may answer next
        self._show(health=record_failure(self._state.health, error, timing))

    async def _disconnect(self) -> None:
        for watch in self._watches.values():
            await watch.close()
        await self._client.close()

    async def _scrape_single(self) -> ScrapeError | None:
        """Scrape the process at the target's own address; the error of a silence that is no failure."""
        address = Address(self.target.url)
        watch = self._get_watch(address)
        try:
            silence = await watch.scrape()
        finally:
            self._state = replace(self._state, processes=(watch.state,))
        await self._keep_watches({address})
        self._log_missing(watch.state)
        return silence

    async def _scrape_each(self, addresses: Sequence[Address]) -> ScrapeError | None:
        """Scrape several processes. One that gives no figures is left out: it may be starting or ending.

        Raises:
            ScrapeError: none of them gives any.
        """
        await self._keep_watches(set(addresses))
        errors: list[ScrapeError] = []
        for address in addresses:
            try:
                silence = await self._get_watch(address).scrape()
            except ScrapeError as error:
                errors.append(error)
                get_logger().debug("no figures", target=self.target.name, model=address.model, error=error.message)
            else:
                errors += (silence,) if silence else ()
        self._state = replace(self._state, processes=tuple(watch.state for watch in self._watches.values()))
        if errors and len(errors) == len(addresses):
            raise errors[0]
        return errors[0] if errors else None

    async def _scrape_lemonade(self, sent: float) -> None:
        response = await self._client.fetch_metrics()
        text = decode_page(response)
        page = await asyncio.to_thread(self._lemonade.read, text)
        timing = ScrapeTiming(sent, self._clock(), None)
        known: Mapping[str, ProcessState] = {process.facts.model: process for process in self._state.processes}
        self._state = replace(
            self._state,
            processes=tuple(
                fold_reading(
                    known.get(key.model_name) or ProcessState(facts=ProcessFacts(model=key.model_name)),
                    Reading(page=sample),
                    timing,
                    self.target,
                )
                for key, sample in page.engines.items()
            ),
        )

    def _get_watch(self, address: Address) -> ProcessWatch:
        watch = self._watches.get(address)
        if watch is None:
            authorization = self.target.authorization if may_know_secret(address.url, self.target.url) else None
            target = replace(self.target, url=address.url, authorization=authorization)
            client = LlamacppClient(target, address.query, self._transport)
            watch = self._watches[address] = ProcessWatch(self.target, client, self._clock, model=address.model)
        return watch

    async def _keep_watches(self, addresses: set[Address]) -> None:
        for address in self._watches.keys() - addresses:
            await self._watches.pop(address).close()

    async def _poll_slots(self) -> None:
        for watch in tuple(self._watches.values()):
            await watch.poll_slots()

    async def _refresh_equipment(self) -> None:
        try:
            device = await self._discovery.discover()
            path = self.target.model.path
            if path is not None and self._state.configured is None:
                costs, unknown = await asyncio.to_thread(read_folder_costs, path)
                self._show(configured=costs)
                for note in unknown:
                    self._log("model", note)
        except Exception:  # noqa: BLE001  # a bug of the exporter must not end the watch
            get_logger().error("equipment broke", target=self.target.name, exc_info=True)
            return
        if device is not None:
            self._show(device=device)

    def _log_missing(self, process: ProcessState) -> None:
        """Log once which endpoint is switched off, and what is lost without it."""
        if process.tracking is None or process.asleep:
            return
        if process.tracking.page == EngineSample():
            self._log("page", "/metrics is switched off, so figures come from /slots alone: start it with --metrics")
        elif process.tracking.sample.sampled_seconds is None:
            self._log("page", "/slots is switched off, so speeds are known less often: start it with --slots")

    def _log(self, event: str, note: str) -> None:
        if note not in self._logged:
            self._logged.add(note)
            get_logger().info(event, target=self.target.name, note=note)

    def _show(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        self._snapshot = build_snapshot(self._state, self.target, self._clock())
