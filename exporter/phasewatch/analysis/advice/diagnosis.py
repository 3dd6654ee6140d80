"""What an engine suffers from, in words: its state combined with what its users notice.

A state says why requests wait, not whether tokens come fast enough. If an objective is missed, the words name the
symptom, its likely cause, and the remedies for that cause. Where two remedies pull a flag in opposite directions, the
faster token wins: remedies that hold only while inter-token latency is within its objective are left out. A warning of
what another remedy asks for is left out too, and so is a symptom's remedy that the state's advice has already.

Pure: the same figures give the same words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from phasewatch.analysis.advice.handbook import Handbook, choose_advice, select_cause
from phasewatch.analysis.advice.remedy import (
    NOTHING_KNOWN,
    Advice,
    Cause,
    Condition,
    Known,
    Remedy,
    list_applicable,
    list_words,
    pull_alike,
)
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.objectives import Objective, Verdict
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load
from phasewatch.analysis.saturation import SaturationState

STALLING_RATIO: Final = 3.0
"""p99 / mean of inter-token latency from which single steps are long rather than all: those with prompts."""

PROMPT_SHARE: Final = 0.5
"""Share of the tokens of a mean step that belong to prompts from which prompts make the steps long."""

MANY_STREAMS: Final = 8.0
"""Mean number of decoding streams from which the batch may make the steps long."""

LONG_CONTEXT: Final = 8192.0
"""Mean tokens held per running request from which reading the KV cache may make the steps long."""

_TOKEN_OBJECTIVES: Final = (Objective.INTER_TOKEN_LATENCY, Objective.DECODE_TOKENS_PER_SECOND)

_UNRELATED: Final = frozenset({SaturationState.IDLE, SaturationState.STUCK})
"""States of an engine that does nothing now, so that the latencies of its window are over."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a diagnosis looks at: figures of one engine over the window.

    Attributes:
        objectives: the objectives that the window decides.
        latencies: its latencies.
        phases: both phases.
        load: queue and KV cache.
    """

    objectives: Mapping[Objective, Verdict]
    latencies: Latencies
    phases: Phases
    load: Load


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Words about an engine.

    Attributes:
        title: state and symptoms in a few words.
        meaning: what is going on, and the likely cause of each symptom.
        change: what to change, what helps at once first.
        avoid: what looks like a remedy but is not.
        missed: whether an objective is missed.
    """

    title: str
    meaning: str
    change: tuple[str, ...]
    avoid: tuple[str, ...]
    missed: bool = False


_SLOW_TOKENS: Final = "slow tokens"


@dataclass(frozen=True, slots=True)
class _Symptom:
    """Something that users notice: its title and meaning as words, and the advice for its cause."""

    title: str
    meaning: str
    advice: Advice


def describe_advice(advice: Advice, known: Known = NOTHING_KNOWN) -> Diagnosis:
    """Words about a condition alone."""
    return Diagnosis(advice.title, advice.meaning, list_words(advice.change, known), list_words(advice.avoid, known))


def diagnose(
    handbook: Handbook, state: SaturationState, figures: Figures, *, asleep: bool, version: str | None
) -> Diagnosis:
    """Words about an engine.

    Args:
        handbook: the advice for its kind of server.
        state: saturation state.
        figures: figures over the window.
        asleep: whether the engine was put to sleep.
        version: version of the server; None if unknown.
    """
    advice = choose_advice(handbook, state, asleep=asleep)
    known = _find_known(advice, figures, version)
    queued = state is not SaturationState.HEALTHY
    unrelated = state in _UNRELATED or advice is handbook.asleep
    symptoms = [] if unrelated else _find_symptoms(handbook, figures, queued=queued)
    if not symptoms:
        return describe_advice(advice, known)
    change = _list_additional([symptom.advice.change for symptom in symptoms], advice.change, known)
    avoid = _list_additional([symptom.advice.avoid for symptom in symptoms], advice.avoid, known)
    # Slow tokens are felt by everybody who is served; a late first token comes of what the state names.
    tokens_first = symptoms[0].title == _SLOW_TOKENS
    remedies = _select_distinct((*change, *advice.change) if tokens_first else (*advice.change, *change), known)
    warnings = [warning for warning in (*avoid, *advice.avoid) if not any(pull_alike(warning, one) for one in remedies)]
    return Diagnosis(
        title=f"{advice.title}, {'' if queued else 'but '}{' and '.join(symptom.title for symptom in symptoms)}",
        meaning=" ".join((advice.meaning, *(symptom.meaning for symptom in symptoms))),
        change=list_words(remedies, known),
        avoid=list_words(tuple(dict.fromkeys(warnings)), known),
        missed=True,
    )


def _find_symptoms(handbook: Handbook, figures: Figures, *, queued: bool) -> list[_Symptom]:
    """What users notice, slow tokens first; `queued` says whether requests wait now."""
    missed = {objective: verdict for objective, verdict in figures.objectives.items() if not verdict.met}
    tokens = [_describe_verdict(objective, missed[objective]) for objective in _TOKEN_OBJECTIVES if objective in missed]
    symptoms = []
    if tokens:
        token_cause = find_token_cause(figures)
        meaning = " ".join((*tokens, f"Likely cause: {_TOKEN_CAUSES[token_cause]}."))
        symptoms.append(_Symptom(_SLOW_TOKENS, meaning, _choose_token_advice(handbook, token_cause)))
    if Objective.TIME_TO_FIRST_TOKEN in missed and handbook.slow_first_token is not None:
        verdict = _describe_verdict(Objective.TIME_TO_FIRST_TOKEN, missed[Objective.TIME_TO_FIRST_TOKEN])
        cause = find_first_token_cause(figures.latencies)
        advice = select_cause(handbook.slow_first_token, cause)
        symptoms.append(_describe_first_token(verdict, advice, cause, queued=queued))
    return symptoms


def _describe_first_token(verdict: str, advice: Advice, cause: Cause | None, *, queued: bool) -> _Symptom:
    if cause is Cause.QUEUE:
        # The advice on the state says what to do about a queue; one that has drained was a burst.
        advice = replace(advice, change=tuple(remedy for remedy in advice.change if remedy.at_once))
        part = (
            " Most of that is time in the queue."
            if queued
            else " Most of that was time in a queue that has since drained: requests come in bursts."
        )
    else:
        part = "" if cause is None else " Most of that is prefill."
    return _Symptom("a slow first token", verdict + part, advice)


def find_token_cause(figures: Figures) -> Cause:
    """The likely cause of slow tokens; without a sign of any other, decode itself is slow."""
    phases, load, latency = figures.phases, figures.load, figures.latencies.inter_token
    if load.preemptions_per_second:
        return Cause.PREEMPTIONS
    prompts = phases.prefill_throughput_tokens_per_second or 0.0
    decoded = phases.decode_throughput_tokens_per_second or 0.0
    p99 = next((quantile.value for order, quantile in latency.quantiles if order == 0.99), None)  # noqa: PLR2004  # of QUANTILES
    stalls = p99 is not None and latency.mean is not None and p99 >= STALLING_RATIO * latency.mean
    if prompts > 0 and (stalls or prompts >= PROMPT_SHARE * (prompts + decoded)):
        return Cause.SHARED_STEPS
    if (load.context_tokens or 0.0) >= LONG_CONTEXT:
        return Cause.LONG_CONTEXTS
    return Cause.MANY_STREAMS if (phases.decode_streams or 0.0) >= MANY_STREAMS else Cause.FEW_STREAMS


def find_first_token_cause(latencies: Latencies) -> Cause | None:
    """The larger part of the time to first token; None unless both parts are known."""
    queue, prefill = latencies.queue.mean, latencies.prefill.mean
    if queue is None or prefill is None:
        return None
    return Cause.PREFILL if queue < prefill else Cause.QUEUE


_TOKEN_CAUSES: Final[Mapping[Cause, str]] = {
    Cause.PREEMPTIONS: "preemptions, during which streams stand still",
    Cause.SHARED_STEPS: "prompts that are computed in the same steps",
    Cause.LONG_CONTEXTS: "long contexts, whose KV cache every step reads",
    Cause.MANY_STREAMS: "many streams in one batch",
    Cause.FEW_STREAMS: "decode itself, since neither prompts, contexts nor the batch are large",
}


def _choose_token_advice(handbook: Handbook, cause: Cause) -> Advice:
    """The advice on slow tokens; what to change against preemptions stands in the advice on that state."""
    if cause is Cause.PREEMPTIONS:
        return replace(handbook.slow_stream, change=handbook.states[SaturationState.PREEMPTING].change)
    return select_cause(handbook.slow_stream, cause)


def _find_known(advice: Advice, figures: Figures, version: str | None) -> Known:
    """What is known where the words are shown: from the state, and whether tokens come fast enough."""
    verdicts = [figures.objectives[objective] for objective in _TOKEN_OBJECTIVES if objective in figures.objectives]
    if not verdicts:
        return Known(version, advice.holds)
    fast = all(verdict.met for verdict in verdicts)
    return Known(version, advice.holds | {Condition.TOKENS_FAST if fast else Condition.TOKENS_SLOW})


def _list_additional(
    remedies: list[tuple[Remedy, ...]], of_state: tuple[Remedy, ...], known: Known
) -> tuple[Remedy, ...]:
    """The remedies of symptoms that the state's advice does not have already, for the same thing in the same direction."""
    present = list_applicable(of_state, known)
    return tuple(
        remedy for part in remedies for remedy in part if not any(pull_alike(remedy, other) for other in present)
    )


def _select_distinct(remedies: tuple[Remedy, ...], known: Known) -> tuple[Remedy, ...]:
    """Each remedy that applies once. Of several that help at once the first one is enough."""
    at_once = [remedy for remedy in remedies if remedy.at_once][:1]
    others = [remedy for remedy in remedies if not remedy.at_once]
    return tuple(dict.fromkeys(list_applicable((*at_once, *others), known)))


def _describe_verdict(objective: Objective, verdict: Verdict) -> str:
    """What was measured beside what it is compared with, as a sentence."""
    if objective is Objective.DECODE_TOKENS_PER_SECOND:
        return f"A stream gets {verdict.value:.1f} tokens per second; the objective is {verdict.objective:g}."
    name = "inter-token latency" if objective is Objective.INTER_TOKEN_LATENCY else "time to first token"
    value, limit = (_format_seconds(seconds) for seconds in (verdict.value, verdict.objective))
    return f"p{100 * (verdict.order or 0.0):g} {name} is {value}; the objective is {limit}."


def _format_seconds(seconds: float) -> str:
    """A latency with three digits, in ms below a second, so that it differs visibly from its objective."""
    if seconds < 0.9995:  # noqa: PLR2004  # what is not rounded to 1 s
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"  # noqa: PLR2004  # three digits
