"""What a server is doing, as numbers, words and colours: the same on every board."""

from collections.abc import Iterable, Mapping
from typing import Final

from dashboards.generate.model import Shown
from dashboards.generate.pack import BAD, CACHE, GOOD, OF_ENGINE, OF_TARGET, PREFILL, QUEUE
from phasewatch.analysis.advice import ADVICE
from phasewatch.analysis.saturation import State

_COLOURS: Final[Mapping[State, str]] = {
    State.IDLE: "#6e7687",
    State.HEALTHY: GOOD,
    State.CONCURRENCY_LIMITED: QUEUE,
    State.PREFILL_LIMITED: PREFILL,
    State.DEFERRED: "#14b8a6",
    State.KV_CACHE_FULL: CACHE,
    State.PREEMPTING: BAD,
    State.SHEDDING: "#c2185b",
    State.STUCK: "dark-red",
}
"""The least urgent state first, so that the worst of several has the highest number."""

IN_MEMORY, DOWN, UNKNOWN = "in_memory", "down", "unknown"
"""What is no state of an engine: a model of an Ollama, a server that does not answer, and one of which nobody tells."""

STATES: Final[Mapping[str, Shown]] = {
    IN_MEMORY: Shown("In memory", "#3d71d9"),
    **{state.value: Shown(ADVICE[state].title, colour) for state, colour in _COLOURS.items()},
    DOWN: Shown("Down", "#7f1d1d"),
    UNKNOWN: Shown("Not known", "dark-purple"),
}
_CODES: Final[Mapping[str, int]] = {state: code for code, state in enumerate(STATES, start=-1)}
STATE_CODES: Final[Mapping[str, Shown]] = {str(_CODES[state]): shown for state, shown in STATES.items()}
"""States as numbers, the least urgent first."""

_ENGINE: Final = "target, model_name, engine"
SEEN: Final = "1h"
"""For so long a server of which nobody tells any more is missed; then it counts as removed."""


def by_state() -> Mapping[str, str]:
    """For each of STATES what is in it now, with its number as value.

    Of an engine that two exporters see in two states the more urgent one is taken. A server that is down or not known has
    no model; it is left out where the models that it had an hour ago were not chosen.
    """
    found = {IN_MEMORY: f"{_CODES[IN_MEMORY]} * (max by ({_ENGINE}) (llm_model_loaded{{{OF_ENGINE}}}) == 1)"}
    states = [state.value for state in _COLOURS]
    for index, state in enumerate(states):
        here = f'max by ({_ENGINE}) (llm_saturation_state{{{OF_ENGINE}, state="{state}"}}) == 1'
        more = "|".join(states[index + 1 :])
        if more:
            here += f'\n    unless max by ({_ENGINE}) (llm_saturation_state{{{OF_ENGINE}, state=~"{more}"}}) == 1'
        found[state] = f"{_CODES[state]} * ({here})"
    known = f"max by (target) (llm_target_up{{{OF_TARGET}}})"
    seen = f"max by (target) (last_over_time(llm_target_up{{{OF_TARGET}}}[{SEEN}]))"
    found[DOWN] = f"{_CODES[DOWN]} + ({known} == 0{_of_other_models()})"
    found[UNKNOWN] = f"{_CODES[UNKNOWN]} + 0 * ({seen} unless {known}{_of_other_models()})"
    return found


def _of_other_models() -> str:
    models = '__name__=~"llm_requests_running|llm_model_loaded"'
    chosen, others = (
        f'group by (target) (last_over_time({{{models}, {OF_TARGET}, model_name{operator}"$model_name"}}[{SEEN}]))'
        for operator in ("=~", "!~")
    )
    return f"\n    unless on (target) ({others}\n      unless on (target) {chosen})"


def state_code() -> str:
    """The state of each engine, and of each server that is down or not known, as its number in STATE_CODES."""
    return _either(expr for state, expr in by_state().items() if state != IN_MEMORY)


def states_by_urgency() -> str:
    """The same, and the models that an Ollama has in memory; the most urgent are first."""
    return f"sort_desc({_either(by_state().values())})"


def _either(exprs: Iterable[str]) -> str:
    return "\n  or ".join(exprs)
