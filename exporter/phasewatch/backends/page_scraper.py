"""Watches a server by its page of metrics, and periodically checks its facts, devices and models."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from phasewatch.backends.device_discovery import DISCOVERY_SECONDS, RETRY_TICKS, DeviceDiscovery
from phasewatch.backends.equipment import describe_unused_settings, read_root_costs
from phasewatch.backends.page_client import PageClient
from phasewatch.backends.page_state import (
    PageRules,
    PageState,
    build_snapshot,
    fold_failure,
    fold_page,
    learn_facts,
    list_notes,
)
from phasewatch.base.errors import ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.costs import ModelCosts
from phasewatch.models.shape.cache_types import AUTO
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.scrape.scraper import Job, Scraper
from phasewatch.snapshot.health import Health, ScrapeTiming
from phasewatch.snapshot.target import ServerFacts


class PageScraper(Scraper):
    """Watches one server with a page of metrics.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        client: client of the server.
        rules: the backend's rules for its counters.
        discovery: discovers its devices.
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        *,
        client: PageClient,
        rules: PageRules,
        discovery: DeviceDiscovery,
    ) -> None:
        super().__init__(target, clock, wall_clock)
        self._client = client
        self._rules = rules
        self._discovery = discovery
        self._state = PageState()
        self._ticks = 0
        self._facts_are_old = False
        self._logged_models: set[tuple[str, tuple[str, ...]]] = set()
        self._logged_replicas = False
        self._logged_notes: set[str] = set()

    def list_jobs(self) -> Sequence[Job]:
        """The scrape, and the check of facts and equipment."""
        return (*super().list_jobs(), Job("facts", self.refresh_facts, DISCOVERY_SECONDS))

    async def refresh_facts(self) -> None:
        """Request the server's version and models if they are unknown, as after a start or a restart, or old: another
        release may have been started while scrapes failed. Then determine its devices and the costs of its models.
        """
        await self._until_closed(self._refresh_facts())
        if self._state.health.answered:
            await self._until_closed(self._refresh_equipment())

    def _get_health(self) -> Health:
        return self._state.health

    async def _read(self, sent: float) -> None:
        response = await self._client.fetch()
        done = self._clock()
        # In a thread: a large page takes long to parse, and neither /metrics nor other targets must wait.
        page = await asyncio.to_thread(self._client.parse_page, response)
        timing = ScrapeTiming(sent, done, self._wall_clock())
        self._show(fold_page(self._state, page, timing, self.target, self._rules))
        self._log_notes()

    def _record_failure(self, error: ScrapeError, timing: ScrapeTiming) -> None:
        self._facts_are_old = True
        self._show(fold_failure(self._state, error, timing))

    async def _disconnect(self) -> None:
        await self._client.close()

    async def _refresh_facts(self) -> None:
        facts = self._state.facts
        if facts.version is not None and facts.models and not self._facts_are_old:
            return
        try:
            reported = await self._client.fetch_facts()
        except Exception:  # noqa: BLE001  # facts are optional, so no error may end the task
            get_logger().debug("facts cannot be had", target=self.target.name, exc_info=True)
            return
        if self._state.facts == facts:  # otherwise the server has restarted in the meantime
            merged = ServerFacts(reported.version or facts.version, reported.models or facts.models, reported.server)
            self._facts_are_old = self._facts_are_old and reported.version is None
            self._show(learn_facts(self._state, merged, self.target, self._rules))

    async def _refresh_equipment(self) -> None:
        try:
            device = await self._discovery.discover()
            if device is not None:
                self._equip(device=device)
            self._log_suspected_replicas()
            await self._refresh_costs()
        except Exception:  # noqa: BLE001  # a bug of the exporter must not end the watch
            get_logger().error("equipment broke", target=self.target.name, exc_info=True)

    async def _refresh_costs(self) -> None:
        self._ticks += 1
        path = self.target.model.path
        if path is not None:
            if self._needs_costs(self._state.equipment.configured):
                dtype = self._find_cache_dtype(None)
                costs, unknown = await asyncio.to_thread(read_folder_costs, path, dtype or AUTO)
                self._equip(configured=costs)
                self._log_model(str(path), (*unknown, *describe_unused_settings(costs, self.target.model, dtype)))
            return
        for name, served in self._state.facts.models.items():
            if self._needs_costs(self._state.equipment.models.get(name)):
                dtype = self._find_cache_dtype(name)
                costs, unknown = await asyncio.to_thread(read_root_costs, served.root, dtype or AUTO)
                self._equip(models={**self._state.equipment.models, name: costs})
                if self.target.model.weights is not None:  # if the size is configured, files are not expected
                    unknown = ()
                self._log_model(name, (*unknown, *describe_unused_settings(costs, self.target.model, dtype)))

    def _needs_costs(self, costs: ModelCosts | None) -> bool:
        """Whether to look for the files of a model: the first time, and on every fourth tick until they are found."""
        return costs is None or (costs == ModelCosts() and self._ticks % RETRY_TICKS == 0)

    def _find_cache_dtype(self, model: str | None) -> str | None:
        """Number format of a model's KV cache, configured or else reported by the server; None for the first model."""
        reported = (
            analysis.cache_dtype
            for key, analysis in self._state.engines.items()
            if model is None or key.model_name == model
        )
        return self.target.model.kv_cache_dtype or next(reported, None)

    def _equip(self, **changes: Any) -> None:
        self._show(replace(self._state, equipment=replace(self._state.equipment, **changes)))

    def _log_model(self, model: str, notes: tuple[str, ...]) -> None:
        """Log the notes about a model, the same ones only once: they are found again after a restart of the server."""
        if notes and (model, notes) not in self._logged_models:
            self._logged_models.add((model, notes))
            get_logger().info("model", target=self.target.name, model=model, note="; ".join(notes))

    def _log_notes(self) -> None:
        """Log what was left out because it cannot be right, each note only once."""
        for note in list_notes(self._state):
            if note not in self._logged_notes:
                self._logged_notes.add(note)
                get_logger().info("page", target=self.target.name, note=note)

    def _log_suspected_replicas(self) -> None:
        """Log a hint if there are as many engines as devices: then each device probably has a replica of its own."""
        device, page = self._state.equipment.device, self._state.window.newest
        engines = len(page.engines) if page else 0
        if self._logged_replicas or device.layout is not DeviceLayout.TENSOR or not 1 < device.count == engines:
            return
        self._logged_replicas = True
        note = (
            f"device.count is taken for {device.count} devices of each of the {engines} engines: "
            "set device.layout to replica if each has one of its own"
        )
        get_logger().info("device", target=self.target.name, note=note)

    def _show(self, state: PageState) -> None:
        self._state = state
        self._snapshot = build_snapshot(state, self.target)
