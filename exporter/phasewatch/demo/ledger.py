"""What truly happened inside a simulated engine, step by step: what an exporter's figures are held against.

It is written where things happen, not where a server counts them: prompt tokens as they are computed, preemptions as
they occur, streams' waits as their users feel them.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

KEPT_SECONDS: Final = 90.0
"""How far back the ledger goes: a window of a minute, and some."""


@dataclass(frozen=True, slots=True)
class First:
    """The first token of a request.

    Attributes:
        waited: seconds since the request was sent.
        computed: tokens of its prompt that were computed.
        cached: tokens of its prompt that were found in the cache.
    """

    waited: float
    computed: int
    cached: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine.

    Attributes:
        end: when it was over, in seconds of the simulation.
        seconds: that it took.
        prompt_tokens: computed in it, of prompts that had not been computed before.
        again: tokens computed in it for the second time, after a preemption.
        read_bytes: that it read of weights and KV cache.
        operations: that it took.
        running: requests that had been admitted.
        waiting: requests that had not, at its beginning.
        preempted: requests thrown out at its beginning.
        firsts: first tokens that it put out.
        gaps: of all further tokens: seconds since the one before of its stream, and how many came after as many.
    """

    end: float
    seconds: float
    prompt_tokens: int
    again: int
    read_bytes: float
    operations: float
    running: int
    waiting: int
    preempted: int
    firsts: tuple[First, ...]
    gaps: tuple[tuple[float, int], ...]


class Ledger:
    """The steps of the last `KEPT_SECONDS`."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def record(self, step: Step) -> None:
        """Note a step that is over."""
        self._steps.append(step)
        while self._steps[0].end < step.end - KEPT_SECONDS:
            self._steps.popleft()

    def between(self, start: float, end: float) -> tuple[Step, ...]:
        """The steps that ended after `start` and not after `end`."""
        return tuple(step for step in self._steps if start < step.end <= end)
