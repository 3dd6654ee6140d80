"""Builds the snapshot of an Ollama: the models in memory and on disk, and the rates measured by the newest probes.

A measurement is valid for two intervals between probes, and no longer than the model stays loaded as it is.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from phasewatch.analysis.ceiling import Ceiling, compute_single_stream_ceiling
from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.samples import EngineKey
from phasewatch.backends.equipment import Equipment
from phasewatch.backends.llamacpp.process import build_engines, equip
from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, OllamaVersion, choose_label, parse_version
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.response import ProbeTimings
from phasewatch.backends.ollama.runner.readings import combine_engines
from phasewatch.backends.ollama.state import OllamaState, ProbeMeasurement
from phasewatch.base.optional import compute_share
from phasewatch.config.settings import ProbeSettings, Target
from phasewatch.models.costs import ModelCosts
from phasewatch.models.sources.configured import apply_model_settings
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot, create_snapshot

_SLOPE_LEVERAGE: Final = 2
"""Least ratio of the long prompt to the short one for their difference to give a rate."""

_SLOPE_BAND: Final = 4.0
"""Largest plausible ratio between the slope and the long prompt's own rate: beyond it one of the two was disturbed."""

_COUNTED_TWICE: Final = ((0, 30, 0), (0, 30, 10))
"""Releases that count the weights of a model partly on the device twice, on both sides (ollama#16637)."""


def build_snapshot(state: OllamaState, target: Target, now: float) -> TargetSnapshot:
    """Build the snapshot of a target. While it is down, only counters remain of its models.

    Args:
        state: state of the server.
        target: gives name and intervals.
        now: monotonic time.
    """
    snapshot = create_snapshot(target, state.health)
    inventory = state.inventory if snapshot.up else None
    models = _build_models(state, inventory, target, now)
    if inventory is None:
        facts = ServerFacts(version=state.version) if snapshot.up else ServerFacts()
        return replace(snapshot, facts=facts, models=models)
    return replace(
        snapshot,
        facts=ServerFacts(version=state.version),
        models=models,
        engines=tuple(
            combine_engines(
                _build_engine(state, target, inventory, model, now),
                _watch_engine(state, target, model, choose_label(model, inventory), now),
            )
            for model in inventory.loaded
        ),
    )


def compute_gpu_ratio(model: LoadedModel, version: OllamaVersion | None) -> float | None:
    """Share of a model's memory on the devices, KV cache and buffers included."""
    if not model.size or model.size_vram is None or _is_counted_twice(model, version):
        return None
    return compute_share(model.size_vram, model.size)


def _build_models(
    state: OllamaState, inventory: Inventory | None, target: Target, now: float
) -> tuple[ModelSnapshot, ...]:
    version = parse_version(state.version)
    snapshots: dict[str, ModelSnapshot] = {}
    for name, stored in (inventory.stored or {}).items() if inventory else ():
        loaded = None if stored.remote else 0.0
        snapshots[name] = ModelSnapshot(name, digest=stored.digest, details=stored.details, loaded=loaded)
    for model in inventory.loaded if inventory else ():
        name = choose_label(model, inventory) if inventory else model.name
        valid = _select_valid(state, model, target, now)
        snapshots[name] = _build_loaded(name, model, version, _compute_fixed_seconds(valid))
    for name, record in state.records.items():
        snapshot = snapshots.get(name, ModelSnapshot(name))
        snapshots[name] = replace(snapshot, probe=record if snapshot.loaded else _keep_counters(record))
    return tuple(snapshots[name] for name in sorted(snapshots))


def _keep_counters(record: ProbeRecord) -> ProbeRecord:
    """The record of a model that is not in memory: without the figures of its newest probe."""
    return replace(record, success=None, duration=None, queue_seconds=None)


def _build_loaded(
    name: str, model: LoadedModel, version: OllamaVersion | None, fixed_seconds: float | None
) -> ModelSnapshot:
    return ModelSnapshot(
        name,
        digest=model.digest,
        details=model.details,
        loaded=1.0,
        bytes=None if _is_counted_twice(model, version) else model.size,
        vram_bytes=model.size_vram,
        gpu_ratio=compute_gpu_ratio(model, version),
        context_length_tokens=model.context_length,
        expiry=model.expires_at,
        prefill_fixed_seconds=fixed_seconds,
    )


def _is_counted_twice(model: LoadedModel, version: OllamaVersion | None) -> bool:
    first, last = _COUNTED_TWICE
    partly = model.size_vram is not None and model.size is not None and 0 < model.size_vram < model.size
    return partly and version is not None and first <= version <= last


def _build_engine(
    state: OllamaState, target: Target, inventory: Inventory, model: LoadedModel, now: float
) -> EngineSnapshot:
    valid = _select_valid(state, model, target, now)
    short = valid.get(RequestKind.SHORT)
    timings = short.timings if short else None
    decode_rate = timings.decode_tokens_per_second if timings else None
    return EngineSnapshot(
        key=EngineKey(choose_label(model, inventory), None),
        phases=Phases(
            prefill_tokens_per_second=_compute_prefill_rate(valid),
            decode_tokens_per_second=decode_rate,
        ),
        latencies=Latencies(
            time_to_first_token=Distribution(mean=timings.first_token_seconds if timings else None),
            inter_token=Distribution(mean=1 / decode_rate if decode_rate is not None else None),
        ),
        ceiling=_compute_ceiling(state, target, model, timings),
        measurement_source=None if timings is None else MeasurementSource.PROBE,
    )


def _compute_ceiling(state: OllamaState, target: Target, model: LoadedModel, timings: ProbeTimings | None) -> Ceiling:
    costs, gpu_ratio = _find_costs(state, target, model), compute_gpu_ratio(model, parse_version(state.version))
    if costs is None or gpu_ratio is None:
        return Ceiling()
    return compute_single_stream_ceiling(
        state.device,
        costs,
        decode_tokens_per_second=timings.decode_tokens_per_second if timings else None,
        context_tokens=_compute_mean_context(timings) if timings else None,
        gpu_share=gpu_ratio,
    )


def _find_costs(state: OllamaState, target: Target, model: LoadedModel) -> ModelCosts | None:
    description = state.descriptions.get(model.digest)
    return None if description is None else apply_model_settings(description.costs, target.model)


def _watch_engine(
    state: OllamaState, target: Target, model: LoadedModel, label: str, now: float
) -> EngineSnapshot | None:
    """The engine of a model as its child shows it; None if that cannot be read, or shows nothing at present."""
    process = state.runners.get(model.key)
    if process is None:
        return None
    costs, share = _find_costs(state, target, model), compute_gpu_ratio(model, parse_version(state.version))
    known = {} if costs is None or share is None else {label: costs}
    engines = build_engines(equip(process, Equipment(state.device, None, known, share)), target, now)
    return engines[0] if engines else None


def _compute_mean_context(timings: ProbeTimings) -> float | None:
    """Mean tokens in the KV cache during decode."""
    return None if timings.prompt_tokens is None else timings.prompt_tokens + timings.output_tokens / 2


def _select_valid(
    state: OllamaState, model: LoadedModel, target: Target, now: float
) -> Mapping[RequestKind, ProbeMeasurement]:
    """Measurements of a model that are not too old."""
    model_state = state.models.get(model.key)
    if model_state is None:
        return {}
    lifetime = 2 * max(target.probe.interval, _compute_cycle_seconds(state, target.probe))
    lifetimes = {RequestKind.LONG: max(lifetime, 2 * target.probe.long_interval)}
    return {
        kind: measurement
        for kind, measurement in model_state.measurements.items()
        if now - measurement.time <= lifetimes.get(kind, lifetime)
    }


def _compute_cycle_seconds(state: OllamaState, settings: ProbeSettings) -> float:
    """Seconds between two probes of a model where the budget, not the interval, sets the pace."""
    longest = (
        max(model.probe_seconds.values(), default=0.0) for model in state.models.values() if model.residency is not None
    )
    return sum(longest) / settings.budget


def _compute_prefill_rate(valid: Mapping[RequestKind, ProbeMeasurement]) -> float | None:
    """Tokens per second of prefill: the slope between the two prompt lengths if both are valid, which leaves out the
    fixed cost of a request; otherwise the rate over the longer prompt.
    """
    short, long = valid.get(RequestKind.SHORT), valid.get(RequestKind.LONG)
    if short is None:
        return None
    rates = [measurement.timings.prefill_tokens_per_second for measurement in (long, short) if measurement]
    whole = next((rate for rate in rates if rate is not None), None)
    if long is None or whole is None:
        return whole
    slope = _compute_slope(short, long)
    return slope if slope is not None and whole / _SLOPE_BAND <= slope <= whole * _SLOPE_BAND else whole


def _compute_slope(short: ProbeMeasurement, long: ProbeMeasurement) -> float | None:
    """Tokens per second between a short and a long prompt; None if they are too alike or out of order."""
    tokens = (short.timings.computed_tokens, long.timings.computed_tokens)
    seconds = (short.timings.prompt_seconds, long.timings.prompt_seconds)
    if tokens[0] is None or tokens[1] is None or seconds[0] is None or seconds[1] is None:
        return None
    if tokens[1] < _SLOPE_LEVERAGE * tokens[0] or seconds[1] <= seconds[0]:
        return None
    return (tokens[1] - tokens[0]) / (seconds[1] - seconds[0])


def _compute_fixed_seconds(valid: Mapping[RequestKind, ProbeMeasurement]) -> float | None:
    """Fixed cost of a prompt, seconds: the short prompt's time less the share of its tokens by the slope."""
    short, long = valid.get(RequestKind.SHORT), valid.get(RequestKind.LONG)
    slope = _compute_slope(short, long) if short and long else None
    if slope is None or short is None or not short.timings.prompt_seconds or not short.timings.computed_tokens:
        return None
    return short.timings.prompt_seconds - short.timings.computed_tokens / slope
