"""Figures that are computed one by one, and in plain words why some are not."""

from collections.abc import Callable
from typing import TypeVar

from phasewatch.models.fields import ModelError

_Known = TypeVar("_Known")


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

    def told(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._told)
