"""The snapshot of one engine: its phases, latencies, load, requests, ceilings and saturation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.objectives import Objective, Verdict
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load
from phasewatch.analysis.requests import Requests
from phasewatch.analysis.samples import EngineKey
from phasewatch.analysis.saturation import SaturationState


class MeasurementSource(StrEnum):
    """Where the phase figures of a model come from, for a server that can be measured in more than one way."""

    TRAFFIC = "traffic"
    PROBE = "probe"


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The present figures of one engine.

    Attributes:
        key: model name and engine label.
        phases: speeds of prefill and decode over the window.
        latencies: quantiles and means over the window.
        load: queue and KV cache now, and their course over the window.
        ceiling: hardware limits, and how close the engine comes to them.
        token_stall_seconds: time without new tokens while requests run.
        state: saturation state; None for a kind of server whose queue is not watched.
        asleep: whether the engine was put to sleep.
        requests: how requests ended over the window, their lengths and their times.
        objectives: the objectives of the target that the window decides, and whether they are met.
        measurement_source: where phases and latencies come from; None without figures, and for a kind of server with a
            single source.
    """

    key: EngineKey
    phases: Phases = field(default_factory=Phases)
    latencies: Latencies = field(default_factory=Latencies)
    load: Load = field(default_factory=Load)
    ceiling: Ceiling = field(default_factory=Ceiling)
    token_stall_seconds: float | None = None
    state: SaturationState | None = None
    asleep: bool = False
    requests: Requests = field(default_factory=Requests)
    objectives: Mapping[Objective, Verdict] = field(default_factory=dict)
    measurement_source: MeasurementSource | None = None
