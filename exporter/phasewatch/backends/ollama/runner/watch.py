"""Reads the children of one Ollama, and tells the probes what users do."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import httpx

from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.slots import Slot
from phasewatch.backends.llamacpp.watch import ProcessWatch
from phasewatch.backends.ollama.inventory import Inventory, ModelKey, choose_label, extract_layer, parse_version
from phasewatch.backends.ollama.residency import end_traffic, observe_traffic
from phasewatch.backends.ollama.runner.children import Child, ChildIdentity, ProcessListing, list_processes
from phasewatch.backends.ollama.runner.findings import RunnerLook, may_have_children_here
from phasewatch.backends.ollama.runner.log import RunnerLog
from phasewatch.backends.ollama.runner.matching import Matching, match_children
from phasewatch.backends.ollama.runner.owner import select_own_children
from phasewatch.backends.ollama.runner.readings import fold_probe, serves_metrics
from phasewatch.backends.ollama.runner.traffic import serves_users
from phasewatch.backends.ollama.tracker import StateTracker
from phasewatch.base.errors import ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target

READ_SECONDS: Final = 1.0
"""Seconds between two reads of a child. It is asked directly, which costs Ollama nothing."""

READ_TIMEOUT: Final = 2.0
"""Seconds for one answer of a child."""


@dataclass(slots=True)
class _WatchedChild:
    """A child that is being read.

    Attributes:
        child: the child.
        key: the model that it runs.
        watch: reads it.
        slots: its slots at the newest reading; None before the first.
        read_at: monotonic time of the newest reading.
        scraped_at: monotonic time at which the newest full read began.
    """

    child: Child
    key: ModelKey
    watch: ProcessWatch
    slots: tuple[Slot, ...] | None = None
    read_at: float = 0.0
    scraped_at: float | None = None


class RunnerWatch:
    """Finds and reads the children of one Ollama.

    Args:
        target: the server.
        tracker: holds the state of the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        target: Target,
        tracker: StateTracker,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._target = target
        self._tracker = tracker
        self._clock = clock
        self._wall_clock = wall_clock
        self._transport = transport
        self._log = RunnerLog(target)
        self._watched: dict[ChildIdentity, _WatchedChild] = {}
        self._ended: list[_WatchedChild] = []
        self._newest: tuple[ProcessListing, Inventory] | None = None

    async def list_processes(self) -> ProcessListing | None:
        """The process list; None if children are not to be looked for, or cannot be on this machine."""
        if self._target.ollama.runners == "off":
            return None
        if not may_have_children_here(self._target):
            self._log.report_distance()
            return None
        # In a thread: a busy machine has thousands of processes.
        return await asyncio.to_thread(list_own_processes, self._target)

    def look(self, listing: ProcessListing, inventory: Inventory) -> None:
        """Match the children to the models in memory, and read those that match from now on.

        Args:
            listing: the process list, read before the inventory.
            inventory: the models in memory.
        """
        self._newest = listing, inventory
        matching = self._match(listing, inventory)
        self._log.report(
            RunnerLook(
                wall=self._wall_clock() + inventory.clock_offset,
                version=parse_version(self._tracker.state.version),
                loaded=inventory.loaded,
                layers=self._list_layers(),
                listing=listing,
                matching=matching,
                metrics=self._list_metrics(),
                busy=frozenset(
                    identity
                    for identity, watched in self._watched.items()
                    if any(slot.busy for slot in watched.slots or ())
                ),
            )
        )

    def look_again(self) -> None:
        """Match the children of the newest look once more, now that more is known of the models."""
        if self._newest is not None:
            self._match(*self._newest)

    async def read(self) -> bool:
        """Read every child that it is time for.

        Returns:
            Whether there is anything new.
        """
        news = await asyncio.gather(*(self._read(watched) for watched in tuple(self._watched.values())))
        await self._close_ended()  # only now that none of them is being read
        if any(news):
            self._publish()
        return any(news)

    async def close(self) -> None:
        """Close the connections."""
        self._ended += self._watched.values()
        self._watched.clear()
        await self._close_ended()

    async def _close_ended(self) -> None:
        while self._ended:
            await self._ended.pop().watch.close()

    def _match(self, listing: ProcessListing, inventory: Inventory) -> Matching:
        """Read those children from now on that run a model in memory, and no others."""
        matching = match_children(listing.children, inventory.loaded, self._list_layers())
        models = {model.key: model for model in inventory.loaded}
        children = {child.identity: (child, models[key]) for key, child in matching.children.items()}
        for identity, watched in tuple(self._watched.items()):
            if identity not in children or children[identity][1].key != watched.key:
                self._ended.append(self._watched.pop(identity))
        for identity, (child, model) in children.items():
            if identity not in self._watched:
                self._watched[identity] = self._start(child, model.key)
            self._watched[identity].watch.rename(choose_label(model, inventory))
        self._publish()
        return matching

    def _list_layers(self) -> dict[str, str]:
        """The layer with the weights of each model that is known, by digest."""
        descriptions = self._tracker.state.descriptions
        return {digest: text.layer for digest, text in descriptions.items() if text.layer is not None}

    def _start(self, child: Child, key: ModelKey) -> _WatchedChild:
        target = create_child_target(self._target, child)
        client = LlamacppClient(target, transport=self._transport)
        watch = ProcessWatch(target, client, self._clock, model=key[0])
        watch.let_queue_elsewhere()
        return _WatchedChild(child, key, watch)

    async def _read(self, watched: _WatchedChild) -> bool:
        """Read one child if it is time for it; whether there is anything new."""
        before, now = watched.watch.state, self._clock()
        if watched.scraped_at is None or now - watched.scraped_at >= min(READ_SECONDS, self._target.interval):
            watched.scraped_at = now
            try:
                await watched.watch.scrape()
            except ScrapeError as error:
                note = {"target": self._target.name, "model": watched.key[0], "error": error.message}
                get_logger().debug("a runner gives no figures", **note)
        else:
            await watched.watch.poll_slots()
        if self._watched.get(watched.child.identity) is not watched:  # it has ended meanwhile
            return False
        if _is_another(watched):
            self._ended.append(self._watched.pop(watched.child.identity))
            return True
        self._fold_traffic(watched)
        return watched.watch.state is not before

    def _fold_traffic(self, watched: _WatchedChild) -> None:
        """Record whether the newest slots show users, and keep what a probe did out of their figures."""
        tracking = watched.watch.state.tracking
        if tracking is None or tracking.slots is None or tracking.time <= watched.read_at:
            return
        state, key = self._tracker.state, watched.key
        model = state.models.get(key)
        ended = model.probed_at if model else None
        probed = self._tracker.probing == key or (ended is not None and ended >= watched.read_at)
        served = serves_users(watched.slots, tracking.slots, probed=probed)
        watched.slots, watched.read_at = tracking.slots, tracking.time
        if probed:
            watched.watch.state = fold_probe(watched.watch.state)
        self._tracker.state = observe_traffic(state, key, tracking.time, served=served)

    def _publish(self) -> None:
        """Put the newest states of the children into that of the server."""
        runners = {watched.key: watched.watch.state for watched in self._watched.values()}
        before = self._tracker.state
        self._tracker.state = replace(end_traffic(before, before.runners.keys() - runners.keys()), runners=runners)

    def _list_metrics(self) -> dict[ChildIdentity, bool]:
        answers = {identity: serves_metrics(watched.watch.state) for identity, watched in self._watched.items()}
        return {identity: answer for identity, answer in answers.items() if answer is not None}


def list_own_processes(target: Target) -> ProcessListing:
    """The process list, without the children of other Ollamas where it can be seen whose they are."""
    procfs = target.ollama.procfs
    return select_own_children(list_processes(procfs), procfs, target.url)


def _is_another(watched: _WatchedChild) -> bool:
    """Whether another process answers at the port of a child: its port is free for others once it has ended, and leads
    elsewhere where its network is not ours.
    """
    path = watched.watch.state.facts.props.path
    return path is not None and extract_layer(path) != watched.child.layer


def create_child_target(target: Target, child: Child) -> Target:
    """The target with the address and the settings of one of its children, which needs no authorization."""
    return replace(
        target,
        url=f"http://127.0.0.1:{child.port}",
        metrics_path="/metrics",
        timeout=min(target.timeout, READ_TIMEOUT),
        authorization=None,
        tls_config=None,
        server=replace(target.server, kv_unified=child.unified, sleep_idle=float(child.sleep_idle)),
    )
