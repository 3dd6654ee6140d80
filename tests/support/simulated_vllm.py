"""The simulated vLLM scraped by the exporter's own pipeline, in simulated time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from phasewatch.backends.equipment import Equipment
from phasewatch.backends.page_state import PageState, build_snapshot, fold_page
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.backends.vllm.scraper import resolve_vllm_devices
from phasewatch.backends.vllm.totals import PAGE_RULES
from phasewatch.config.settings import DeviceSettings, ServerSettings, Target
from phasewatch.demo.common.roofline import build_roofline
from phasewatch.demo.common.workload import Workload, WorkloadGenerator
from phasewatch.demo.vllm.engine import Engine
from phasewatch.demo.vllm.ledger import EngineStep
from phasewatch.demo.vllm.page import VERSION, render_metrics
from phasewatch.demo.vllm.settings import SimulatedVllmSettings
from phasewatch.demo.vllm.simulation import DEVICE, MODEL
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import ServerFacts
from tests.support.targets import new_target

CREATED = 1_795_920_411.0
"""Unix time at which the simulated servers start."""

SETTINGS = SimulatedVllmSettings()


def build_target(settings: SimulatedVllmSettings = SETTINGS, **changes: Any) -> Target:
    """A target for a simulated server, with its device and limits configured."""
    server = ServerSettings(settings.max_num_seqs, settings.max_num_batched_tokens)
    device = DeviceSettings(name=DEVICE)
    return replace(new_target("simulated", "vllm", "http://simulated.invalid", device=device, server=server), **changes)


class Server(Protocol):
    """A simulation with a metrics page."""

    def advance(self, now: float) -> None: ...

    def page(self) -> str: ...


@dataclass(frozen=True)
class SimulatedServer:
    """An engine with its clients and its metrics page."""

    engine: Engine
    clients: WorkloadGenerator
    settings: SimulatedVllmSettings

    def advance(self, now: float) -> None:
        self.engine.advance(now)

    def page(self) -> str:
        return render_metrics(self.engine.counters, self.settings, CREATED)

    def value(self, name: str, label_value: str = "") -> float:
        """The current value of a gauge or counter."""
        return self.engine.counters.values[name, label_value]


def simulate(*workloads: Workload, settings: SimulatedVllmSettings = SETTINGS, seed: int = 1) -> SimulatedServer:
    """A server with these workloads from the start."""
    clients = WorkloadGenerator(Random(seed))  # noqa: S311  # a simulation must be repeatable
    clients.start(workloads, 0.0)
    return SimulatedServer(Engine(settings, build_roofline(DEVICE, MODEL), clients), clients, settings)


def scrape(server: Server, target: Target, times: Iterator[float]) -> Iterator[tuple[float, EngineSnapshot]]:
    """Scrape at these times; what the exporter shows of the single engine after each scrape."""
    device, _ = resolve_vllm_devices(target, ())
    state = PageState(equipment=Equipment(device, read_folder_costs(MODEL)[0]), facts=ServerFacts(version=VERSION))
    reader = PageReader(METRIC_NAMES)
    for time in times:
        server.advance(time)
        state = fold_page(state, reader.read(server.page()), ScrapeTiming(time, time, None), target, PAGE_RULES)
        (reading,) = build_snapshot(state, target).engines
        yield time, reading


@dataclass(frozen=True)
class WindowTruth:
    """What happened in (start, end], computed from the steps that ended in it."""

    seconds: float
    steps: tuple[EngineStep, ...]

    @property
    def decoded(self) -> int:
        return sum(count for step in self.steps for _, count in step.token_gaps)

    @property
    def waited(self) -> float:
        """Total time that streams waited for tokens, seconds."""
        return sum(gap * count for step in self.steps for gap, count in step.token_gaps)

    @property
    def productive_steps(self) -> int:
        """Steps that produced at least one token."""
        return sum(bool(step.token_gaps or step.first_tokens) for step in self.steps)

    def decode_tokens_per_second(self) -> float:
        return self.decoded / self.waited

    def decode_throughput_tokens_per_second(self) -> float:
        return self.decoded / self.seconds

    def decode_streams(self) -> float:
        return self.waited / self.seconds

    def prefill_throughput_tokens_per_second(self) -> float:
        return sum(step.prompt_tokens for step in self.steps) / self.seconds

    def engine_steps_per_second(self) -> float:
        return self.productive_steps / self.seconds

    def prefix_cache_hit_ratio(self) -> float:
        firsts = [first for step in self.steps for first in step.first_tokens]
        prompt_tokens = sum(first.cached_tokens + first.computed_tokens for first in firsts)
        return sum(first.cached_tokens for first in firsts) / prompt_tokens

    def time_to_first_token_mean_seconds(self) -> float:
        latencies = [first.latency for step in self.steps for first in step.first_tokens]
        return sum(latencies) / len(latencies)

    def inter_token_latency_mean_seconds(self) -> float:
        return self.waited / self.decoded

    def read_bytes_per_second(self) -> float:
        return sum(step.read_bytes for step in self.steps) / self.seconds

    def operations_per_second(self) -> float:
        return sum(step.operations for step in self.steps) / self.seconds
