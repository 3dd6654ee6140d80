"""A card for each model: its state in words, both phases, latencies, and the last minutes of its queue and cache."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from html import escape
from typing import Final

from phasewatch.analysis.advice import ASLEEP, OLLAMA, Advice, choose_advice
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends import find_backend
from phasewatch.snapshot.engine import EngineSnapshot
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
"""Cards from which they have to be small, so that the first screen shows what state each model is in."""

_URGENT: Final = frozenset({SaturationState.STUCK, SaturationState.SHEDDING})
"""States in which users are turned away or wait in vain; the others that hurt make them wait."""


@dataclass(frozen=True, slots=True)
class Card:
    """What a card is about.

    Attributes:
        target: where the model is served.
        engine: who serves it.
        model: what an Ollama says of it.
        track: its last minutes, where they are known.
        probed: whether it is to be probed.
    """

    target: TargetSnapshot
    engine: EngineSnapshot
    model: ModelSnapshot | None
    track: Track | None
    probed: bool


def render_card(subject: Card, moment: Moment, among: int) -> Iterator[str]:
    """The card as HTML.

    Args:
        subject: what it is about.
        moment: now.
        among: how many cards there are. One alone has room for everything; where there are `MANY_CARDS`, what only
            explains is folded away.
    """
    target, engine, model = subject.target, subject.engine, subject.model
    words = _choose_card_advice(engine, model)
    tone = _choose_tone(engine.state, words)
    key = _compute_id(subject)
    yield f'<article class="card {tone}" id="{key}" aria-labelledby="{key}-name">'
    name = engine.key.model_name
    yield f'<header><h3 id="{key}-name" title="{escape(name)}">{escape_foreign(name)}</h3>'
    if words is not None:
        yield f'<p class="state">{escape(words.title)}</p>'
    where = [
        escape_foreign(target.name),
        *([f"engine {escape_foreign(engine.key.engine)}"] if engine.key.engine else []),
    ]
    yield f'<p class="from">{", ".join(where)}</p></header>'
    if words is not None and among < MANY_CARDS:
        yield f'<p class="meaning">{_render_prose(words.meaning)}</p>'
    yield '<div class="parts"><div class="part">'
    yield from render_phase_bars(engine, model, find_backend(target.backend))
    yield '</div><div class="part">'
    if model is None:
        yield from _render_figures(engine)
    else:
        yield from _render_residency(model, engine, moment, probed=subject.probed)
    if subject.track is not None:
        yield from _render_trends(engine, subject.track)
    yield "</div></div>"
    yield from _render_advice(words, f"{key}-advice", among)
    yield "</article>"


def _choose_card_advice(engine: EngineSnapshot, model: ModelSnapshot | None) -> Advice | None:
    """What to say of an engine: why requests wait, or of an Ollama, which does not tell that, what slows it down."""
    if engine.state is not None:
        return choose_advice(engine.state, asleep=engine.asleep)
    partly = model is not None and model.gpu_ratio is not None and 0 < model.gpu_ratio < 1
    return OLLAMA["partial_offload"] if partly else None


def _choose_tone(state: SaturationState | None, words: Advice | None) -> str:
    """The CSS class that colours a card. Its state is said in words as well."""
    if words is None or state is SaturationState.IDLE:
        return "quiet"
    if state is SaturationState.HEALTHY:
        return "good"
    return "bad" if state in _URGENT and words is not ASLEEP else "limited"


def _compute_id(subject: Card) -> str:
    """Stays the same from one page to the next, so that the script can tell which card is which."""
    engine = subject.engine.key
    names = "\0".join((subject.target.name, engine.model_name, engine.engine or ""))
    return "m" + blake2s(names.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def _render_figures(engine: EngineSnapshot) -> Iterator[str]:
    found, phases = engine.latencies, engine.phases
    yield from _render_list(
        [
            ("Prefill, server", format_rate(phases.prefill_throughput_tokens_per_second)),
            ("Decode, server", format_rate(phases.decode_throughput_tokens_per_second)),
            ("First token, p50", format_quantile(found.time_to_first_token, 0.5)),
            ("Inter-token, p99", format_quantile(found.inter_token, 0.99)),
            ("No token for", _format_seconds(engine.token_stall_seconds, 1)),
        ]
    )


def _format_seconds(value: float | None, digits: int = 3) -> str:
    return UNKNOWN if value is None else f"{format_number(value, digits)} s"


def _render_list(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names and what is to be said of them, the latter as HTML."""
    yield '<dl class="figures">'
    yield from (f"<div><dt>{escape(name)}</dt><dd>{shown}</dd></div>" for name, shown in rows)
    yield "</dl>"


def _render_trends(engine: EngineSnapshot, track: Track) -> Iterator[str]:
    load, covered = engine.load, measure_span((track.running, track.waiting, track.kv_cache))
    running, waiting = format_number(load.requests_running, 0), format_number(load.requests_waiting, 0)
    top = find_peak((*track.running, *track.waiting))
    yield '<div class="trends">'
    yield from _render_trend(
        "Requests",
        (("running", "running", running), ("waiting", "waiting", waiting)),
        render_chart(
            (("running", track.running), ("waiting", track.waiting)),
            covered,
            max(top or 0.0, 1.0),
            f"requests over the last {_format_minutes(covered)}: {running} running now, at most "
            f"{format_number(find_peak(track.running), 0)}; {waiting} waiting now, "
            f"at most {format_number(find_peak(track.waiting), 0)}",
        ),
        UNKNOWN if top is None else format_number(max(top, 1.0), 0),
        covered,
    )
    held = format_percent(load.kv_cache_usage_ratio)
    yield from _render_trend(
        "KV cache",
        (("held", "in use", held),),
        render_chart(
            (("held", track.kv_cache),),
            covered,
            1.0,
            f"KV cache over the last {_format_minutes(covered)}: {held} now, "
            f"at most {format_percent(find_peak(track.kv_cache))}",
        ),
        "100 %",
        covered,
    )
    yield "</div>"


def _render_trend(
    title: str, keys: Sequence[tuple[str, str, str]], drawn: str, top: str, covered: int
) -> Iterator[str]:
    """A chart with its words: what is drawn now, the highest value of the axis, and how far back it goes."""
    shown = "".join(f'<span class="key {kind}">{name} <b>{value}</b></span>' for kind, name, value in keys)
    yield f'<figure class="trend"><figcaption><span>{title}</span>{shown}</figcaption>'
    yield f'<div class="plot">{drawn}<div class="scale" aria-hidden="true"><span>{top}</span><span>0</span></div>'
    times = f"<span>{_format_minutes(covered)} ago</span><span>now</span>"
    yield f'<div class="times" aria-hidden="true">{times}</div></div>'
    yield "</figure>"


def _format_minutes(covered: int) -> str:
    return f"{covered // 60} min"


def _render_residency(model: ModelSnapshot, engine: EngineSnapshot, moment: Moment, *, probed: bool) -> Iterator[str]:
    """Where an Ollama keeps a model, until when, and how it is probed; what users wait for it does not tell."""
    share = format_percent(model.gpu_ratio)
    if model.gpu_ratio is not None:
        yield f'<div class="phase"><p class="what"><span>On the GPU</span><b>{share}</b></p>'
        yield render_bar("held", model.gpu_ratio, f"share of the model on the GPU: {share}") + "</div>"
    probe = model.probe or ProbeRecord()
    told = "none yet" if probe.success is None else "answered" if probe.success else "failed"
    first_token = engine.latencies.time_to_first_token.mean
    newest = told if probed else "off"
    size = UNKNOWN if model.bytes is None else f"{format_number(model.bytes / 1e9, 2)} GB"
    context = model.context_length_tokens
    yield from _render_list(
        [
            ("First token", _format_seconds(first_token)),
            ("In memory", size),
            ("Context", UNKNOWN if context is None else f"{format_number(context, 0)} tokens"),
            ("Unloads", format_expiry(model.expiry, moment.wall)),
            ("Probes", str(probe.probes)),
            ("Newest probe", newest),
            ("Measured", format_age(probe.last_success if _is_measured(engine) else None, moment.wall)),
        ]
    )


def _is_measured(engine: EngineSnapshot) -> bool:
    """Whether there are numbers of an Ollama's probes, which it forgets when they are old or the model goes."""
    found = (engine.phases.prefill_tokens_per_second, engine.phases.decode_tokens_per_second)
    return any(value is not None for value in (*found, engine.latencies.time_to_first_token.mean))


def _render_advice(words: Advice | None, key: str, among: int) -> Iterator[str]:
    """What to change, and before it what is going on where the card itself has no room for that.

    Where there is nothing to say it is hidden and not left out: what a reader has opened stays open until there is.
    """
    meaning = words.meaning if words is not None and among >= MANY_CARDS else ""
    change = (*words.change, *words.avoid) if words is not None else ()
    title = "What to change" if not meaning else "What it means, what to change" if change else "What it means"
    state = f"{' open' if among == 1 else ''}{'' if meaning or change else ' hidden'}"
    yield f'<details class="advice" id="{key}"{state}><summary>{title}</summary>'
    if meaning:
        yield f"<p>{_render_prose(meaning)}</p>"
    if change:
        yield "<ul>"
        yield from (f"<li>{_render_prose(line)}</li>" for line in change)
        yield "</ul>"
    yield "</details>"


def _render_prose(words: str) -> str:
    """Words as HTML in which a flag is not broken at its hyphens."""
    return re.sub(r"--[\w-]+", r'<span class="flag">\g<0></span>', escape(words))
