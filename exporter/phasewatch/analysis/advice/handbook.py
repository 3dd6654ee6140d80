"""The advice for one kind of server, as its backend brings it, and what is the same for every kind: titles and calm states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from phasewatch.analysis.advice.remedy import Advice, Cause
from phasewatch.analysis.saturation import SaturationState

STATE_TITLES: Final[Mapping[SaturationState, str]] = {
    SaturationState.IDLE: "Idle",
    SaturationState.HEALTHY: "No queue",
    SaturationState.KV_CACHE_FULL: "KV cache full",
    SaturationState.PREEMPTING: "Preempting",
    SaturationState.CONCURRENCY_LIMITED: "All slots taken",
    SaturationState.PREFILL_LIMITED: "Prefill limited",
    SaturationState.DEFERRED: "Deferred",
    SaturationState.STUCK: "Stuck",
    SaturationState.SHEDDING: "Shedding load",
}
"""Each state in a few words, whatever the kind of server."""

CALM_ADVICE: Final[Mapping[SaturationState, Advice]] = {
    SaturationState.IDLE: Advice(
        STATE_TITLES[SaturationState.IDLE], "No request runs or waits, and none did a moment ago."
    ),
    SaturationState.HEALTHY: Advice(
        STATE_TITLES[SaturationState.HEALTHY],
        "Requests are served as they come; what waits does not wait for long. It says nothing about speed; see the objectives.",
    ),
}
"""States in which nothing has to be changed."""


@dataclass(frozen=True, slots=True)
class Handbook:
    """The advice for one kind of server.

    Attributes:
        states: advice on each state that its engines can be in.
        slow_stream: advice on slow tokens.
        slow_first_token: advice on a slow first token; None where the first token is not timed.
        asleep: advice on an engine that was put to sleep while it has requests; None where that does not happen.
    """

    states: Mapping[SaturationState, Advice]
    slow_stream: Advice
    slow_first_token: Advice | None = None
    asleep: Advice | None = None


def choose_advice(handbook: Handbook, state: SaturationState, *, asleep: bool) -> Advice:
    """The advice on the state of an engine. A sleeping engine without running requests gets the advice on sleep."""
    waiting = state in {SaturationState.STUCK, SaturationState.DEFERRED, SaturationState.IDLE}
    return handbook.asleep if asleep and waiting and handbook.asleep is not None else handbook.states[state]


def list_complaints(handbook: Handbook) -> Mapping[str, Advice]:
    """The advice on what users complain about, by name."""
    complaints = {"slow_first_token": handbook.slow_first_token, "slow_stream": handbook.slow_stream}
    return {name: advice for name, advice in complaints.items() if advice is not None}


def select_cause(complaint: Advice, cause: Cause | None) -> Advice:
    """A complaint with the remedies that help with one cause or with any; whole without a cause."""
    if cause is None:
        return complaint
    change, avoid = (
        tuple(remedy for remedy in remedies if remedy.cause in {None, cause})
        for remedies in (complaint.change, complaint.avoid)
    )
    return replace(complaint, change=change, avoid=avoid)
