"""What is refused, as a value, so that a table of refusals can be compared row by row."""

from collections.abc import Callable
from typing import Any


def refusal(error: type[Exception], call: Callable[..., Any], *arguments: object) -> str | None:
    """The message of the error that a call raises, None if it raises none."""
    try:
        call(*arguments)
    except error as refused:
        return str(refused)
    return None
