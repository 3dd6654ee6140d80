"""What /metrics and the landing page show of a target: immutable, and the same for every kind of server."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.config import Limits, Target
from phasewatch.errors import Reason
from phasewatch.health import Health, Trouble
from phasewatch.latency import Latencies
from phasewatch.load import Load
from phasewatch.phases import Phases
from phasewatch.samples import EngineKey
from phasewatch.saturation import State
from phasewatch.units import human_duration


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a server says of a model: `root` is the path or hub name it was loaded from."""

    root: str | None = None
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself, apart from its metrics. Empty until it was asked."""

    version: str | None = None
    models: Mapping[str, ServedModel] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """All that is known of one engine now. `state` is None where a server does not tell what waits for what."""

    key: EngineKey
    phases: Phases = field(default_factory=Phases)
    latencies: Latencies = field(default_factory=Latencies)
    load: Load = field(default_factory=Load)
    token_stall_seconds: float | None = None
    state: State | None = None
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """What is shown of a target. `up` is None before the first scrape has ended."""

    name: str
    backend: str
    url: str
    optional: bool
    answered: bool
    up: bool | None
    trouble: Trouble | None
    errors: Mapping[Reason, int]
    scrape_seconds: float | None
    last_success: float | None
    facts: ServerFacts = ServerFacts()
    engines: tuple[EngineReading, ...] = ()


def snapshot_of(target: Target, health: Health) -> TargetSnapshot:
    """What is shown of a target of which nothing but its health is known."""
    return TargetSnapshot(
        name=target.name,
        backend=target.backend,
        url=target.url,
        optional=target.optional,
        answered=health.answered,
        up=health.up,
        trouble=health.trouble,
        errors=health.errors,
        scrape_seconds=health.scrape_seconds,
        last_success=health.last_success,
    )


def stale(shown: TargetSnapshot, age: float) -> TargetSnapshot:
    """A snapshot that has grown too old: nothing has been heard of the target for `age` seconds."""
    message = f"no scrape has ended for {human_duration(age)}: the exporter is held up"
    trouble = shown.trouble or Trouble(0.0, 0, Reason.INTERNAL, message)
    return replace(shown, up=False, trouble=trouble, scrape_seconds=None, facts=ServerFacts(), engines=())
