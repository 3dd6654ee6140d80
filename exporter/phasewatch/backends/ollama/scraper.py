"""Watches an Ollama: its inventory at each scrape, and now and then a probe of a model that is in memory."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import httpx

from phasewatch.backends.device_discovery import DeviceFinder
from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.inventory import (
    Inventory,
    LoadedModel,
    StoredModel,
    compute_clock_offset,
    is_current,
    parse_capabilities,
    parse_version,
)
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.response import (
    ProbeError,
    ProbeTimings,
    RequestOverhead,
    extract_timings,
    measure_overhead,
    parse_final_object,
)
from phasewatch.backends.ollama.probes.result import ProbeResult, record_result
from phasewatch.backends.ollama.probes.scheduling import loadable, pace, plan, skipped_as_gone, still_loaded
from phasewatch.backends.ollama.snapshot import build_snapshot, compute_gpu_ratio
from phasewatch.backends.ollama.state import (
    ModelDescription,
    ModelKey,
    OllamaState,
    fold_failure,
    fold_late_success,
    fold_success,
    observe_inventory,
    take_over_state,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.log import logger
from phasewatch.config.resolve import Target
from phasewatch.models.sources.gguf import costs_of_show
from phasewatch.scrape.scraper import Job, Scraper
from phasewatch.snapshot.health import Health, ScrapeTiming
from phasewatch.snapshot.probes import ProbeReason

PROBE_TICK: Final = 0.25
"""Seconds between looks whether a probe is due; nothing is asked of the server before one is."""

DEVICE_INTERVAL: Final = 15.0
"""Seconds between looks whether the device is known; asks only if it is not."""

STORED_INTERVAL: Final = 60.0
"""Seconds between two looks at what is on disk, for which the server opens every manifest."""

LOAD_TIMEOUT_SECONDS: Final = 600.0
"""Patience with a load that the operator allowed: giving up would undo it (Ollama's own limit is 5 minutes)."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """What came back of a request: how it went and its figures, as far as it tells, or why it failed."""

    course: RequestOverhead | None = None
    sample: ProbeTimings | None = None
    error: ProbeError | None = None


class OllamaScraper(Scraper):
    """One Ollama and what is known of it.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        transport: stands in for the network in tests.
        random: for jitter and prompts.
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
        self._engine = OllamaClient(target, transport)
        self._random = random or Random()  # noqa: S311  # prompts need to be unlike, not secret
        self._finder = DeviceFinder(target, transport)
        self._pace = pace(target.probe, self._random)
        self._state = OllamaState()
        self._stored_at: float | None = None
        self._asked_to_show: dict[str, float] = {}
        self._probe_task: asyncio.Task[None] | None = None
        self._probing: ModelKey | None = None
        self._missed_host_memory = False
        self._probe_ended = 0.0
        self._not_before = 0.0

    def jobs(self) -> Sequence[Job]:
        """The scrape, and the look whether a probe is due."""
        probe = (Job("probe", self.probe_if_due, PROBE_TICK),) if self.target.probe.enabled else ()
        learn = Job("learn", self.learn, self.target.interval)
        return (*super().jobs(), learn, Job("device", self.find_device, DEVICE_INTERVAL), *probe)

    async def learn(self) -> None:
        """Ask for what there is to know of one model in memory that is not known yet."""
        await self._until_closed(self._learn())

    async def find_device(self) -> None:
        """Find out what the server runs on, once it has answered."""
        if self._state.health.answered:
            await self._until_closed(self._find_device())

    async def probe_if_due(self) -> None:
        """Begin a probe if one is due and none is under way."""
        if self._probe_task is not None and not self._probe_task.done():
            return
        if self._state.health.up and self._clock() >= self._not_before and self._plan() is not None:
            self._probe_task = asyncio.create_task(self._probe_until_closed())
            self._under_way.add(self._probe_task)  # `close` must find it even before it has run

    def take_over(self, before: Scraper) -> None:
        """Go on from what another monitor of the same server knows: who uses its models, and what is owed to it."""
        if isinstance(before, OllamaScraper) and before.target.url == self.target.url:
            self._show(take_over_state(before._state, before._probing))  # noqa: SLF001  # one of its own kind

    def _health(self) -> Health:
        return self._state.health

    async def _read(self, sent: float) -> None:
        version = await self._engine.version()
        asked = self._clock()
        try:
            inventory = await self._inventory()
        except ScrapeError as error:
            if error.reason is not Reason.TIMEOUT:
                raise
            timing = ScrapeTiming(sent, self._clock(), self._wall_clock())
            self._show(fold_late_success(self._state, version, error, timing))
            return
        if asked >= self._probe_ended:  # what was asked before does not know of the expiry that the probe has caused
            self._observe(inventory)
        self._show(fold_success(self._state, version, ScrapeTiming(sent, self._clock(), self._wall_clock())))

    async def _find_device(self) -> None:
        try:
            device = await self._finder.find()
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            logger().error("finding the device broke", target=self.target.name, exc_info=True)
            return
        if device is not None:
            self._show(replace(self._state, device=device))
        self._miss_host_memory()

    def _miss_host_memory(self) -> None:
        """Say once that a model has no ceiling because nobody knows how fast the memory is that holds a part of it."""
        state = self._state
        version = parse_version(state.version)
        shares = (
            [(model.name, compute_gpu_ratio(model, version)) for model in state.inventory.loaded]
            if state.inventory
            else []
        )
        partly = [name for name, share in shares if share is not None and share < 1]
        if partly and state.device.cpu_memory_bandwidth is None and not self._missed_host_memory:
            self._missed_host_memory = True
            note = (
                f"{partly[0]} is wholly or partly in the host's memory, whose bandwidth is not known: "
                "set device.cpu_memory_bandwidth, or run `phasewatch devices --measure` on that machine"
            )
            logger().info("device", target=self.target.name, note=note)

    def _take_failure(self, error: ScrapeError, timing: ScrapeTiming) -> None:
        self._show(fold_failure(self._state, error, timing))

    async def _disconnect(self) -> None:
        await self._engine.close()

    async def _inventory(self) -> Inventory:
        """What is in memory, and what is on disk if that was not asked lately or does not explain the former.

        Raises:
            ScrapeError: it could not be had.
        """
        loaded, date = await self._engine.loaded()
        known = self._state.inventory
        stored = known.stored if known else None
        old = self._stored_at is None or self._clock() - self._stored_at >= STORED_INTERVAL
        if old or stored is None or not all(is_current(model, stored) for model in loaded):
            stored = await self._stored()
        return Inventory(loaded, stored, compute_clock_offset(date, self._wall_clock()))

    async def _stored(self) -> Mapping[str, StoredModel]:
        stored = await self._engine.stored()
        self._stored_at = self._clock()
        return stored

    async def _fresh_inventory(self) -> Inventory:
        """What is on disk and then, right before a probe, what is in memory.

        Raises:
            ScrapeError: it could not be had.
        """
        stored = await self._stored()
        loaded, date = await self._engine.loaded()
        return Inventory(loaded, stored, compute_clock_offset(date, self._wall_clock()))

    def _observe(self, inventory: Inventory) -> None:
        allowed = tuple(loadable(inventory, self.target.probe))
        self._state = observe_inventory(
            self._state, inventory, self._clock(), self._pace, loadable=allowed, probing=self._probing
        )

    async def _learn(self) -> None:
        inventory = self._state.inventory
        model = next((model for model in inventory.loaded if self._is_unknown(model)), None) if inventory else None
        if inventory is None or model is None:
            return
        there = {other.digest for other in inventory.loaded}
        self._asked_to_show = {digest: asked for digest, asked in self._asked_to_show.items() if digest in there}
        self._asked_to_show[model.digest] = self._clock()
        try:
            told = await self._engine.show(model.name)
            costs, unknown = await asyncio.to_thread(costs_of_show, told)
        except ScrapeError as error:
            logger().debug("a model cannot be shown", target=self.target.name, error=error.message)
            return
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            logger().error("learning of a model broke", target=self.target.name, model=model.name, exc_info=True)
            return
        shown = ModelDescription(parse_capabilities(told), costs)
        self._show(replace(self._state, shown={**self._state.shown, model.digest: shown}))
        if unknown:
            logger().info("model", target=self.target.name, model=model.name, note="; ".join(unknown))

    def _is_unknown(self, model: LoadedModel) -> bool:
        """Whether a model is still to be asked for: it is what its name stands for, and was not asked for lately."""
        inventory, asked = self._state.inventory, self._asked_to_show.get(model.digest)
        lately = asked is not None and self._clock() - asked < STORED_INTERVAL
        current = inventory is not None and is_current(model, inventory.stored)
        return model.digest not in self._state.shown and not lately and current

    def _plan(self) -> ProbeRequest | None:
        """The request that is due, if any. What is skipped instead is counted."""
        self._state, request = plan(self._state, self.target.probe, self._clock(), self._wall_clock(), self._random)
        return request

    async def _probe_until_closed(self) -> None:
        await self._until_closed(self._probe())

    async def _probe(self) -> None:
        try:
            request = await self._confirmed()
            if request is not None:
                self._probing = request.key
                await self._carry_out(request)
        except ScrapeError as error:
            self._not_before = self._clock() + self.target.interval
            logger().debug("no probe", target=self.target.name, error=error.message)
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            logger().error("probe broke", target=self.target.name, exc_info=True)
        finally:
            self._probing = None
            self._show(self._state)

    async def _confirmed(self) -> ProbeRequest | None:
        """The request that is still due after a fresh look: what was seen seconds ago may have been unloaded since.

        Raises:
            ScrapeError: nothing could be seen.
        """
        meant = self._plan()
        self._observe(await self._fresh_inventory())
        if meant is not None and meant.kind is not RequestKind.LOAD and not still_loaded(self._state, meant.key):
            now, interval = self._clock(), self.target.probe.interval
            self._state = skipped_as_gone(self._state, meant.key, now, interval)
        return self._plan()

    async def _carry_out(self, request: ProbeRequest) -> None:
        before = self._state.inventory or Inventory(())
        sent = self._clock()
        answered = await self._ask(request, before)
        ended, wall = self._clock(), self._wall_clock()
        self._probe_ended = ended
        try:
            after = await self._inventory()
        except ScrapeError:
            after = None
        result = ProbeResult(
            request, answered.course, answered.sample, answered.error, sent, ended, wall, before=before, after=after
        )
        known = self._state
        self._state = record_result(known, result, self.target.probe, self._random)
        self._probing = None
        if after is not None:
            self._observe(after)
        self._tell_probe(result, known, self._state)

    async def _ask(self, request: ProbeRequest, before: Inventory) -> _Answered:
        deadline = LOAD_TIMEOUT_SECONDS if request.kind is RequestKind.LOAD else self.target.probe.timeout
        went: RequestOverhead | None = None
        try:
            told = parse_final_object(await self._engine.generate(request.body, deadline))
            if request.kind is RequestKind.LOAD:
                return _Answered()
            formats = {model.key: model.details.format for model in before.loaded}
            version, model_format = parse_version(self._state.version), formats.get(request.key, "")
            went = measure_overhead(told)
            return _Answered(went, extract_timings(told, version=version, model_format=model_format))
        except ScrapeError as error:
            return _Answered(error=ProbeError(ProbeReason(error.reason.value), error.message))
        except ProbeError as error:
            return _Answered(went, error=error)
        except Exception as error:  # noqa: BLE001  # as above; counted, or the same probe would be due again at once
            logger().error("probe broke", target=self.target.name, exc_info=True)
            return _Answered(
                error=ProbeError(ProbeReason.INTERNAL, f"a defect of the exporter: {type(error).__name__}")
            )

    def _show(self, state: OllamaState) -> None:
        self._state = state
        self._snapshot = build_snapshot(state, self.target, self._clock())

    def _tell_probe(self, result: ProbeResult, before: OllamaState, after: OllamaState) -> None:
        """One line when probes of a model begin to fail, one when they work again, and one when they are given up."""
        key = result.request.key
        log = logger().bind(target=self.target.name, model=key[0])
        now = after.models.get(key)
        record = before.records.get(key[0])
        worked = record is None or record.success is not False
        if result.error is not None and worked:
            log.warning("probe failed", reason=result.error.reason.value, error=result.error.message)
        elif result.error is None and not worked:
            log.info("probes are answered again")
        if now is not None and now.quarantine is not None:  # for the first time: it was probed
            hint = "set probe.models[].enabled: false"
            if result.error is None:
                hint = f"give the options it is loaded with as probe.models[].options, or {hint}"
            log.warning("model no longer probed", why=now.quarantine, hint=hint)
