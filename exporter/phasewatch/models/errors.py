"""The error of the models package, and the reasons why figures of a model are unknown."""

from collections.abc import Callable
from typing import Final, TypeVar

from phasewatch.base.errors import PhaseWatchError
from phasewatch.base.units import describe_value

_Figure = TypeVar("_Figure")

_MAX_VALUE_LENGTH: Final = 60


class ModelError(PhaseWatchError):
    """A figure of a model cannot be determined; the message names the file, the key and what is wrong."""


def shorten(value: object) -> str:
    """An invalid value as text for a message, shortened to 60 characters."""
    text = describe_value(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


class Reasons:
    """Reasons why figures of a model are unknown, in order of discovery, without duplicates."""

    def __init__(self) -> None:
        self._reasons: dict[str, None] = {}

    def attempt(self, compute: Callable[[], _Figure]) -> _Figure | None:
        """The result of `compute`; None if it raises a ModelError, whose message is added as a reason."""
        try:
            return compute()
        except ModelError as error:
            self.add(str(error))
            return None

    def add(self, reason: str) -> None:
        """Add a reason, unless it is there already."""
        self._reasons[reason] = None

    def as_tuple(self) -> tuple[str, ...]:
        """All reasons in order."""
        return tuple(self._reasons)
