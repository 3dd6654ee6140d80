"""Both phases of a model as bars against what the hardware allows; where that is not known, which key would tell it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from phasewatch.analysis.ceiling import Basis, Counted
from phasewatch.backends.backend import Backend
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.web.landing.charts import render_bar
from phasewatch.web.landing.text import format_percent, format_rate, format_speed

_ABOVE_CEILING_RATIO: Final = 1.005
"""Ratio from which a phase is said to be above its ceiling: one that is shown as more than 100 %."""


@dataclass(frozen=True, slots=True)
class _PhaseBar:
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
    yield from _render_phase_bar(
        _PhaseBar(
            "prefill",
            "Prefill",
            "one request",
            phases.prefill_tokens_per_second,
            ceiling.prefill_ceiling_tokens_per_second,
            ceiling.prefill_ceiling_ratio,
            backend.explain_missing_prefill_ceiling(engine),
        )
    )
    yield from _render_phase_bar(
        _PhaseBar(
            "decode",
            "Decode",
            "one stream",
            phases.decode_tokens_per_second,
            _choose_most_exact(ceiling.decode_ceiling_tokens_per_second, Basis.READ, Basis.WEIGHTS),
            _choose_most_exact(ceiling.decode_ceiling_ratio, Basis.READ, Basis.WEIGHTS),
            backend.explain_missing_decode_ceiling(engine, model),
        )
    )
    busy = _choose_most_exact(ceiling.memory_bandwidth_utilization_ratio, Counted.DERIVED, Counted.ENGINE)
    if busy is not None:
        shown = format_percent(busy)
        yield f'<div class="phase"><p class="what"><span>Memory bandwidth used</span><b>{shown}</b></p>'
        yield render_bar("memory", busy, f"memory bandwidth used: {shown}") + "</div>"
    yield "</div>"


def _render_phase_bar(phase: _PhaseBar) -> Iterator[str]:
    against = _describe_ratio(phase)
    yield f'<div class="phase"><p class="what"><span>{phase.name} <small>{phase.whose}</small></span>'
    yield f"<b>{format_rate(phase.speed)}</b></p>"
    label = f"{phase.name}: {format_speed(phase.speed)} tokens per second, {against}"
    yield render_bar(phase.kind, phase.ratio, label.replace("`", ""))
    yield f'<p class="against">{_render_code(against)}</p></div>'


def _describe_ratio(phase: _PhaseBar) -> str:
    if phase.limit is None:
        return phase.missing
    if phase.ratio is None:
        return f"ceiling {format_speed(phase.limit)} tok/s"
    beyond = ": speculation, or a wrong fact" if phase.ratio >= _ABOVE_CEILING_RATIO else ""
    return f"{format_percent(phase.ratio)} of its ceiling, {format_speed(phase.limit)} tok/s{beyond}"


def _render_code(words: str) -> str:
    """Words as HTML, with what stands between backticks as code."""
    parts = [escape(part) for part in words.split("`")]
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _choose_most_exact(found: Mapping[str, float], *labels: str) -> float | None:
    return next((found[label] for label in labels if label in found), None)
