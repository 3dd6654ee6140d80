"""The newest steps of a simulated engine, from which its truth over any interval follows."""

from collections import deque
from typing import Final, Generic, Protocol, TypeVar

KEPT_SECONDS: Final = 90.0
"""How far back the ledger goes: a window of a minute, with some margin."""


class Step(Protocol):
    """A step of an engine."""

    @property
    def end(self) -> float:
        """When it ended, in seconds of the simulation."""


AnyStep = TypeVar("AnyStep", bound=Step)


class StepLedger(Generic[AnyStep]):
    """The steps of the last `KEPT_SECONDS`."""

    def __init__(self) -> None:
        self._steps: deque[AnyStep] = deque()

    def record(self, step: AnyStep) -> None:
        """Add a completed step."""
        self._steps.append(step)
        while self._steps[0].end < step.end - KEPT_SECONDS:
            self._steps.popleft()

    def select_between(self, start: float, end: float) -> tuple[AnyStep, ...]:
        """The steps that ended in (start, end]."""
        return tuple(step for step in self._steps if start < step.end <= end)
