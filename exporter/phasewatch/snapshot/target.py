"""The snapshot of a target, from which /metrics and the landing page are rendered."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.analysis.requests import ServerRequests
from phasewatch.base.errors import Reason
from phasewatch.base.units import format_duration
from phasewatch.config.settings import ServerSettings, Target
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import Health, Trouble
from phasewatch.snapshot.models import ModelSnapshot, ServedModel


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that a server gives about itself outside its metrics; empty until it has been asked.

    Attributes:
        version: its version.
        models: the models that it serves, by name.
        server: its settings, as far as it exposes them.
    """

    version: str | None = None
    models: Mapping[str, ServedModel] = field(default_factory=dict)
    server: ServerSettings = field(default_factory=ServerSettings)


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """The present state of a target.

    Attributes:
        name: the target's name in the configuration.
        backend: its kind of server.
        url: its address.
        optional: whether it is hidden until it has answered once.
        answered: whether it has ever answered.
        up: whether the newest scrape succeeded; None before the first has ended.
        trouble: the present run of failures; None while it is up.
        errors: failed scrapes by reason.
        scrape_seconds: duration of the newest scrape.
        last_success: Unix time of the newest successful scrape.
        facts: what the server reports about itself.
        engines: its engines.
        models: its models, where the server manages several; empty for other kinds of servers.
        requests: how its requests ended over the window, refused ones included.
    """

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
    requests: ServerRequests = field(default_factory=ServerRequests)


def create_snapshot(target: Target, health: Health) -> TargetSnapshot:
    """Create the snapshot of a target of which only the health is known."""
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


def mark_stale(snapshot: TargetSnapshot, age: float) -> TargetSnapshot:
    """Mark a snapshot as outdated: the target is down, and only counters remain.

    Args:
        snapshot: the newest snapshot.
        age: seconds since the last scrape ended.
    """
    message = f"no scrape has ended for {format_duration(age)}: the exporter is held up"
    trouble = snapshot.trouble or Trouble(0.0, 0, Reason.INTERNAL, message)
    models = tuple(ModelSnapshot(model.name, probe=model.probe) for model in snapshot.models if model.probe)
    return replace(
        snapshot,
        up=False,
        trouble=trouble,
        scrape_seconds=None,
        facts=ServerFacts(),
        engines=(),
        requests=ServerRequests(),
        models=models,
    )
