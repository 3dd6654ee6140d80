"""A simulated llama-server for tests: its settings, its pages as numbers, and pages recorded from a real one."""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.llamacpp.player import LlamacppPlayer
from phasewatch.backends.llamacpp.scraper import resolve_llamacpp_devices
from phasewatch.config.settings import Target
from phasewatch.demo.common.acts import Act
from phasewatch.demo.common.workload import Workload, WorkloadGenerator
from phasewatch.demo.llamacpp.endpoints import START_HEADER, LlamaResponse
from phasewatch.demo.llamacpp.engine import Engine
from phasewatch.demo.llamacpp.server import LLAMA_SETTINGS, SimulatedLlamaServer, build_llama_roofline
from phasewatch.demo.llamacpp.settings import LlamaServerSettings
from phasewatch.scrape.recorded import RecordedScrape, parse_answer
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.paths import DATA

RECORDED_PAGES: Final[Any] = json.loads(lzma.decompress((DATA / "llamacpp" / "pages.json.xz").read_bytes()))
"""Pages of llama.cpp b10434: `fresh`, `busy`, `ended` and `prefill` with `metrics` (text) and `slots`, and others."""

_HEADER_PAGES: Final = {"props": "/props", "models": "/v1/models"}

CREATED: Final = 1_795_920_411.0
"""Unix time at which the simulated servers start."""


def change(**changes: Any) -> LlamaServerSettings:
    """The settings of the demo's server with some changes."""
    return replace(LLAMA_SETTINGS, **changes)


def simulate_llama_server(*workloads: Workload, seed: int = 1, **settings: Any) -> SimulatedLlamaServer:
    """A server with these workloads from the start."""
    act = Act("test", 1e9, SaturationState.HEALTHY, "", workloads)
    return SimulatedLlamaServer(seed, CREATED, (act,), change(**settings))


def read_values(server: SimulatedLlamaServer) -> dict[str, float]:
    """The values of /metrics by name, without the prefix."""
    lines = server.respond("GET", "/metrics").body.decode().splitlines()
    samples = (line.split(" ") for line in lines if not line.startswith("#"))
    return {name.removeprefix("llamacpp:"): float(value) for name, value in samples}


def scrape_llama_server(
    server: SimulatedLlamaServer, target: Target, times: Iterable[float]
) -> Iterator[tuple[float, EngineSnapshot]]:
    """Scrape at these times; what the exporter shows of the server after each scrape."""
    header = {name: json.loads(server.respond("GET", path).body) for name, path in _HEADER_PAGES.items()}
    player = LlamacppPlayer(target, header, resolve_llamacpp_devices(target, ())[0])
    for time in times:
        server.advance(time)
        metrics, slots = (_record(server.respond("GET", path), time) for path in ("/metrics", "/slots"))
        line = RecordedScrape(time, 0.0, parse_answer(metrics), {**metrics, "slots": slots})
        (engine,) = player.play(line, ScrapeTiming(time, time, None)).engines
        yield time, engine


def _record(response: LlamaResponse, time: float) -> dict[str, Any]:
    """A response as a part of a recording."""
    start = {"start": response.headers[START_HEADER]} if START_HEADER in response.headers else {}
    answer = {"status": response.status, "content_type": response.content_type, "body": response.body.decode()}
    return {"t": time, "took": 0.0, **answer, **start}


@dataclass(slots=True)
class SteppedEngine:
    """An engine with its clients, whose time a test advances."""

    engine: Engine
    clients: WorkloadGenerator
    now: float = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.engine.advance(self.now)

    def step(self, seconds: float) -> Iterator[float]:
        """Let time pass in steps of 10 ms; the time after each."""
        for _ in range(round(seconds * 100)):
            self.advance(0.01)
            yield self.now

    def disconnect(self) -> None:
        """All clients leave."""
        self.clients.start((), self.now)
        self.engine.abort_all()


def start_engine(*workloads: Workload, seed: int = 1, **settings: Any) -> SteppedEngine:
    """An engine with these workloads from the start."""
    clients = WorkloadGenerator(Random(seed))  # noqa: S311  # a simulation must be repeatable
    clients.start(workloads, 0.0)
    changed = change(**settings)
    return SteppedEngine(Engine(changed, build_llama_roofline(changed), clients), clients)
