"""The state of a llamacpp target: its health, and its processes. Immutable."""

from dataclasses import dataclass, field, replace

from phasewatch.backends.equipment import Equipment
from phasewatch.backends.llamacpp.process import ProcessState, build_engines, equip
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.health import Health
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot, create_snapshot


@dataclass(frozen=True, slots=True)
class LlamacppState:
    """The state of a target.

    Attributes:
        health: results of its scrapes.
        processes: its llama-server processes: one, or those of a router or a swapping proxy.
        device: its devices.
        configured: costs of the model in the configured file or folder; None without one.
    """

    health: Health = field(default_factory=Health)
    processes: tuple[ProcessState, ...] = ()
    device: DeviceFacts = field(default_factory=DeviceFacts)
    configured: ModelCosts | None = None


def build_snapshot(state: LlamacppState, target: Target, now: float) -> TargetSnapshot:
    """The snapshot of a target at the monotonic time `now`. While it is down, there is no engine but a stuck one."""
    snapshot = create_snapshot(target, state.health)
    equipped = [equip(process, _describe_equipment(state, process)) for process in state.processes]
    engines = tuple(engine for process in equipped for engine in build_engines(process, target, now))
    if not snapshot.up:
        return replace(snapshot, engines=engines)
    return replace(snapshot, facts=_combine_facts(state.processes), engines=engines)


def _describe_equipment(state: LlamacppState, process: ProcessState) -> Equipment:
    return Equipment(state.device, state.configured, {process.facts.model: process.facts.describe_costs()})


def _combine_facts(processes: tuple[ProcessState, ...]) -> ServerFacts:
    facts = {process.facts.model: process.facts.describe_server() for process in processes}
    versions = [described.version for described in facts.values() if described.version is not None]
    models = {name: model for described in facts.values() for name, model in described.models.items()}
    return ServerFacts(version=versions[0] if versions else None, models=models)
