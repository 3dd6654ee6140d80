"""What /metrics and the landing page show of a target: immutable, and the same for every kind of server."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.analysis.saturation import SaturationState
from phasewatch.base.errors import Reason
from phasewatch.base.units import format_duration
from phasewatch.config.settings import ServerSettings, Target
from phasewatch.snapshot.health import Health, Trouble
from phasewatch.snapshot.models import ModelDetails
from phasewatch.snapshot.probes import ProbeRecord


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
    server: ServerSettings = field(default_factory=ServerSettings)


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """All that is known of one engine now. `state` is None where a server does not tell what waits for what."""

    key: EngineKey
    phases: Phases = field(default_factory=Phases)
    latencies: Latencies = field(default_factory=Latencies)
    load: Load = field(default_factory=Load)
    ceiling: Ceiling = field(default_factory=Ceiling)
    token_stall_seconds: float | None = None
    state: SaturationState | None = None
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """What an Ollama says of one of its models, and what was counted of its probes; None where it is not known.

    Attributes:
        name: what it is called on our pages.
        digest: of its manifest.
        details: what it is.
        loaded: 1 in memory, 0 on disk alone; None for one that runs elsewhere.
        bytes: all that it takes in memory.
        vram_bytes: of that, on the devices.
        gpu_ratio: that share.
        context_length_tokens: with which it was loaded.
        expiry: Unix time at which it will be unloaded.
        prefill_fixed_seconds: what a prompt costs whatever its length, from the newest two lengths.
        probe: of its probes, if there was one or one was skipped.
    """

    name: str
    digest: str | None = None
    details: ModelDetails | None = None
    loaded: float | None = None
    bytes: float | None = None
    vram_bytes: float | None = None
    gpu_ratio: float | None = None
    context_length_tokens: float | None = None
    expiry: float | None = None
    prefill_fixed_seconds: float | None = None
    probe: ProbeRecord | None = None


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
    engines: tuple[EngineSnapshot, ...] = ()
    models: tuple[ModelSnapshot, ...] = ()


def create_snapshot(target: Target, health: Health) -> TargetSnapshot:
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


def mark_stale(shown: TargetSnapshot, age: float) -> TargetSnapshot:
    """A snapshot that has grown too old: nothing has been heard of the target for `age` seconds."""
    message = f"no scrape has ended for {format_duration(age)}: the exporter is held up"
    trouble = shown.trouble or Trouble(0.0, 0, Reason.INTERNAL, message)
    counted = tuple(ModelSnapshot(model.name, probe=model.probe) for model in shown.models if model.probe)
    return replace(
        shown, up=False, trouble=trouble, scrape_seconds=None, facts=ServerFacts(), engines=(), models=counted
    )
