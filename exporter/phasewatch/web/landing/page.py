"""The landing page: what a person wants to know first, without Grafana. Plain HTML and nothing from outside.

A small script asks for the page anew every few seconds and takes over what has changed, so this is the only renderer,
and the page is the same without the script.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from phasewatch.analysis.samples import EngineKey
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.snapshot.target import TargetSnapshot
from phasewatch.web.landing.cards import MANY_CARDS, Card, render_card
from phasewatch.web.landing.load_history import LoadHistory
from phasewatch.web.landing.text import Moment, escape_foreign, format_utc

REFRESH_SECONDS: Final = 3
"""From an answer to the next question of the script."""

_TABLE_HEADS: Final = ("Target", "State", "Backend", "Address", "Version", "Failed scrapes", "Last error")


@dataclass(frozen=True, slots=True)
class PageContext:
    """What is known beyond the newest snapshots.

    Attributes:
        history: the last minutes of every engine.
        probes: whether a model of a target, by their names, is to be probed.
        moment: now.
    """

    history: LoadHistory
    probes: Callable[[str, str], bool]
    moment: Moment


def render_page(status: SelfStatus, targets: Sequence[TargetSnapshot], known: PageContext, notice: str = "") -> str:
    """The whole page as HTML.

    Args:
        status: of the exporter.
        targets: the newest snapshots.
        known: what is known besides.
        notice: a sentence that is shown above everything else.
    """
    return "\n".join(_render_parts(status, targets, known, notice))


def _render_parts(
    status: SelfStatus, targets: Sequence[TargetSnapshot], known: PageContext, notice: str
) -> Iterator[str]:
    version = escape(status.version)
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>PhaseWatch</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<link rel="icon" href="icon.svg"><link rel="stylesheet" href="style.css">'
    yield '<script src="live.js" defer></script></head><body>'
    yield f'<header class="top"><h1>PhaseWatch <small>{version}</small></h1><nav aria-label="Endpoints">'
    yield '<a href="metrics">Metrics</a><a href="-/healthy">Health</a><a href="-/ready">Readiness</a></nav></header>'
    yield '<p id="outage" class="banner bad" role="alert" hidden></p>'
    yield f'<main data-version="{version}" data-seconds="{REFRESH_SECONDS}">'
    yield f'<p class="as-of">{format_utc(known.moment.wall)}'
    yield f'<span class="live"> · refreshed every {REFRESH_SECONDS} s</span></p>'
    if notice:
        yield f'<p class="banner" id="notice">{escape(notice)}</p>'
    if not status.reload_successful:
        yield '<p class="banner bad" id="reload">The newest configuration is invalid (see the log); '
        yield "the one before is in force.</p>"
    yield from (_render_outage(target) for target in targets if _is_down(target))
    yield from _render_models(targets, known)
    yield from _render_targets(targets)
    yield "</main></body></html>"


def _render_models(targets: Sequence[TargetSnapshot], known: PageContext) -> Iterator[str]:
    subjects = [subject for target in targets for subject in _list_cards(target, known)]
    if not subjects:
        yield '<p class="note">No model is known now: no target answers, or none has one in memory.</p>'
        return
    layout = "cards single" if len(subjects) == 1 else "cards many" if len(subjects) >= MANY_CARDS else "cards"
    yield f'<section id="models" aria-labelledby="models-title"><h2 id="models-title">Models</h2><div class="{layout}">'
    for subject in subjects:
        yield from render_card(subject, known.moment, len(subjects))
    yield '</div><p class="note">A dash stands for a number that is not known now. '
    yield "Speeds and latencies cover the target's window; an Ollama's are those of the newest probes.</p></section>"


def _list_cards(target: TargetSnapshot, known: PageContext) -> Iterator[Card]:
    models = {model.name: model for model in target.models}
    # An Ollama lists its models by expiry, so their order changes with every request; cards stay where they are.
    for engine in sorted(target.engines, key=lambda engine: _create_sort_key(engine.key)):
        name = engine.key.model_name
        track = known.history.track(target.name, engine.key, known.moment.monotonic)
        yield Card(target, engine, models.get(name), track, probed=known.probes(target.name, name))


def _create_sort_key(key: EngineKey) -> tuple[str, int, str]:
    """Sorts engine 2 before engine 10."""
    engine = key.engine or ""
    return key.model_name, len(engine), engine


def _render_outage(target: TargetSnapshot) -> str:
    since = "" if target.last_success is None else f" Last answer {format_utc(target.last_success)}."
    error = "" if target.trouble is None else f": {escape_foreign(target.trouble.message)}"
    return f'<p class="banner bad"><b>{escape_foreign(target.name)} is down</b>{error}.{since}</p>'


def _render_targets(targets: Sequence[TargetSnapshot]) -> Iterator[str]:
    yield '<section id="targets" aria-labelledby="targets-title"><h2 id="targets-title">Targets</h2>'
    yield "<table><thead><tr>"
    yield from (f'<th scope="col">{escape(head)}</th>' for head in _TABLE_HEADS)
    yield "</tr></thead><tbody>"
    yield from map(_render_target, targets)
    yield "</tbody></table>"
    stored = [(target, model.name) for target in targets for model in target.models if model.loaded == 0]
    if stored:
        names = ", ".join(f"{escape_foreign(name)} ({escape_foreign(target.name)})" for target, name in stored)
        yield f'<p class="note">On disk, not in memory: {names}.</p>'
    yield "</section>"


def _render_target(target: TargetSnapshot) -> str:
    failures = sum(target.errors.values())
    error = f"{target.trouble.reason.value}: {target.trouble.message}" if target.trouble else ""
    cells = (
        escape_foreign(target.name),
        _render_state(target),
        escape_foreign(target.backend),
        escape_foreign(target.url),
        escape_foreign(target.facts.version) if target.facts.version else "",
        f"{failures:,}",
        escape_foreign(error) if error else "",
    )
    shown = (f'<td data-head="{head}">{cell}</td>' for head, cell in zip(_TABLE_HEADS, cells, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _is_down(target: TargetSnapshot) -> bool:
    """Whether it ought to answer and does not."""
    return target.up is False and (target.answered or not target.optional)


def _render_state(target: TargetSnapshot) -> str:
    if target.up is None:
        return '<span class="unknown">not scraped yet</span>'
    if target.up:
        return '<span class="up">up</span>'
    if not _is_down(target):
        return '<span class="unknown">optional, not there yet</span>'
    since = "" if target.last_success is None else f", last answer {format_utc(target.last_success)}"
    return f'<span class="down">down{since}</span>'
