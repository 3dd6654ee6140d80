"""The landing page: what a person wants to know first, without Grafana. Plain HTML, no script, nothing from outside."""

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from phasewatch.advice import Advice, advice_for
from phasewatch.ceiling import Basis, Counted
from phasewatch.latency import Latency
from phasewatch.metric import SelfStatus
from phasewatch.ollama.inventory import FOREVER_SECONDS
from phasewatch.ollama.record import ProbeRecord
from phasewatch.snapshot import EngineReading, ModelReading, TargetSnapshot

STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 96rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
nav { margin: .3rem 0 1rem; }
nav a { margin-right: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: bottom; }
td { white-space: nowrap; }
td.number { font-variant-numeric: tabular-nums; text-align: right; }
th { font-weight: 600; border-bottom: 1px solid currentColor; }
.up { color: #15803d; } .down { color: #b91c1c; } .unknown { opacity: .7; }
td.error { white-space: normal; }
@media (prefers-color-scheme: dark) { .up { color: #4ade80; } .down { color: #f87171; } }
"""

_NUMBERS: Final = (
    ("prefill, one request", "tok/s"),
    ("prefill, server", "tok/s"),
    ("decode, one stream", "tok/s"),
    ("decode, server", "tok/s"),
    ("decode of its ceiling", "%"),
    ("memory bandwidth used", "%"),
    ("first token, p50", "s"),
    ("inter-token, p99", "s"),
    ("running", ""),
    ("waiting", ""),
    ("KV cache", "%"),
    ("no token for", "s"),
)


_MEMORY_HEADS: Final = (
    "target", "model", "size (GB)", "on the GPU (%)", "context (tokens)", "unloaded at", "probes", "newest probe",
)  # fmt: skip


def page(status: SelfStatus, targets: Sequence[TargetSnapshot]) -> str:
    """The whole page as HTML."""
    return "\n".join(_page(status, targets))


def _page(status: SelfStatus, targets: Sequence[TargetSnapshot]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>PhaseWatch</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<link rel="stylesheet" href="style.css"></head><body>'
    yield f"<h1>PhaseWatch {escape(status.version)}</h1>"
    yield '<nav><a href="metrics">Metrics</a><a href="-/healthy">Health</a><a href="-/ready">Readiness</a></nav>'
    if not status.reload_successful:
        yield '<p class="down">The newest configuration is invalid (see the log); the one before is in force.</p>'
    yield "<h2>Targets</h2>"
    yield from _table(
        ("target", "backend", "address", "state", "version", "failed scrapes", "last error"), map(_target, targets)
    )
    engines = [(target, engine) for target in targets for engine in target.engines]
    if engines:
        heads = [f"{name} ({unit})" if unit else name for name, unit in _NUMBERS]
        yield "<h2>Models</h2>"
        yield from _table(("target", "model", "engine", "state", *heads), (_engine(*row) for row in engines))
        yield "<p>A dash stands for a number that is not known now. Speeds and latencies cover the target's window.</p>"
        yield from _advice(engines)
    resident = [(target, model) for target in targets for model in target.models if model.loaded]
    if resident:
        yield "<h2>In memory</h2>"
        yield from _table(_MEMORY_HEADS, (_resident(*row) for row in resident))
    yield "</body></html>"


def _table(heads: Sequence[str], rows: Iterator[str]) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr>'
    yield from (f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"


def _target(target: TargetSnapshot) -> str:
    failures = sum(target.errors.values())
    error = f"{target.trouble.reason.value}: {target.trouble.message}" if target.trouble else ""
    cells = (target.name, target.backend, target.url)
    return (
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + _state(target)
        + f'<td>{escape(target.facts.version or "")}</td><td class="number">{failures}</td>'
        + f'<td class="error">{escape(error)}</td></tr>'
    )


def _state(target: TargetSnapshot) -> str:
    if target.up is None:
        return '<td class="unknown">not scraped yet</td>'
    if target.up:
        return '<td class="up">up</td>'
    if target.optional and not target.answered:
        return '<td class="unknown">optional, not there yet</td>'
    since = "" if target.last_success is None else f", last answer {_utc(target.last_success)}"
    return f'<td class="down">down{since}</td>'


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))


def _engine(target: TargetSnapshot, engine: EngineReading) -> str:
    phases, load = engine.phases, engine.load
    numbers = (
        _number(phases.prefill_tokens_per_second, 1),
        _number(phases.prefill_throughput_tokens_per_second, 1),
        _number(phases.decode_tokens_per_second, 1),
        _number(phases.decode_throughput_tokens_per_second, 1),
        _percent(_most_exact(engine.ceiling.decode_ceiling_ratio, Basis.READ, Basis.WEIGHTS)),
        _percent(_most_exact(engine.ceiling.memory_bandwidth_utilization_ratio, Counted.DERIVED, Counted.ENGINE)),
        _quantile(engine.latencies.time_to_first_token, 0.5),
        _quantile(engine.latencies.inter_token, 0.99),
        _number(load.requests_running, 0),
        _number(load.requests_waiting, 0),
        _percent(load.kv_cache_usage_ratio),
        _number(engine.token_stall_seconds, 1),
    )
    words = _words(engine)
    names = (target.name, engine.key.model_name, engine.key.engine or "", words.title if words else "")
    return (
        "<tr>"
        + "".join(f"<td>{escape(name)}</td>" for name in names)
        + "".join(f'<td class="number">{number}</td>' for number in numbers)
        + "</tr>"
    )


def _words(engine: EngineReading) -> Advice | None:
    return None if engine.state is None else advice_for(engine.state, asleep=engine.asleep)


def _advice(engines: Sequence[tuple[TargetSnapshot, EngineReading]]) -> Iterator[str]:
    """What each state that is shown means and what to change, once."""
    shown = dict.fromkeys(_words(engine) for _, engine in engines)
    for words in shown:
        if words and words.change:
            yield f"<h2>{escape(words.title)}</h2><p>{escape(words.meaning)}</p><ul>"
            yield from (f"<li>{escape(line)}</li>" for line in (*words.change, *words.avoid))
            yield "</ul>"


def _resident(target: TargetSnapshot, model: ModelReading) -> str:
    probe = model.probe or ProbeRecord()
    told = "none yet" if probe.success is None else "answered" if probe.success else "failed"
    numbers = (
        _number(None if model.bytes is None else model.bytes / 1e9, 2),
        _percent(model.gpu_ratio),
        _number(model.context_length_tokens, 0),
        _expiry(model.expiry),
        str(probe.probes),
    )
    return (
        f"<tr><td>{escape(target.name)}</td><td>{escape(model.name)}</td>"
        + "".join(f'<td class="number">{number}</td>' for number in numbers)
        + f"<td>{told}</td></tr>"
    )


def _expiry(moment: float | None) -> str:
    if moment is None:
        return _number(None, 0)
    return _utc(moment) if moment < time.time() + FOREVER_SECONDS else "never"


def _most_exact(found: Mapping[str, float], *labels: str) -> float | None:
    return next((found[label] for label in labels if label in found), None)


def _percent(value: float | None) -> str:
    return _number(None if value is None else 100 * value, 0)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"  # noqa: RUF001  # an en dash on purpose


def _quantile(latency: Latency, order: float) -> str:
    found = dict(latency.quantiles).get(order)
    if found is None:
        return _number(None, 0)
    if found.upper is None:
        return f"≥ {found.value:g}"
    return f"≤ {found.value:g}" if found.lower == 0 else _number(found.value, 3)
