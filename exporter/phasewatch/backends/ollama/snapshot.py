"""What /metrics shows of an Ollama: who is in memory, and the speeds that the newest probes have measured.

A measurement speaks for two intervals between probes, and for no longer than the model stays in memory as it is.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from phasewatch.analysis.ceiling import Ceiling, compute_single_stream_ceiling
from phasewatch.analysis.latency import Latencies, Latency
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.samples import EngineKey
from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, OllamaVersion, choose_label, parse_version
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.response import ProbeTimings
from phasewatch.backends.ollama.state import ModelState, OllamaState, ProbeMeasurement
from phasewatch.config.settings import ProbeSettings, Target
from phasewatch.models.sources.configured import apply_model_settings
from phasewatch.snapshot.probes import ProbeRecord
from phasewatch.snapshot.target import EngineSnapshot, ModelSnapshot, ServerFacts, TargetSnapshot, create_snapshot

_SLOPE_LEVERAGE: Final = 2
"""How many times longer than the short prompt the long one must be for their difference to say anything."""

_SLOPE_BAND: Final = 4.0
"""A slope further than this from the long prompt's own rate is noise: one of the two was disturbed."""

_COUNTED_TWICE: Final = ((0, 30, 0), (0, 30, 10))
"""Releases that count the weights of a model that is partly on the device on both sides (ollama#16637)."""


def build_snapshot(state: OllamaState, target: Target, now: float) -> TargetSnapshot:
    """What is to be shown of a target. While it is down nothing about its models is, but what was counted.

    Args:
        state: what is known.
        target: gives name and intervals.
        now: monotonic time.
    """
    shown = create_snapshot(target, state.health)
    inventory = state.inventory if shown.up else None
    models = _models(state, inventory, target, now)
    if inventory is None:
        return replace(shown, facts=ServerFacts(version=state.version) if shown.up else ServerFacts(), models=models)
    return replace(
        shown,
        facts=ServerFacts(version=state.version),
        models=models,
        engines=tuple(_engine(state, target, inventory, model, now) for model in inventory.loaded),
    )


def _models(state: OllamaState, inventory: Inventory | None, target: Target, now: float) -> tuple[ModelSnapshot, ...]:
    version = parse_version(state.version)
    found: dict[str, ModelSnapshot] = {}
    for name, stored in (inventory.stored or {}).items() if inventory else ():
        loaded = None if stored.remote else 0.0
        found[name] = ModelSnapshot(name, digest=stored.digest, details=stored.details, loaded=loaded)
    for model in inventory.loaded if inventory else ():
        name = choose_label(model, inventory) if inventory else model.name
        found[name] = _resident(name, model, version)
        known = state.models.get(model.key)
        valid = _valid(known, now, _lifetime(state, target), target) if known else {}
        found[name] = replace(found[name], prefill_fixed_seconds=_fixed_seconds(valid))
    for name, record in state.records.items():
        reading = found.get(name, ModelSnapshot(name))
        found[name] = replace(reading, probe=record if reading.loaded else _counted(record))
    return tuple(found[name] for name in sorted(found))


def _counted(record: ProbeRecord) -> ProbeRecord:
    """The record of a model that is not in memory: what was counted stays, how its newest probe went says nothing."""
    return replace(record, success=None, duration=None, queue_seconds=None)


def _resident(name: str, model: LoadedModel, version: OllamaVersion | None) -> ModelSnapshot:
    return ModelSnapshot(
        name,
        digest=model.digest,
        details=model.details,
        loaded=1.0,
        bytes=None if _counted_twice(model, version) else model.size,
        vram_bytes=model.size_vram,
        gpu_ratio=compute_gpu_ratio(model, version),
        context_length_tokens=model.context_length,
        expiry=model.expires_at,
    )


def compute_gpu_ratio(model: LoadedModel, version: OllamaVersion | None) -> float | None:
    """Share of a model's memory that is on the devices, KV cache and buffers included."""
    if not model.size or model.size_vram is None or _counted_twice(model, version):
        return None
    return model.size_vram / model.size


def _counted_twice(model: LoadedModel, version: OllamaVersion | None) -> bool:
    first, last = _COUNTED_TWICE
    partly = model.size_vram is not None and model.size is not None and 0 < model.size_vram < model.size
    return partly and version is not None and first <= version <= last


def _engine(state: OllamaState, target: Target, inventory: Inventory, model: LoadedModel, now: float) -> EngineSnapshot:
    known = state.models.get(model.key)
    valid = _valid(known, now, _lifetime(state, target), target) if known else {}
    short = valid.get(RequestKind.SHORT)
    sample = short.sample if short else None
    shown = state.shown.get(model.digest)
    share = compute_gpu_ratio(model, parse_version(state.version))
    ceiling = Ceiling()
    if shown is not None and share is not None:
        ceiling = compute_single_stream_ceiling(
            state.device,
            apply_model_settings(shown.costs, target.model),
            decode_tokens_per_second=sample.decode_tokens_per_second if sample else None,
            context_tokens=_context(sample) if sample else None,
            gpu_share=share,
        )
    return EngineSnapshot(
        key=EngineKey(choose_label(model, inventory), None),
        phases=Phases(
            prefill_tokens_per_second=_prefill(valid),
            decode_tokens_per_second=sample.decode_tokens_per_second if sample else None,
        ),
        latencies=Latencies(
            time_to_first_token=Latency(mean=sample.first_token_seconds if sample else None),
            inter_token=Latency(mean=1 / sample.decode_tokens_per_second if sample else None),
        ),
        ceiling=ceiling,
    )


def _context(sample: ProbeTimings) -> float | None:
    """Mean tokens in the KV cache while a sample decoded."""
    return None if sample.prompt_tokens is None else sample.prompt_tokens + sample.output_tokens / 2


def _valid(known: ModelState, now: float, lifetime: float, target: Target) -> Mapping[RequestKind, ProbeMeasurement]:
    return {kind: found for kind, found in known.measurements.items() if _is_valid(kind, found, now, lifetime, target)}


def _is_valid(kind: RequestKind, found: ProbeMeasurement, now: float, lifetime: float, target: Target) -> bool:
    longest = max(lifetime, 2 * target.probe.long_interval) if kind is RequestKind.LONG else lifetime
    return now - found.time <= longest


def _lifetime(state: OllamaState, target: Target) -> float:
    """Seconds for which a measurement speaks."""
    return 2 * max(target.probe.interval, _cycle(state, target.probe))


def _cycle(state: OllamaState, settings: ProbeSettings) -> float:
    """Seconds between two probes of a model where the budget, not the interval, paces them."""
    spent = (max(model.cost.values(), default=0.0) for model in state.models.values() if model.residency is not None)
    return sum(spent) / settings.budget


def _prefill(valid: Mapping[RequestKind, ProbeMeasurement]) -> float | None:
    """Tokens per second of prefill: between the two lengths if both are known, so that what each request costs
    whatever its length is left out; otherwise over the longer prompt.
    """
    short, long = valid.get(RequestKind.SHORT), valid.get(RequestKind.LONG)
    if short is None:
        return None
    rates = [found.sample.prefill_tokens_per_second for found in (long, short) if found]
    whole = next((rate for rate in rates if rate is not None), None)
    if long is None or whole is None:
        return whole
    slope = _slope(short, long)
    return slope if slope is not None and whole / _SLOPE_BAND <= slope <= whole * _SLOPE_BAND else whole


def _slope(short: ProbeMeasurement, long: ProbeMeasurement) -> float | None:
    tokens = (short.sample.computed_tokens, long.sample.computed_tokens)
    seconds = (short.sample.prompt_seconds, long.sample.prompt_seconds)
    if tokens[0] is None or tokens[1] is None or seconds[0] is None or seconds[1] is None:
        return None
    if tokens[1] < _SLOPE_LEVERAGE * tokens[0] or seconds[1] <= seconds[0]:
        return None
    return (tokens[1] - tokens[0]) / (seconds[1] - seconds[0])


def _fixed_seconds(valid: Mapping[RequestKind, ProbeMeasurement]) -> float | None:
    """What a prompt costs whatever its length: the short prompt's time without its tokens' share by the slope."""
    short, long = valid.get(RequestKind.SHORT), valid.get(RequestKind.LONG)
    slope = _slope(short, long) if short and long else None
    if slope is None or short is None or not short.sample.prompt_seconds or not short.sample.computed_tokens:
        return None
    return short.sample.prompt_seconds - short.sample.computed_tokens / slope
