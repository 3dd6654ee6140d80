"""Hours of an Ollama that is watched, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx
from structlog.testing import capture_logs

from phasewatch.backends.ollama.scraper import OllamaMonitor
from phasewatch.config.device_settings import DeviceSettings
from phasewatch.config.probe_settings import ProbeSettings
from phasewatch.config.resolve import Target
from phasewatch.demo.ollama.api import Model
from phasewatch.metrics.collector import target_families
from tests.support.ollama_facts import seeded
from tests.support.pages import Metrics
from tests.support.simulated_ollama import URL, Ollama, OllamaTransport, User, Visit
from tests.support.timeline import Timeline

TICK_SECONDS: Final = 0.5
"""Shortest pause between two runs of a job: hours of quarter seconds would take minutes."""

LOOK_SECONDS: Final = 10.0
"""Between two looks at /metrics."""

Wrap = Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport]


class Lives(Protocol):
    """Somebody or something that does its own to the server."""

    async def live(self, transport: OllamaTransport) -> None:
        """All of it."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What came of it: the server, what /metrics showed at each look, and what was logged."""

    ollama: Ollama
    seconds: float
    seen: list[tuple[float, Metrics]] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    def values(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """When, and what, a series was shown."""
        return [
            (time, value)
            for time, metrics in self.seen
            for (found, pairs), value in metrics.items()
            if found == name and labels.items() <= dict(pairs).items()
        ]

    def last(self, name: str, **labels: str) -> float:
        """The newest value of a series; 0 of a counter that never was."""
        found = self.values(name, **labels)
        return found[-1][1] if found else 0.0

    def generated(self) -> int:
        """Requests to /api/generate that were ours."""
        return sum(1 for asked in self.ollama.asked if asked.path == "/api/generate" and _is_ours(asked.headers))

    def logged(self, event: str) -> list[Any]:
        """The log lines of an event."""
        return [line for line in self.logs if line["event"] == event]


def _is_ours(headers: Any) -> bool:
    return str(headers.get("user-agent", "")).startswith("phasewatch/")


def watch(
    models: Sequence[Model],
    users: Sequence[Lives] = (),
    settings: ProbeSettings | None = None,
    *,
    seconds: float = 3600.0,
    seed: int = 1,
    incident: Callable[[Ollama], Awaitable[None]] | None = None,
    wrap: Wrap = lambda transport: transport,
    device: DeviceSettings | None = None,
    **server: Any,
) -> Watched:
    """Watch a server that its users come to.

    Args:
        models: on its disk.
        users: who come and go.
        settings: of the probes.
        seconds: how long.
        seed: of the monitor's jitter and prompts.
        incident: what else happens to the server meanwhile.
        wrap: puts something between the monitor and the server.
        device: that the server is configured to have.
        server: its settings.
    """
    timeline = Timeline()
    watched = Watched(Ollama(*models, **server), seconds)
    transport = OllamaTransport(watched.ollama, timeline)
    target = Target("o", "ollama", URL, probe=settings or ProbeSettings(), device=device or DeviceSettings())

    async def work() -> None:
        monitor = OllamaMonitor(target, timeline.clock, timeline.wall_clock, wrap(transport), seeded(seed))
        began, ended = timeline.clock(), asyncio.Event()
        # Which devices this machine has is nothing to a simulated server.
        jobs = [
            every(job.run, max(job.seconds, TICK_SECONDS), ended)
            for job in monitor.jobs()
            if device or job.kind != "device"
        ]
        happening = [incident(watched.ollama)] if incident else []
        tasks = [asyncio.ensure_future(one) for one in (*jobs, *(user.live(transport) for user in users), *happening)]
        while timeline.clock() - began < seconds:
            await asyncio.sleep(LOOK_SECONDS)
            watched.seen.append((timeline.clock() - began, shown(monitor)))
        ended.set()  # a monitor's job that is given up ends like any other
        await monitor.close()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    with capture_logs() as logs:
        timeline.run(work())
    watched.logs.extend(logs)
    return watched


def shown(monitor: OllamaMonitor) -> Metrics:
    """What /metrics shows of a target."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in target_families([monitor.current()])
        for sample in family.samples
    }


def somebody(seed: int, model: str, *, keep_alive: str | int | None = None, num_ctx: int | None = None) -> User:
    """A user who comes every few minutes, for a word or a talk of up to eight turns, with replies of up to 4 s."""
    random = seeded(seed)
    visits = [
        Visit(
            pause=random.expovariate(1 / 300),
            requests=random.randint(1, 8),
            think_seconds=random.uniform(2, 40),
            words=random.randint(5, 400),
            num_predict=random.randint(20, 1200),
            keep_alive=keep_alive,
            num_ctx=num_ctx,
        )
        for _ in range(50)
    ]
    return User(model, visits)


async def every(run: Callable[[], Awaitable[None]], seconds: float, ended: asyncio.Event) -> None:
    """Run a job over and over until something has happened."""
    while not ended.is_set():
        await run()
        await asyncio.sleep(seconds)
