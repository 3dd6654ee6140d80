"""Figures that are computed one by one, and in plain words why some are not."""

from collections.abc import Callable
from typing import Final, TypeVar

from phasewatch.base.errors import PhaseWatchError
from phasewatch.base.units import shown

_Known = TypeVar("_Known")

_LONGEST_SHOWN: Final = 60


class ModelError(PhaseWatchError):
    """A figure of a model cannot be known; the message says what is wrong, and in which file and key."""


def shorten(value: object) -> str:
    """A wrong value in a message, cut if it is long."""
    told = shown(value)
    return told if len(told) <= _LONGEST_SHOWN else f"{told[:_LONGEST_SHOWN]}..."


class Reasons:
    """Why figures of a model are not known, in the order in which it was found, each reason once."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def attempt(self, compute: Callable[[], _Known]) -> _Known | None:
        """What is computed, or None and the reason is kept."""
        try:
            return compute()
        except ModelError as error:
            self.add(str(error))
            return None

    def add(self, reason: str) -> None:
        """Keep a reason."""
        self._told[reason] = None

    def as_tuple(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._told)
