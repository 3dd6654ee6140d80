"""Scrapes an Ollama: its inventory in each scrape, its models and device once, and a probe now and then."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

import httpx

from phasewatch.backends.device_discovery import DISCOVERY_SECONDS, DeviceDiscovery
from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.devices import resolve_ollama_devices
from phasewatch.backends.ollama.inventory import LoadedModel, is_current, parse_capabilities, parse_layer, parse_version
from phasewatch.backends.ollama.probes.runner import ProbeRunner
from phasewatch.backends.ollama.probes.scheduling import draw_pace
from phasewatch.backends.ollama.runner.findings import may_have_children_here
from phasewatch.backends.ollama.runner.watch import RunnerWatch
from phasewatch.backends.ollama.snapshot import build_snapshot, compute_gpu_ratio
from phasewatch.backends.ollama.state import (
    ModelDescription,
    OllamaState,
    fold_failure,
    fold_late_success,
    fold_success,
    take_over_state,
)
from phasewatch.backends.ollama.tracker import StateTracker
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target
from phasewatch.models.sources.gguf import read_show_costs
from phasewatch.scrape.scraper import Job, Scraper
from phasewatch.snapshot.health import Health, ScrapeTiming

PROBE_TICK: Final = 0.25
"""Seconds between two checks whether a probe is due; the server is not asked for that."""

RUNNER_TICK: Final = 0.25
"""Seconds between two checks whether a child is to be read, and between two reads of one that has only its slots."""

SHOW_INTERVAL: Final = 60.0
"""Least seconds between two requests of /api/show for one model."""


class OllamaScraper(Scraper):
    """Scrapes and probes one Ollama.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        transport: replaces the network in tests.
        random: source of random numbers for jitter and prompts.
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(target, clock, wall_clock)
        random = random or Random()  # noqa: S311  # prompts need to be unlike, not secret
        self._client = OllamaClient(target, transport)
        self._discovery = DeviceDiscovery(target, resolve_ollama_devices, transport)
        pace = draw_pace(target.probe, random)
        self._tracker = StateTracker(self._client, target.probe, pace, clock, wall_clock)
        self._runner = ProbeRunner(target, self._client, self._tracker, clock, wall_clock, random)
        self._runners = RunnerWatch(target, self._tracker, clock, wall_clock, transport)
        self._show_sent_at: dict[str, float] = {}
        self._probe_task: asyncio.Task[None] | None = None
        self._logged_host_memory = False

    def list_jobs(self) -> Sequence[Job]:
        """The scrape, /api/show, the device, reads of the children, and the check whether a probe is due."""
        watch = self.target.ollama.runners != "off" and may_have_children_here(self.target)
        runners = (Job("runners", self.read_runners, RUNNER_TICK),) if watch else ()
        probe = (Job("probe", self.probe_if_due, PROBE_TICK),) if self.target.probe.enabled else ()
        learn = Job("learn", self.learn, self.target.interval)
        return (*super().list_jobs(), learn, Job("device", self.find_device, DISCOVERY_SECONDS), *runners, *probe)

    async def read_runners(self) -> None:
        """Read the children that run the models in memory."""
        await self._until_closed(self._read_runners())

    async def learn(self) -> None:
        """Read the metadata of one model in memory that has none yet."""
        await self._until_closed(self._learn())

    async def find_device(self) -> None:
        """Detect the server's device, once the server has answered."""
        if self._tracker.state.health.answered:
            await self._until_closed(self._find_device())

    async def probe_if_due(self) -> None:
        """Start a probe if one is due and none is running."""
        if self._probe_task is not None and not self._probe_task.done():
            return
        if self._runner.is_ready() and self._runner.take_request() is not None:
            self._probe_task = asyncio.create_task(self._probe_until_closed())
            self._tasks.add(self._probe_task)  # `close` must find it even before it has run

    def take_over(self, before: Scraper) -> None:
        """Start from the state of another scraper of the same server: the use of its models, pauses and backoffs."""
        if isinstance(before, OllamaScraper) and before.target.url == self.target.url:
            tracker = before._tracker  # noqa: SLF001  # one of its own kind
            self._publish(take_over_state(tracker.state, tracker.probing))

    def _get_health(self) -> Health:
        return self._tracker.state.health

    def _publish(self, state: OllamaState) -> None:
        self._tracker.state = state
        self._snapshot = build_snapshot(state, self.target, self._clock())

    async def _read(self, sent: float) -> None:
        version = await self._client.fetch_version()
        processes = await self._runners.list_processes()
        inventory_sent = self._clock()
        try:
            inventory = await self._tracker.read_inventory()
        except ScrapeError as error:
            if error.reason is not Reason.TIMEOUT:
                raise
            timing = ScrapeTiming(sent, self._clock(), self._wall_clock())
            self._publish(fold_late_success(self._tracker.state, version, error, timing))
            return
        if inventory_sent >= self._tracker.probe_ended:  # an older one lacks the expiry that the probe caused
            self._tracker.observe(inventory)
        if processes is not None:
            self._runners.look(processes, inventory)
        timing = ScrapeTiming(sent, self._clock(), self._wall_clock())
        self._publish(fold_success(self._tracker.state, version, timing))

    def _record_failure(self, error: ScrapeError, timing: ScrapeTiming) -> None:
        self._publish(fold_failure(self._tracker.state, error, timing))

    async def _disconnect(self) -> None:
        await self._runners.close()
        await self._client.close()

    async def _read_runners(self) -> None:
        try:
            news = await self._runners.read()
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            get_logger().error("reading of the runners broke", target=self.target.name, exc_info=True)
            return
        if news:
            self._publish(self._tracker.state)

    async def _learn(self) -> None:
        inventory = self._tracker.state.inventory
        model = (
            next((model for model in inventory.loaded if self._lacks_description(model)), None) if inventory else None
        )
        if inventory is None or model is None:
            return
        digests = {other.digest for other in inventory.loaded}
        self._show_sent_at = {digest: sent for digest, sent in self._show_sent_at.items() if digest in digests}
        self._show_sent_at[model.digest] = self._clock()
        try:
            metadata = await self._client.show_model(model.name)
            costs, unknown = await asyncio.to_thread(read_show_costs, metadata)
        except ScrapeError as error:
            get_logger().debug("a model cannot be shown", target=self.target.name, error=error.message)
            return
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            get_logger().error("learning of a model broke", target=self.target.name, model=model.name, exc_info=True)
            return
        state = self._tracker.state
        description = ModelDescription(parse_capabilities(metadata), costs, parse_layer(metadata))
        self._tracker.state = replace(state, descriptions={**state.descriptions, model.digest: description})
        self._runners.look_again()  # before the first probe, which needs to know of users
        self._publish(self._tracker.state)
        if unknown:
            get_logger().info("model", target=self.target.name, model=model.name, note="; ".join(unknown))

    def _lacks_description(self, model: LoadedModel) -> bool:
        """Whether to send /api/show for a model: its name stands for it, and there was no recent request."""
        state, sent = self._tracker.state, self._show_sent_at.get(model.digest)
        recently = sent is not None and self._clock() - sent < SHOW_INTERVAL
        current = state.inventory is not None and is_current(model, state.inventory.stored)
        return model.digest not in state.descriptions and not recently and current

    async def _find_device(self) -> None:
        try:
            device = await self._discovery.discover()
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            get_logger().error("finding the device broke", target=self.target.name, exc_info=True)
            return
        if device is not None:
            self._publish(replace(self._tracker.state, device=device))
        self._log_unknown_host_memory()

    def _log_unknown_host_memory(self) -> None:
        """Log once that a model has no ceiling because a part of it is in memory of unknown bandwidth."""
        state = self._tracker.state
        version = parse_version(state.version)
        loaded = state.inventory.loaded if state.inventory else ()
        ratios = [(model.name, compute_gpu_ratio(model, version)) for model in loaded]
        partly = [name for name, ratio in ratios if ratio is not None and ratio < 1]
        if partly and state.device.cpu_memory_bandwidth is None and not self._logged_host_memory:
            self._logged_host_memory = True
            note = (
                f"{partly[0]} is wholly or partly in the host's memory, whose bandwidth is not known: "
                "set device.cpu_memory_bandwidth, or run `phasewatch devices --measure` on that machine"
            )
            get_logger().info("device", target=self.target.name, note=note)

    async def _probe_until_closed(self) -> None:
        await self._until_closed(self._probe())

    async def _probe(self) -> None:
        try:
            await self._runner.run()
        finally:
            self._publish(self._tracker.state)
