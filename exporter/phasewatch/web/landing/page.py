"""The landing page: an overview without Grafana, in plain HTML and without external resources.

A small script requests the page again every few seconds and replaces what has changed, so this is the only renderer,
and the page works without the script.
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
"""Time from a response to the next request of the script."""

_TABLE_HEADS: Final = ("Target", "State", "Backend", "Address", "Version", "Failed scrapes", "Last error")


@dataclass(frozen=True, slots=True)
class RenderContext:
    """What the page shows apart from the newest snapshots.

    Attributes:
        history: the last minutes of every engine.
        is_probed: takes the names of a target and a model; returns whether the model is configured to be probed.
        moment: the present time.
    """

    history: LoadHistory
    is_probed: Callable[[str, str], bool]
    moment: Moment


def render_page(status: SelfStatus, targets: Sequence[TargetSnapshot], context: RenderContext, notice: str = "") -> str:
    """Render the page as HTML.

    Args:
        status: the exporter's own status.
        targets: the newest snapshots.
        context: history, probing and the present time.
        notice: a sentence for a banner at the top; empty for none.
    """
    return "\n".join(_render_parts(status, targets, context, notice))


def _render_parts(
    status: SelfStatus, targets: Sequence[TargetSnapshot], context: RenderContext, notice: str
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
    yield f'<p class="as-of">{format_utc(context.moment.wall)}'
    yield f'<span class="live"> · refreshed every {REFRESH_SECONDS} s</span></p>'
    if notice:
        yield f'<p class="banner" id="notice">{escape(notice)}</p>'
    if not status.reload_successful:
        yield '<p class="banner bad" id="reload">The newest configuration is invalid (see the log); '
        yield "the one before is in force.</p>"
    yield from (_render_outage(target) for target in targets if _is_down(target))
    yield from _render_models(targets, context)
    yield from _render_targets(targets)
    yield "</main></body></html>"


def _render_models(targets: Sequence[TargetSnapshot], context: RenderContext) -> Iterator[str]:
    cards = [card for target in targets for card in _list_cards(target, context)]
    if not cards:
        yield '<p class="note">No model is known now: no target answers, or none has one in memory.</p>'
        return
    layout = "cards single" if len(cards) == 1 else "cards many" if len(cards) >= MANY_CARDS else "cards"
    yield f'<section id="models" aria-labelledby="models-title"><h2 id="models-title">Models</h2><div class="{layout}">'
    for card in cards:
        yield from render_card(card, context.moment, len(cards))
    yield '</div><p class="note">A dash stands for a number that is not known now. '
    yield "Speeds and latencies cover the target's window; an Ollama's are those of users' requests where these are "
    yield "seen, otherwise of the newest probes: its card says which.</p></section>"


def _list_cards(target: TargetSnapshot, context: RenderContext) -> Iterator[Card]:
    models = {model.name: model for model in target.models}
    # Ollama lists models by expiry, so their order changes with every request; cards must keep their places.
    for engine in sorted(target.engines, key=lambda engine: _create_sort_key(engine.key)):
        name = engine.key.model_name
        track = context.history.get_track(target.name, engine.key, context.moment.monotonic)
        yield Card(target, engine, models.get(name), track, probed=context.is_probed(target.name, name))


def _create_sort_key(key: EngineKey) -> tuple[str, int, str]:
    """Create a key that sorts engine 2 before engine 10."""
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
    columns = (f'<td data-head="{head}">{cell}</td>' for head, cell in zip(_TABLE_HEADS, cells, strict=True))
    return f"<tr>{''.join(columns)}</tr>"


def _is_down(target: TargetSnapshot) -> bool:
    """Whether the target should answer and does not."""
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
