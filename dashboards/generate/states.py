"""States of a server as words, colours and numbers, the same on every dashboard, and the PromQL that yields them."""

from collections.abc import Iterable, Mapping
from typing import Final

from dashboards.generate.colours import BAD, GOOD, GREY, KV_CACHE, PREFILL, QUEUE
from dashboards.generate.model import ValueMapping
from dashboards.generate.queries import (
    BY_ENGINE,
    ENGINE_MATCHERS,
    NAMES_OF_MODEL_METRICS,
    TARGET_MATCHERS,
    select_engines,
    select_targets,
)
from phasewatch.analysis.advice.handbook import STATE_TITLES
from phasewatch.analysis.saturation import SaturationState

_COLOURS: Final[Mapping[SaturationState, str]] = {
    SaturationState.IDLE: GREY,
    SaturationState.HEALTHY: GOOD,
    SaturationState.CONCURRENCY_LIMITED: QUEUE,
    SaturationState.PREFILL_LIMITED: PREFILL,
    SaturationState.DEFERRED: "#14b8a6",
    SaturationState.KV_CACHE_FULL: KV_CACHE,
    SaturationState.PREEMPTING: BAD,
    SaturationState.SHEDDING: "#c2185b",
    SaturationState.STUCK: "dark-red",
}
"""From the least to the most urgent, so that the worst of several has the highest number."""

SLOW_TOKENS, SLOW_FIRST_TOKEN, SLOW_BOTH = "slow_tokens", "slow_first_token", "slow_both"
"""What an engine without a queue suffers from if it misses an objective."""

ALSO_SLOW_TOKENS, ALSO_SLOW_FIRST_TOKEN = "also_slow_tokens", "also_slow_first_token"
"""What an engine with a queue suffers from as well."""

IN_MEMORY, DOWN, UNKNOWN = "in_memory", "down", "unknown"
"""Shown like the states of an engine: a model that an Ollama has loaded and that is in no state, a target that is down, one
without samples.
"""

STATES: Final[Mapping[str, ValueMapping]] = {
    IN_MEMORY: ValueMapping("In memory", "#3d71d9"),
    **{state.value: ValueMapping(STATE_TITLES[state], colour) for state, colour in _COLOURS.items()},
    DOWN: ValueMapping("Down", "#7f1d1d"),
    UNKNOWN: ValueMapping("Not known", "dark-purple"),
}
"""Text and colour by state, from the least to the most urgent."""

SYMPTOMS: Final[Mapping[str, ValueMapping]] = {
    SLOW_TOKENS: ValueMapping("No queue, but slow tokens", "#b45309"),
    SLOW_FIRST_TOKEN: ValueMapping("No queue, but a slow first token", "#b45309"),
    SLOW_BOTH: ValueMapping("No queue, but slow tokens and a slow first token", "#b45309"),
    ALSO_SLOW_TOKENS: ValueMapping("Slow tokens beside the queue", "#b45309"),
    ALSO_SLOW_FIRST_TOKEN: ValueMapping("A slow first token beside the queue", "#b45309"),
}
"""Text and colour by symptom."""

MET: Final[Mapping[str, ValueMapping]] = {"1": ValueMapping("Met", GOOD), "0": ValueMapping("Missed", BAD)}
"""Values of llm_objective_met."""

_CODES: Final[Mapping[str, int]] = {state: code for code, state in enumerate(STATES, start=-1)}
STATE_CODES: Final[Mapping[str, ValueMapping]] = {str(_CODES[state]): mapping for state, mapping in STATES.items()}
"""Text and colour by the number of a state."""

UP: Final[Mapping[str, ValueMapping]] = {"1": ValueMapping("Up", GOOD), "0": STATES[DOWN]}
"""Values of llm_target_up, and of Prometheus' `up`."""

TARGET_LOOKBACK: Final = "1h"
"""How long a target without samples is shown as `Not known` before it disappears."""


def query_states() -> Mapping[str, str]:
    """PromQL for each of STATES: everything that is in it now, with the number of the state as value.

    An engine that two exporters report in two states counts as in the more urgent one. A target that is down or unknown
    has no models; it is left out if it had other models within TARGET_LOOKBACK and none of the chosen ones.
    """
    loaded = f"{select_engines('llm_model_loaded')} == 1\n    unless {select_engines('llm_saturation_state')}"
    queries = {IN_MEMORY: f"{_CODES[IN_MEMORY]} * ({loaded})"}
    states = [state.value for state in _COLOURS]
    for index, state in enumerate(states):
        in_state = f"{select_engines('llm_saturation_state', state=state)} == 1"
        more_urgent = "|".join(states[index + 1 :])
        if more_urgent:
            in_state += (
                f"\n    unless max by ({BY_ENGINE}) "
                f'(llm_saturation_state{{{ENGINE_MATCHERS}, state=~"{more_urgent}"}}) == 1'
            )
        queries[state] = f"{_CODES[state]} * ({in_state})"
    up = select_targets("llm_target_up")
    recently_up = f"max by (target) (last_over_time(llm_target_up{{{TARGET_MATCHERS}}}[{TARGET_LOOKBACK}]))"
    queries[DOWN] = f"{_CODES[DOWN]} + ({up} == 0{_exclude_other_models()})"
    queries[UNKNOWN] = f"{_CODES[UNKNOWN]} + 0 * ({recently_up} unless {up}{_exclude_other_models()})"
    return queries


def _exclude_other_models() -> str:
    chosen, others = (
        "group by (target) (last_over_time("
        f'{{{NAMES_OF_MODEL_METRICS}, {TARGET_MATCHERS}, model_name{operator}"$model_name"}}[{TARGET_LOOKBACK}]))'
        for operator in ("=~", "!~")
    )
    return f"\n    unless on (target) ({others}\n      unless on (target) {chosen})"


def query_state_codes() -> str:
    """The state of each engine, and of each target that is down or unknown, as its number in STATE_CODES."""
    return _join_alternatives(expr for state, expr in query_states().items() if state != IN_MEMORY)


def query_queued() -> str:
    """PromQL for the engines with a queue, whatever limits them, with a number between those of states with and without one."""
    calm = f"{SaturationState.IDLE}|{SaturationState.HEALTHY}|{SaturationState.STUCK}"
    code = (_CODES[SaturationState.HEALTHY] + _CODES[SaturationState.CONCURRENCY_LIMITED]) / 2
    return f'{code} * (max by ({BY_ENGINE}) (llm_saturation_state{{{ENGINE_MATCHERS}, state!~"{calm}"}}) == 1)'


def query_all_state_codes() -> str:
    """The same with the models that an Ollama has loaded, the most urgent first."""
    return f"sort_desc({_join_alternatives(query_states().values())})"


def _join_alternatives(exprs: Iterable[str]) -> str:
    return "\n  or ".join(exprs)
