"""A simulated Ollama with users, scraped by the exporter for hours of simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
from structlog.testing import capture_logs

from phasewatch.backends.ollama.scraper import OllamaScraper
from phasewatch.config.settings import DeviceSettings, OllamaSettings, ProbeSettings
from phasewatch.demo.ollama.model import Model
from phasewatch.metrics.collector import build_target_families
from tests.support.ollama_facts import seeded
from tests.support.pages import Metrics
from tests.support.simulated_ollama import URL, OllamaTransport, RecordingOllama, User, Visit
from tests.support.targets import new_probe_settings, new_target
from tests.support.timeline import Timeline

TICK_SECONDS: Final = 1.0
"""Shortest pause between two runs of a job. It is four times that of `serve`, since simulated hours take long."""

SCRAPE_SECONDS: Final = 10.0
"""Interval of the target: twice the default, which halves the duration of simulated hours."""

SAMPLE_SECONDS: Final = 20.0
"""Time between two readings of /metrics."""

Wrap = Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport]


class Actor(Protocol):
    """A user or another source of requests to the server."""

    async def live(self, transport: OllamaTransport) -> None:
        """Send all requests."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The result: the server, its metrics at each reading (seconds since the start, metrics), and the log lines."""

    ollama: RecordingOllama
    seconds: float
    readings: list[tuple[float, Metrics]] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    def values(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """Times and values of a series."""
        return [
            (time, value)
            for time, metrics in self.readings
            for (series, pairs), value in metrics.items()
            if series == name and labels.items() <= dict(pairs).items()
        ]

    def last(self, name: str, **labels: str) -> float:
        """The newest value of a series; 0 if it never existed."""
        values = self.values(name, **labels)
        return values[-1][1] if values else 0.0

    def count_generate_requests(self) -> int:
        """Number of PhaseWatch's requests to /api/generate."""
        return sum(
            1 for request in self.ollama.requests if request.path == "/api/generate" and _is_ours(request.headers)
        )

    def logged(self, event: str) -> list[Any]:
        """Log lines of an event."""
        return [line for line in self.logs if line["event"] == event]


def _is_ours(headers: Any) -> bool:
    return str(headers.get("user-agent", "")).startswith("phasewatch/")


def watch(
    models: Sequence[Model],
    users: Sequence[Actor] = (),
    settings: ProbeSettings | None = None,
    *,
    seconds: float = 2400.0,
    tick: float = TICK_SECONDS,
    interval: float = SCRAPE_SECONDS,
    sample: float = SAMPLE_SECONDS,
    seed: int = 1,
    incident: Callable[[RecordingOllama], Awaitable[None]] | None = None,
    wrap: Wrap = lambda transport: transport,
    device: DeviceSettings | None = None,
    process_list: Path | None = None,
    **server: Any,
) -> Watched:
    """Run the exporter's scraper against a server with users.

    Args:
        models: models on the server's disk.
        users: its users.
        settings: settings of the probes.
        seconds: duration, simulated seconds; by default long enough for seven probes of a model.
        tick: shortest pause between two runs of a job.
        interval: interval of the target.
        sample: seconds between two readings of /metrics.
        seed: seed of the scraper's jitter and prompts.
        incident: something else that happens to the server meanwhile.
        wrap: wraps the transport between the scraper and the server.
        device: the configured device of the server.
        process_list: folder in which the server's children are listed; None for a machine without them.
        server: settings of the server.
    """
    timeline = Timeline()
    watched = Watched(RecordingOllama(*models, **server), seconds)
    transport = OllamaTransport(watched.ollama, timeline, process_list)
    children = {} if process_list is None else {"ollama": OllamaSettings("auto", process_list)}
    target = new_target(
        "o",
        "ollama",
        URL,
        interval=interval,
        probe=settings or new_probe_settings(),
        device=device or DeviceSettings(),
        **children,
    )

    async def work() -> None:
        scraper = OllamaScraper(target, timeline.clock, timeline.wall_clock, wrap(transport), seeded(seed))
        began, ended = timeline.clock(), asyncio.Event()
        # The devices of this machine are irrelevant to a simulated server.
        jobs = [
            run_repeatedly(job.run, max(job.seconds, tick), ended)
            for job in scraper.list_jobs()
            if device or job.kind != "device"
        ]
        incidents = [incident(watched.ollama)] if incident else []
        tasks = [asyncio.ensure_future(one) for one in (*jobs, *(user.live(transport) for user in users), *incidents)]
        while timeline.clock() - began < seconds:
            await asyncio.sleep(sample)
            watched.readings.append((timeline.clock() - began, read_metrics(scraper)))
        ended.set()  # so that a job that is interrupted by `close` does not start again
        await scraper.close()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    with capture_logs() as logs:
        timeline.run(work())
    watched.logs.extend(logs)
    return watched


def read_metrics(scraper: OllamaScraper) -> Metrics:
    """The metrics of a target."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in build_target_families([scraper.get_snapshot()])
        for sample in family.samples
    }


def build_user(seed: int, model: str, *, keep_alive: str | int | None = None, num_ctx: int | None = None) -> User:
    """A user who visits every few minutes for one to eight requests, with replies of up to 4 s."""
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


async def run_repeatedly(run: Callable[[], Awaitable[None]], seconds: float, ended: asyncio.Event) -> None:
    """Run a job repeatedly until `ended` is set."""
    while not ended.is_set():
        await run()
        await asyncio.sleep(seconds)
