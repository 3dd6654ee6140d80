"""Saturation: the words of the advice, beside the state of each engine and as a whole."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from dashboards.generate.model import Words
from dashboards.generate.states import DOWN, IN_MEMORY, STATES, UNKNOWN, by_state
from phasewatch.analysis.advice import ADVICE, ASLEEP, Advice
from phasewatch.analysis.saturation import State

_NOTHING: Final = "Nothing is to be done."
_NONE: Final = "\N{EN DASH}"
_OTHERS: Final = {
    UNKNOWN: Advice(
        STATES[UNKNOWN].text,
        "No exporter tells of this server any more: PhaseWatch is down, or the server was taken out of its configuration.",
        ("Is PhaseWatch running, and does Prometheus reach it? See the board Exporter.",),
        ("Do not restart the server for this: it may be well.",),
    ),
    DOWN: Advice(
        STATES[DOWN].text,
        "The server does not answer, or not as it should.",
        ("Is it running, and is its address right? The board Exporter and the log of PhaseWatch have the reason.",),
    ),
    IN_MEMORY: Advice(
        STATES[IN_MEMORY].text,
        "An Ollama has this model in memory. It does not tell what waits.",
        ("See the board Ollama.",),
    ),
}
"""What is no state of an engine and stands in the same table."""


def _changes(advice: Advice) -> tuple[str, ...]:
    return advice.change or (_NOTHING,)


def _avoided(advice: Advice) -> tuple[str, ...]:
    return advice.avoid or (_NONE,)


_COLUMNS: Final[Mapping[str, Callable[[Advice], tuple[str, ...]]]] = {
    "meaning": lambda advice: (advice.meaning,),
    "change": _changes,
    "avoid": _avoided,
}


def advised() -> str:
    """The state of everything there is, the most urgent first, with the words about it as labels.

    They are no value mappings, since Grafana makes a row as high as the values need and not as what stands for them.
    """
    known = {**{state.value: advice for state, advice in ADVICE.items()}, **_OTHERS}
    parts = [_worded(expr, state, known[state]) for state, expr in by_state().items()]
    return "sort_desc(" + "\n  or ".join(parts) + ")"


def _worded(expr: str, state: str, advice: Advice) -> str:
    labels = {"state": state, **{label: "\n".join(read(advice)) for label, read in _COLUMNS.items()}}
    for label, words in labels.items():
        expr = f'label_replace({expr}, "{label}", {json.dumps(words, ensure_ascii=False)}, "", "")'
    return expr


def advice() -> Words:
    """The whole table, the most urgent first."""
    urgent_first = [ADVICE[State(state)] for state in reversed(tuple(STATES)) if state not in _OTHERS]
    rows = [_row(advice) for advice in (*urgent_first, ASLEEP)]
    head = "| State | What it means | What to change | What not to do |\n|---|---|---|---|\n"
    return Words(
        title="All states and what to do",
        description="The words of docs/saturation.md. The most urgent state is first; of several that hold, it is the one shown.",
        queries=(),
        width=24,
        height=32,
        text=head + "\n".join(rows) + "\n",
    )


def _row(advice: Advice) -> str:
    cells = (f"**{advice.title}**", advice.meaning, _listed(_changes(advice)), _listed(_avoided(advice)))
    return f"| {' | '.join(cells)} |"


def _listed(sentences: tuple[str, ...]) -> str:
    return "<br>".join(sentences)
