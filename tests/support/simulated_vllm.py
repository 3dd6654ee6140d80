"""The simulated vLLM under the ordinary pipeline, in simulated time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from phasewatch.backends.equipment import Equipment, devices_of
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.state import TargetState, snapshot, succeed
from phasewatch.config.device_settings import DeviceSettings
from phasewatch.config.resolve import Limits, Target
from phasewatch.demo.ledger import Step
from phasewatch.demo.roofline import machine
from phasewatch.demo.vllm.engine import Engine
from phasewatch.demo.vllm.page import VERSION, metrics_page
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.simulation import DEVICE, MODEL
from phasewatch.demo.vllm.workload import Crowd, Workload
from phasewatch.models.sources.folder import costs_of_folder
from phasewatch.snapshot.health import Timing
from phasewatch.snapshot.target import EngineReading, ServerFacts

STARTED = 1_795_920_411.0

SERVER = Settings()


def target(settings: Settings = SERVER, **changes: Any) -> Target:
    """A simulated server as a target of which everything is known."""
    limits = Limits(settings.max_num_seqs, settings.max_num_batched_tokens)
    device = DeviceSettings(name=DEVICE)
    return replace(Target("simulated", "vllm", "http://simulated.invalid", device=device, limits=limits), **changes)


class Server(Protocol):
    """Something that is simulated, and has a page."""

    def advance(self, now: float) -> None: ...

    def page(self) -> str: ...


@dataclass(frozen=True)
class Simulated:
    """An engine with its users and its page."""

    engine: Engine
    crowd: Crowd
    settings: Settings

    def advance(self, now: float) -> None:
        self.engine.advance(now)

    def page(self) -> str:
        return metrics_page(self.engine.counters, self.settings, STARTED)


def simulated(*workloads: Workload, settings: Settings = SERVER, seed: int = 1) -> Simulated:
    """A server that such users use from the first second on."""
    crowd = Crowd(Random(seed))  # noqa: S311  # a simulation must be repeatable
    crowd.begin(workloads, 0.0)
    return Simulated(Engine(settings, machine(DEVICE, MODEL), crowd), crowd, settings)


def readings(server: Server, watched: Target, times: Iterator[float]) -> Iterator[tuple[float, EngineReading]]:
    """What is shown of the only engine after each scrape, at these times."""
    device, _ = devices_of(watched, ())
    state = TargetState(equipment=Equipment(device, costs_of_folder(MODEL)[0]), facts=ServerFacts(version=VERSION))
    reader = PageReader()
    for time in times:
        server.advance(time)
        state = succeed(state, reader.read(server.page()), Timing(time, time, None), watched)
        (reading,) = snapshot(state, watched).engines
        yield time, reading


@dataclass(frozen=True)
class Truth:
    """What truly happened in (start, end], from the steps that ended in it."""

    seconds: float
    steps: tuple[Step, ...]

    @property
    def decoded(self) -> int:
        return sum(count for step in self.steps for _, count in step.gaps)

    @property
    def waited(self) -> float:
        """Seconds that streams waited for tokens, all together."""
        return sum(gap * count for step in self.steps for gap, count in step.gaps)

    @property
    def putting_out(self) -> int:
        """Steps that put out at least one token."""
        return sum(bool(step.gaps or step.firsts) for step in self.steps)

    def decode_tokens_per_second(self) -> float:
        return self.decoded / self.waited

    def decode_throughput_tokens_per_second(self) -> float:
        return self.decoded / self.seconds

    def decode_streams(self) -> float:
        return self.waited / self.seconds

    def prefill_throughput_tokens_per_second(self) -> float:
        return sum(step.prompt_tokens for step in self.steps) / self.seconds

    def engine_steps_per_second(self) -> float:
        return self.putting_out / self.seconds

    def prefix_cache_hit_ratio(self) -> float:
        firsts = [first for step in self.steps for first in step.firsts]
        return sum(first.cached for first in firsts) / sum(first.cached + first.computed for first in firsts)

    def time_to_first_token_mean_seconds(self) -> float:
        waits = [first.waited for step in self.steps for first in step.firsts]
        return sum(waits) / len(waits)

    def inter_token_latency_mean_seconds(self) -> float:
        return self.waited / self.decoded

    def read_bytes_per_second(self) -> float:
        return sum(step.read_bytes for step in self.steps) / self.seconds

    def operations_per_second(self) -> float:
        return sum(step.operations for step in self.steps) / self.seconds
