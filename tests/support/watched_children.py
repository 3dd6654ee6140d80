"""The children of an Ollama as scripted llama-servers with a process list, read by hand."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx

from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.inventory import LoadedModel, StoredModel
from phasewatch.backends.ollama.probes.scheduling import draw_pace
from phasewatch.backends.ollama.runner.children import list_processes
from phasewatch.backends.ollama.runner.watch import RunnerWatch
from phasewatch.backends.ollama.snapshot import build_snapshot
from phasewatch.backends.ollama.state import ModelDescription, fold_success
from phasewatch.backends.ollama.tracker import StateTracker
from phasewatch.config.settings import OllamaSettings
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.fake_procfs import LAYER, MODELS, OTHER_LAYER, FakeProcfs, build_argv
from tests.support.ollama_facts import WALL, A, B, inventory, loaded, seeded
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer
from tests.support.targets import new_target

TICK: Final = 0.25
"""Seconds between two reads."""

Meddle = Callable[[httpx.Request], Awaitable[None]]


class WatchedChildren:
    """An Ollama whose children are watched. `now` is the time, and begins at 0 for the scripts of the servers.

    Args:
        folder: folder for the process list.
        runners: the setting of the target.
        window: window of the target, seconds.
    """

    def __init__(self, folder: Path, runners: str = "auto", window: float = 60.0) -> None:
        self.now = 0.0
        self.procfs = FakeProcfs(folder)
        self.servers: dict[int, ScriptedLlamaServer] = {}
        self.asked: list[tuple[float, int, str]] = []
        self.meddle: Meddle | None = None
        settings = OllamaSettings("off" if runners == "off" else "auto", folder)
        self.target = new_target("o", "ollama", "http://127.0.0.1:11434", window=window, ollama=settings)
        pace = draw_pace(self.target.probe, seeded())
        client = OllamaClient(self.target)
        self.tracker = StateTracker(client, self.target.probe, pace, self.clock, self.wall_clock)
        self.tracker.state = replace(
            fold_success(self.tracker.state, "0.33.0", ScrapeTiming(0.0, 0.0, WALL)),
            descriptions={
                A: ModelDescription(None, ModelCosts(), LAYER),
                B: ModelDescription(None, ModelCosts(), OTHER_LAYER),
            },
        )
        transport = httpx.MockTransport(self._handle)
        self.watch = RunnerWatch(self.target, self.tracker, self.clock, self.wall_clock, transport)

    def clock(self) -> float:
        """Monotonic seconds. 0 could be taken for "never"."""
        return 1000.0 + self.now

    def wall_clock(self) -> float:
        """Unix seconds."""
        return WALL + self.now

    def start(
        self, pid: int, *jobs: Job, layer: str = LAYER, port: int = 42083, started: int = 5000, metrics: bool = True
    ) -> ScriptedLlamaServer:
        """Start a child of two slots, with requests at these times."""
        disabled = frozenset() if metrics else frozenset({"/metrics"})
        path = f"{MODELS}/blobs/{layer}"
        server = ScriptedLlamaServer(jobs, start=str(pid * 1000 + started), path=path, disabled=disabled)
        self.servers[port] = server
        self.procfs.add(pid, build_argv(layer, port), started=started)
        return server

    def end(self, pid: int, port: int = 42083) -> None:
        """Let a child end."""
        self.procfs.remove(pid)
        del self.servers[port]

    def look(self, *models: LoadedModel, disk: tuple[StoredModel, ...] | None = None) -> None:
        """Scrape the Ollama, which has these models in memory."""
        seen = inventory(*(models or (loaded(),)), disk=disk)
        self.tracker.observe(seen)
        self.watch.look(list_processes(self.procfs.folder), seen)

    def unload(self) -> None:
        """Scrape the Ollama, which has no model in memory."""
        seen = inventory()
        self.tracker.observe(seen)
        self.watch.look(list_processes(self.procfs.folder), seen)

    async def run(self, until: float) -> None:
        """Read the children until a time."""
        while self.now < until:
            await self.watch.read()
            self.now = round(self.now + TICK, 6)

    def list_engines(self) -> tuple[EngineSnapshot, ...]:
        """What is shown of the models."""
        return build_snapshot(self.tracker.state, self.target, self.clock()).engines

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        port, path = request.url.port or 80, request.url.path
        self.asked.append((self.now, port, path))
        if self.meddle is not None:
            await self.meddle(request)
        server = self.servers.get(port)
        if server is None:
            refused = ConnectionRefusedError(111, "Connection refused")
            raise httpx.ConnectError("nothing listens there") from refused
        return await server.create_transport(lambda: self.now).handle_async_request(request)
