"""Prefill and decode of a model as bars against their hardware ceilings, or the reason why there is no ceiling."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from phasewatch.analysis.ceiling import Basis, RateSource
from phasewatch.backends.backend import Backend
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.web.landing.charts import render_bar
from phasewatch.web.landing.text import format_percent, format_rate, format_speed

_ABOVE_CEILING_RATIO: Final = 1.005
"""Ratio from which a phase is reported as above its ceiling: it is then displayed as more than 100 %."""


@dataclass(frozen=True, slots=True)
class _PhaseBar:
    """A bar and the text around it.

    Attributes:
        kind: CSS class of the filling.
        name: name of the phase.
        scope: what the speed refers to: one request, or one stream.
        speed: tokens per second.
        ceiling: highest possible speed, tokens per second.
        ratio: speed / ceiling.
        missing: why there is no ceiling, shown if there is none.
    """

    kind: str
    name: str
    scope: str
    speed: float | None
    ceiling: float | None
    ratio: float | None
    missing: str


def render_phase_bars(engine: EngineSnapshot, model: ModelSnapshot | None, backend: Backend) -> Iterator[str]:
    """Render prefill, decode and memory bandwidth utilization as HTML.

    Args:
        engine: the engine that serves the model.
        model: the model's snapshot; None if the server does not manage models.
        backend: the kind of server, which explains a missing ceiling.
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
    utilization = _choose_most_exact(ceiling.memory_bandwidth_utilization_ratio, RateSource.DERIVED, RateSource.ENGINE)
    if utilization is not None:
        value = format_percent(utilization)
        yield f'<div class="phase"><p class="what"><span>Memory bandwidth used</span><b>{value}</b></p>'
        yield render_bar("memory", utilization, f"memory bandwidth used: {value}") + "</div>"
    yield "</div>"


def _render_phase_bar(bar: _PhaseBar) -> Iterator[str]:
    comparison = _describe_ratio(bar)
    yield f'<div class="phase"><p class="what"><span>{bar.name} <small>{bar.scope}</small></span>'
    yield f"<b>{format_rate(bar.speed)}</b></p>"
    label = f"{bar.name}: {format_speed(bar.speed)} tokens per second, {comparison}"
    yield render_bar(bar.kind, bar.ratio, label.replace("`", ""))
    yield f'<p class="against">{_render_code(comparison)}</p></div>'


def _describe_ratio(bar: _PhaseBar) -> str:
    if bar.ceiling is None:
        return bar.missing
    if bar.ratio is None:
        return f"ceiling {format_speed(bar.ceiling)} tok/s"
    beyond = ": speculation, or a wrong fact" if bar.ratio >= _ABOVE_CEILING_RATIO else ""
    return f"{format_percent(bar.ratio)} of its ceiling, {format_speed(bar.ceiling)} tok/s{beyond}"


def _render_code(text: str) -> str:
    """Convert text to HTML, with code between backticks."""
    parts = [escape(part) for part in text.split("`")]
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _choose_most_exact(values: Mapping[str, float], *labels: str) -> float | None:
    """Choose the value of the first label that has one; labels are ordered from the most exact."""
    return next((values[label] for label in labels if label in values), None)
