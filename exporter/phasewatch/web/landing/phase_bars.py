"""Both phases of a model as bars against what the hardware allows; where that is not known, which key would tell it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from phasewatch.analysis.ceiling import Basis, RateSource
from phasewatch.backends.backend import Backend
from phasewatch.snapshot.target import EngineSnapshot, ModelSnapshot
from phasewatch.web.landing.charts import render_bar
from phasewatch.web.landing.text import percent, rate, speed

_BEYOND: Final = 1.005
"""Ratio from which a phase is said to be above its ceiling: one that is shown as more than 100 %."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """A bar and the words around it.

    Attributes:
        kind: CSS class of the filling.
        name: what it is.
        whose: whose speed it is.
        speed: in tokens per second.
        limit: of that speed.
        ratio: between the two.
        missing: what to say where the limit is not known.
    """

    kind: str
    name: str
    whose: str
    speed: float | None
    limit: float | None
    ratio: float | None
    missing: str


def render_phase_bars(engine: EngineSnapshot, model: ModelSnapshot | None, backend: Backend) -> Iterator[str]:
    """Prefill, decode, and how busy memory is, as HTML.

    Args:
        engine: who serves the model.
        model: what the server says of it, where it says anything.
        backend: the kind of server, which explains why a ceiling is missing.
    """
    phases, ceiling = engine.phases, engine.ceiling
    yield '<div class="phases">'
    yield from _phase(
        _Phase(
            "prefill",
            "Prefill",
            "one request",
            phases.prefill_tokens_per_second,
            ceiling.prefill_ceiling_tokens_per_second,
            ceiling.prefill_ceiling_ratio,
            backend.explain_missing_prefill_ceiling(engine),
        )
    )
    yield from _phase(
        _Phase(
            "decode",
            "Decode",
            "one stream",
            phases.decode_tokens_per_second,
            _most_exact(ceiling.decode_ceiling_tokens_per_second, Basis.READ, Basis.WEIGHTS),
            _most_exact(ceiling.decode_ceiling_ratio, Basis.READ, Basis.WEIGHTS),
            backend.explain_missing_decode_ceiling(engine, model),
        )
    )
    busy = _most_exact(ceiling.memory_bandwidth_utilization_ratio, RateSource.DERIVED, RateSource.ENGINE)
    if busy is not None:
        shown = percent(busy)
        yield f'<div class="phase"><p class="what"><span>Memory bandwidth used</span><b>{shown}</b></p>'
        yield render_bar("memory", busy, f"memory bandwidth used: {shown}") + "</div>"
    yield "</div>"


def _phase(phase: _Phase) -> Iterator[str]:
    against = _against(phase)
    yield f'<div class="phase"><p class="what"><span>{phase.name} <small>{phase.whose}</small></span>'
    yield f"<b>{rate(phase.speed)}</b></p>"
    label = f"{phase.name}: {speed(phase.speed)} tokens per second, {against}"
    yield render_bar(phase.kind, phase.ratio, label.replace("`", ""))
    yield f'<p class="against">{_code(against)}</p></div>'


def _against(phase: _Phase) -> str:
    if phase.limit is None:
        return phase.missing
    if phase.ratio is None:
        return f"ceiling {speed(phase.limit)} tok/s"
    beyond = ": speculation, or a wrong fact" if phase.ratio >= _BEYOND else ""
    return f"{percent(phase.ratio)} of its ceiling, {speed(phase.limit)} tok/s{beyond}"


def _code(words: str) -> str:
    """Words as HTML, with what stands between backticks as code."""
    parts = [escape(part) for part in words.split("`")]
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _most_exact(found: Mapping[str, float], *labels: str) -> float | None:
    return next((found[label] for label in labels if label in found), None)
