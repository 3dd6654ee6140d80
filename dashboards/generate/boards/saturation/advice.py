"""Saturation: the advice for the state of each engine, and for all states."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from dashboards.generate.model import Text
from dashboards.generate.queries import BY_ENGINE, ENGINE_MATCHERS, TARGET_MATCHERS
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
from phasewatch.analysis.advice.handbook import Handbook
from phasewatch.analysis.advice.remedy import Advice, Known, Remedy, list_applicable, list_words
from phasewatch.analysis.objectives import Objective
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends import list_handbooks
from phasewatch.backends.vllm import VLLM

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
        "An Ollama has this model in memory. It does not report what waits, so what limits it is not known.",
        (Remedy("See the board Ollama."),),
    ),
}
"""Advice for entries of STATES that are not states of an engine."""


def _join_complaints(stream: Advice, first_token: Advice) -> Advice:
    """Both complaints, without what would make slow tokens slower; one remedy that helps at once is enough."""
    late = list_applicable(first_token.change, Known(conditions=stream.holds))
    return Advice(
        "",
        f"{stream.meaning} {first_token.meaning}",
        (*stream.change, *(remedy for remedy in late if not remedy.at_once)),
        (*stream.avoid, *first_token.avoid),
    )


def _list_complaints(handbook: Handbook) -> Mapping[str, Advice]:
    """Advice for an engine that misses an objective: without a queue in place of the state's, else beside it."""
    stream, first_token = handbook.slow_stream, handbook.slow_first_token
    complaints = {SLOW_TOKENS: stream, ALSO_SLOW_TOKENS: stream}
    if first_token is not None:
        complaints |= {
            SLOW_FIRST_TOKEN: first_token,
            SLOW_BOTH: _join_complaints(stream, first_token),
            ALSO_SLOW_FIRST_TOKEN: first_token,
        }
    return {symptom: replace(advice, title=SYMPTOMS[symptom].text) for symptom, advice in complaints.items()}


def _list_advice(handbook: Handbook) -> Mapping[str, Advice]:
    """Advice by state and symptom."""
    return {**{state.value: advice for state, advice in handbook.states.items()}, **_list_complaints(handbook)}


_DEFAULT: Final = _list_advice(VLLM.handbook)
_OTHER_SERVERS: Final = {
    name: _list_advice(handbook) for name, handbook in list_handbooks().items() if name != VLLM.name
}
"""Advice for other kinds of servers by their backend's name, and in it by state and symptom."""

_TITLES: Final = {"llamacpp": "States of a llama-server and what to do", "ollama": "States of an Ollama and what to do"}
"""Titles of the panels with all the advice for other kinds of servers."""


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
    parts = [
        part
        for state, whole in query_states().items()
        for condition, expr in (
            _split_by_objectives(whole) if state == SaturationState.HEALTHY else {state: whole}
        ).items()
        for part in _split_by_server(expr, condition)
    ]
    parts += [
        part
        for symptom, missed in ((ALSO_SLOW_TOKENS, _SLOW_TOKENS), (ALSO_SLOW_FIRST_TOKEN, _SLOW_FIRST_TOKEN))
        for part in _split_by_server(f"({query_queued()}\n    and on ({BY_ENGINE}) {missed})", symptom)
    ]
    return "sort_desc(" + "\n  or ".join(parts) + ")"


def _split_by_server(expr: str, condition: str) -> Iterator[str]:
    """PromQL for the engines in a condition with their advice as labels, apart for each kind of server with its own."""
    if condition in _OTHERS:
        yield _label_advice(expr, condition, _OTHERS[condition])
        return
    own = {
        name: table[condition]
        for name, table in _OTHER_SERVERS.items()
        if table.get(condition, _DEFAULT[condition]) != _DEFAULT[condition]
    }
    rest = f"({expr}\n    unless on (target) {_select_servers('|'.join(own))})" if own else expr
    yield _label_advice(rest, condition, _DEFAULT[condition])
    for name, advice in own.items():
        yield _label_advice(f"({expr}\n    and on (target) {_select_servers(name)})", condition, advice)


def _select_servers(backends: str) -> str:
    return f'group by (target) (llm_target_up{{{TARGET_MATCHERS}, backend=~"{backends}"}})'


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


def build_advice() -> tuple[Text, ...]:
    """The advice for every state, the most urgent first, for a vLLM and for each other kind of server."""
    asleep = (VLLM.handbook.asleep,) if VLLM.handbook.asleep is not None else ()
    return (
        _build_text("All states and what to do", _DEFAULT, asleep, height=48),
        *(_build_text(_TITLES[name], table, (), height=24) for name, table in _OTHER_SERVERS.items()),
    )


def _build_text(title: str, table: Mapping[str, Advice], others: tuple[Advice, ...], *, height: int) -> Text:
    urgent_first = [table[state] for state in reversed(tuple(STATES)) if state in table]
    symptoms = [table[symptom] for symptom in (SLOW_TOKENS, SLOW_FIRST_TOKEN) if symptom in table]
    rows = [_format_table_row(advice) for advice in (*urgent_first, *others, *symptoms)]
    head = "| State | What it means | What to change | What not to do |\n|---|---|---|---|\n"
    return Text(
        title=title,
        description="The words of docs/saturation.md. The most urgent state is first; of several that hold, it is the one shown.",
        width=24,
        height=height,
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
