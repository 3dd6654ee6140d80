"""The card of a model: state, both phases, latencies, and charts of its queue and KV cache."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from html import escape
from types import MappingProxyType
from typing import Final

from phasewatch.analysis.advice.diagnosis import Diagnosis, Figures, describe_advice, diagnose
from phasewatch.analysis.saturation import CALM, SaturationState
from phasewatch.backends import find_backend
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord
from phasewatch.snapshot.target import TargetSnapshot
from phasewatch.web.landing.charts import find_peak, measure_span, render_bar, render_chart
from phasewatch.web.landing.load_history import Track
from phasewatch.web.landing.phase_bars import render_phase_bars
from phasewatch.web.landing.text import (
    UNKNOWN,
    Moment,
    escape_foreign,
    format_age,
    format_expiry,
    format_number,
    format_percent,
    format_quantile,
    format_rate,
)

MANY_CARDS: Final = 5
"""Number of cards from which they are compact, so that the state of every model fits on the first screen."""

_URGENT: Final = frozenset({SaturationState.STUCK, SaturationState.SHEDDING})
"""States in which requests are rejected or never finish; in the other limited states they only wait."""


@dataclass(frozen=True, slots=True)
class Card:
    """The subject of a card: a model and the engine that serves it.

    Attributes:
        target: target of the engine.
        engine: engine that serves the model.
        model: the model's snapshot, from servers that manage models (Ollama).
        track: history of the engine, if there is one.
        probed: whether the model is configured to be probed.
    """

    target: TargetSnapshot
    engine: EngineSnapshot
    model: ModelSnapshot | None
    track: Track | None
    probed: bool


def render_card(card: Card, moment: Moment, card_count: int) -> Iterator[str]:
    """Render a card as HTML.

    Args:
        card: the model and its engine.
        moment: the present time.
        card_count: number of cards on the page. A single one shows everything; from `MANY_CARDS` on, explanations are
            folded.
    """
    target, engine, model = card.target, card.engine, card.model
    diagnosis = _diagnose_card(card)
    tone = _choose_tone(engine, diagnosis)
    key = _compute_id(card)
    yield f'<article class="card {tone}" id="{key}" aria-labelledby="{key}-name">'
    name = engine.key.model_name
    yield f'<header><h3 id="{key}-name" title="{escape(name)}">{escape_foreign(name)}</h3>'
    if diagnosis is not None:
        yield f'<p class="state">{escape(diagnosis.title)}</p>'
    where = [
        escape_foreign(target.name),
        *([f"engine {escape_foreign(engine.key.engine)}"] if engine.key.engine else []),
    ]
    yield f'<p class="from">{", ".join(where)}</p></header>'
    if diagnosis is not None and card_count < MANY_CARDS:
        yield f'<p class="meaning">{_render_prose(diagnosis.meaning)}</p>'
    yield '<div class="parts"><div class="part">'
    yield from render_phase_bars(engine, model, find_backend(target.backend))
    yield '</div><div class="part">'
    if model is None:
        yield from _render_figures(engine, timed=find_backend(target.backend).handbook.slow_first_token is not None)
    else:
        if engine.measurement_source is MeasurementSource.TRAFFIC:
            yield from _render_figures(engine, timed=False)
        yield from _render_residency(model, engine, moment, probed=card.probed)
    if card.track is not None:
        yield from _render_trends(engine, card.track)
    yield "</div></div>"
    yield from _render_advice(diagnosis, f"{key}-advice", card_count)
    yield "</article>"


def _diagnose_card(card: Card) -> Diagnosis | None:
    """Diagnose an engine: why requests wait and what users notice, or else, for Ollama, what makes it slow."""
    engine, model = card.engine, card.model
    is_partial = model is not None and model.gpu_ratio is not None and 0 < model.gpu_ratio < 1
    if engine.state is not None and not (is_partial and engine.state in CALM):
        figures = Figures(engine.objectives, engine.latencies, engine.phases, engine.load)
        handbook = find_backend(card.target.backend).handbook
        return diagnose(handbook, engine.state, figures, asleep=engine.asleep, version=card.target.facts.version)
    return describe_advice(FINDINGS["partial_offload"]) if is_partial else None


def _choose_tone(engine: EngineSnapshot, diagnosis: Diagnosis | None) -> str:
    """Choose the CSS class that colours a card. The colour repeats what the title says in words."""
    if diagnosis is not None and diagnosis.title == FINDINGS["partial_offload"].title:
        return "limited"
    if diagnosis is None or engine.state is SaturationState.IDLE:
        return "quiet"
    if engine.state is SaturationState.HEALTHY:
        return "limited" if diagnosis.missed else "good"
    return "bad" if engine.state in _URGENT and not engine.asleep else "limited"


def _compute_id(card: Card) -> str:
    """Compute an HTML id that stays the same over requests, by which the script matches cards."""
    engine = card.engine.key
    names = "\0".join((card.target.name, engine.model_name, engine.engine or ""))
    return "m" + blake2s(names.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def _render_figures(engine: EngineSnapshot, *, timed: bool) -> Iterator[str]:
    """Render throughputs, and latencies if the kind of server times the tokens of requests, else what runs at once."""
    latencies, phases = engine.latencies, engine.phases
    of_tokens = [
        ("First token, p50", format_quantile(latencies.time_to_first_token, 0.5)),
        ("Inter-token, p99", format_quantile(latencies.inter_token, 0.99)),
        ("Since last token", _format_seconds(engine.token_stall_seconds, 1)),
        ("Room for more requests", format_number(engine.load.kv_cache_headroom_requests, 0)),
    ]
    at_once = [
        ("Streams in decode", format_number(phases.decode_streams, 1)),
        ("Context of a request", _format_tokens(engine.load.context_tokens)),
        ("Since last token", _format_seconds(engine.token_stall_seconds, 1)),
    ]
    yield from _render_list(
        [
            ("Prefill, server", format_rate(phases.prefill_throughput_tokens_per_second)),
            ("Decode, server", format_rate(phases.decode_throughput_tokens_per_second)),
            *(of_tokens if timed else at_once),
        ],
        titles={
            "Room for more requests": (
                "how many more requests fit into the KV cache until they finish, beyond those that run and wait"
            )
        },
    )


def _format_tokens(value: float | None) -> str:
    return UNKNOWN if value is None else f"{format_number(value, 0)} tokens"


def _format_seconds(value: float | None, digits: int = 3) -> str:
    return UNKNOWN if value is None else f"{format_number(value, digits)} s"


def _render_list(rows: Sequence[tuple[str, str]], titles: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Render a definition list.

    Args:
        rows: names as text, and values as HTML.
        titles: explanations of some names, shown when pointed at.
    """
    yield '<dl class="figures">'
    for name, value in rows:
        title = f' title="{escape(titles[name])}"' if name in titles else ""
        yield f"<div{title}><dt>{escape(name)}</dt><dd>{value}</dd></div>"
    yield "</dl>"


def _render_trends(engine: EngineSnapshot, track: Track) -> Iterator[str]:
    load, span = engine.load, measure_span((track.running, track.waiting, track.kv_cache))
    running, waiting = format_number(load.requests_running, 0), format_number(load.requests_waiting, 0)
    top = find_peak((*track.running, *track.waiting))
    yield '<div class="trends">'
    yield from _render_trend(
        "Requests",
        (("running", "running", running), ("waiting", "waiting", waiting)),
        render_chart(
            (("running", track.running), ("waiting", track.waiting)),
            span,
            max(top or 0.0, 1.0),
            f"requests over the last {_format_minutes(span)}: {running} running now, at most "
            f"{format_number(find_peak(track.running), 0)}; {waiting} waiting now, "
            f"at most {format_number(find_peak(track.waiting), 0)}",
        ),
        UNKNOWN if top is None else format_number(max(top, 1.0), 0),
        span,
    )
    usage = format_percent(load.kv_cache_usage_ratio)
    yield from _render_trend(
        "KV cache",
        (("held", "in use", usage),),
        render_chart(
            (("held", track.kv_cache),),
            span,
            1.0,
            f"KV cache over the last {_format_minutes(span)}: {usage} now, "
            f"at most {format_percent(find_peak(track.kv_cache))}",
        ),
        "100 %",
        span,
    )
    yield "</div>"


def _render_trend(title: str, legend: Sequence[tuple[str, str, str]], chart: str, top: str, span: int) -> Iterator[str]:
    """Render a chart with its legend and axes.

    Args:
        title: title of the chart.
        legend: CSS class, name and present value of each line.
        chart: the chart as SVG.
        top: highest value of the vertical axis.
        span: length of the time axis, seconds.
    """
    keys = "".join(f'<span class="key {kind}">{name} <b>{value}</b></span>' for kind, name, value in legend)
    yield f'<figure class="trend"><figcaption><span>{title}</span>{keys}</figcaption>'
    yield f'<div class="plot">{chart}<div class="scale" aria-hidden="true"><span>{top}</span><span>0</span></div>'
    yield f'<div class="times" aria-hidden="true"><span>{_format_minutes(span)} ago</span><span>now</span></div></div>'
    yield "</figure>"


def _format_minutes(span: int) -> str:
    return f"{span // 60} min"


def _render_residency(model: ModelSnapshot, engine: EngineSnapshot, moment: Moment, *, probed: bool) -> Iterator[str]:
    """Render where Ollama keeps a model, until when, and the results of its probes."""
    share = format_percent(model.gpu_ratio)
    if model.gpu_ratio is not None:
        yield f'<div class="phase"><p class="what"><span>On the GPU</span><b>{share}</b></p>'
        yield render_bar("held", model.gpu_ratio, f"share of the model on the GPU: {share}") + "</div>"
    probe = model.probe or ProbeRecord()
    result = "none yet" if probe.success is None else "answered" if probe.success else "failed"
    first_token = engine.latencies.time_to_first_token.mean
    newest = result if probed else "off"
    size = UNKNOWN if model.bytes is None else f"{format_number(model.bytes / 1e9, 2)} GB"
    yield from _render_list(
        [
            ("First token", _format_seconds(first_token)),
            ("In memory", size),
            ("Context", _format_tokens(model.context_length_tokens)),
            ("Unloads", format_expiry(model.expiry, moment.wall)),
            ("Probes", str(probe.probes)),
            ("Newest probe", newest),
            ("Measured", _describe_measurement(engine, probe, moment)),
        ]
    )


def _describe_measurement(engine: EngineSnapshot, probe: ProbeRecord, moment: Moment) -> str:
    """What the figures come from: users' requests, or the newest probe by its age."""
    if engine.measurement_source is MeasurementSource.TRAFFIC:
        return "users' requests"
    return format_age(probe.last_success if _is_measured(engine) else None, moment.wall)


def _is_measured(engine: EngineSnapshot) -> bool:
    """Whether there are figures from Ollama's probes; they are dropped when they are old or the model is unloaded."""
    speeds = (engine.phases.prefill_tokens_per_second, engine.phases.decode_tokens_per_second)
    return any(value is not None for value in (*speeds, engine.latencies.time_to_first_token.mean))


def _render_advice(diagnosis: Diagnosis | None, key: str, card_count: int) -> Iterator[str]:
    """Render what to change, preceded by the meaning of the state if the card is compact.

    Without content the element is hidden, not omitted: if the reader has opened it, it stays open for later content.
    """
    meaning = diagnosis.meaning if diagnosis is not None and card_count >= MANY_CARDS else ""
    change = (*diagnosis.change, *diagnosis.avoid) if diagnosis is not None else ()
    title = "What to change" if not meaning else "What it means, what to change" if change else "What it means"
    state = f"{' open' if card_count == 1 else ''}{'' if meaning or change else ' hidden'}"
    yield f'<details class="advice" id="{key}"{state}><summary>{title}</summary>'
    if meaning:
        yield f"<p>{_render_prose(meaning)}</p>"
    if change:
        yield "<ul>"
        yield from (f"<li>{_render_prose(line)}</li>" for line in change)
        yield "</ul>"
    yield "</details>"


def _render_prose(text: str) -> str:
    """Convert text to HTML in which flags do not wrap at their hyphens."""
    return re.sub(r"--[\w-]+", r'<span class="flag">\g<0></span>', escape(text))
