"""Saturation: the advice for the state of each engine, and for all states."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dashboards.generate.model import Text
from dashboards.generate.queries import BY_ENGINE, ENGINE_MATCHERS
from dashboards.generate.states import (
    ALSO_SLOW_FIRST_TOKEN,
    ALSO_SLOW_TOKENS,
    DOWN,
    IN_MEMORY,
    SLOW_BOTH,
    SLOW_FIRST_TOKEN,
    SLOW_TOKENS,
    STATES,
    SYMPTOMS,
    UNKNOWN,
    query_queued,
    query_states,
)
from phasewatch.analysis.advice.remedy import Advice, Known, Remedy, list_applicable, list_words
from phasewatch.analysis.objectives import Objective
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN as FIRST_TOKEN
from phasewatch.backends.vllm.complaint_advice import SLOW_STREAM
from phasewatch.backends.vllm.state_advice import ADVICE, ASLEEP

_NO_CHANGE: Final = "Nothing to change."
_NOTHING_TO_AVOID: Final = "\N{EN DASH}"
_OTHERS: Final = {
    UNKNOWN: Advice(
        STATES[UNKNOWN].text,
        "No exporter reports this server any more: PhaseWatch is down, or the server was taken out of its configuration.",
        (Remedy("Is PhaseWatch running, and does Prometheus reach it? See the board Exporter."),),
        (Remedy("Do not restart the server for this: it may be well."),),
    ),
    DOWN: Advice(
        STATES[DOWN].text,
        "The server does not answer, or not as it should.",
        (
            Remedy(
                "Is it running, and is its address right? The board Exporter and the log of PhaseWatch have the reason."
            ),
        ),
    ),
    IN_MEMORY: Advice(
        STATES[IN_MEMORY].text,
        "An Ollama has this model in memory. It does not report what waits.",
        (Remedy("See the board Ollama."),),
    ),
}
"""Advice for entries of STATES that are not states of an engine."""


def _join_complaints() -> Advice:
    """Both complaints, without what would make slow tokens slower; one remedy that helps at once is enough."""
    late = list_applicable(FIRST_TOKEN.change, Known(conditions=SLOW_STREAM.holds))
    return Advice(
        "",
        f"{SLOW_STREAM.meaning} {FIRST_TOKEN.meaning}",
        (*SLOW_STREAM.change, *(remedy for remedy in late if not remedy.at_once)),
        (*SLOW_STREAM.avoid, *FIRST_TOKEN.avoid),
    )


_COMPLAINTS: Final[Mapping[str, Advice]] = {
    symptom: replace(advice, title=SYMPTOMS[symptom].text)
    for symptom, advice in {
        SLOW_TOKENS: SLOW_STREAM,
        SLOW_FIRST_TOKEN: FIRST_TOKEN,
        SLOW_BOTH: _join_complaints(),
        ALSO_SLOW_TOKENS: SLOW_STREAM,
        ALSO_SLOW_FIRST_TOKEN: FIRST_TOKEN,
    }.items()
}
"""Advice for an engine that misses an objective: without a queue in place of the state's, else beside it."""


def _list_changes(advice: Advice) -> tuple[str, ...]:
    return list_words(advice.change) or (_NO_CHANGE,)


def _list_avoided(advice: Advice) -> tuple[str, ...]:
    return list_words(advice.avoid) or (_NOTHING_TO_AVOID,)


_COLUMNS: Final[Mapping[str, Callable[[Advice], tuple[str, ...]]]] = {
    "meaning": lambda advice: (advice.meaning,),
    "change": _list_changes,
    "avoid": _list_avoided,
}


def query_advice() -> str:
    """PromQL: the state of everything, the most urgent first, with its advice as labels; and missed objectives beside a queue.

    Value mappings would not do: Grafana sizes table rows by the values and not by the texts that replace them.
    """
    by_state = {**{state.value: advice for state, advice in ADVICE.items()}, **_OTHERS, **_COMPLAINTS}
    parts = [
        _label_advice(expr, condition, by_state[condition])
        for state, whole in query_states().items()
        for condition, expr in (
            _split_by_objectives(whole) if state == SaturationState.HEALTHY else {state: whole}
        ).items()
    ]
    parts += [
        _label_advice(f"({query_queued()}\n    and on ({BY_ENGINE}) {missed})", symptom, by_state[symptom])
        for symptom, missed in ((ALSO_SLOW_TOKENS, _SLOW_TOKENS), (ALSO_SLOW_FIRST_TOKEN, _SLOW_FIRST_TOKEN))
    ]
    return "sort_desc(" + "\n  or ".join(parts) + ")"


def _split_by_objectives(no_queue: str) -> Mapping[str, str]:
    """PromQL for the engines without a queue: those that miss an objective, by what is slow, and the others."""
    both, also, neither = f"and on ({BY_ENGINE})", f"or on ({BY_ENGINE})", f"unless on ({BY_ENGINE})"
    return {
        SLOW_TOKENS: f"({no_queue}\n    {both} {_SLOW_TOKENS} {neither} {_SLOW_FIRST_TOKEN})",
        SLOW_FIRST_TOKEN: f"({no_queue}\n    {both} {_SLOW_FIRST_TOKEN} {neither} {_SLOW_TOKENS})",
        SLOW_BOTH: f"({no_queue}\n    {both} {_SLOW_TOKENS} {both} {_SLOW_FIRST_TOKEN})",
        SaturationState.HEALTHY: f"({no_queue}\n    {neither} ({_SLOW_TOKENS} {also} {_SLOW_FIRST_TOKEN}))",
    }


def _query_missed(*objectives: Objective) -> str:
    return f'(min by ({BY_ENGINE}) (llm_objective_met{{{ENGINE_MATCHERS}, objective=~"{"|".join(objectives)}"}}) == 0)'


_SLOW_TOKENS: Final = _query_missed(Objective.INTER_TOKEN_LATENCY, Objective.DECODE_TOKENS_PER_SECOND)
_SLOW_FIRST_TOKEN: Final = _query_missed(Objective.TIME_TO_FIRST_TOKEN)
"""PromQL for the engines that miss an objective about tokens, or that about the first one."""


def _label_advice(expr: str, state: str, advice: Advice) -> str:
    labels = {
        "state": state,
        **{label: "\n".join(list_sentences(advice)) for label, list_sentences in _COLUMNS.items()},
    }
    for label, text in labels.items():
        expr = f'label_replace({expr}, "{label}", {json.dumps(text, ensure_ascii=False)}, "", "")'
    return expr


def build_advice() -> Text:
    """The advice for every state, the most urgent first."""
    urgent_first = [ADVICE[SaturationState(state)] for state in reversed(tuple(STATES)) if state not in _OTHERS]
    symptoms = [_COMPLAINTS[SLOW_TOKENS], _COMPLAINTS[SLOW_FIRST_TOKEN]]
    rows = [_format_table_row(advice) for advice in (*urgent_first, ASLEEP, *symptoms)]
    head = "| State | What it means | What to change | What not to do |\n|---|---|---|---|\n"
    return Text(
        title="All states and what to do",
        description="The words of docs/saturation.md. The most urgent state is first; of several that hold, it is the one shown.",
        width=24,
        height=48,
        content=head + "\n".join(rows) + "\n",
    )


def _format_table_row(advice: Advice) -> str:
    cells = (
        f"**{advice.title}**",
        advice.meaning,
        _join_sentences(_list_changes(advice)),
        _join_sentences(_list_avoided(advice)),
    )
    return f"| {' | '.join(cells)} |"


def _join_sentences(sentences: tuple[str, ...]) -> str:
    return "<br>".join(sentences)
