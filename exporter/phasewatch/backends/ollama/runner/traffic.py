"""Tells users' requests from our own probe in the slots of a child. Pure."""

from collections.abc import Sequence
from typing import Protocol


class SlotUse(Protocol):
    """What is needed of a slot: whether it is busy, and the number of its newest request, None before the first."""

    @property
    def busy(self) -> bool | None:
        """Whether it works on a request; None if unknown."""

    @property
    def request(self) -> int | None:
        """Number of its request, kept after the end of the request."""


def serves_users(before: Sequence[SlotUse] | None, slots: Sequence[SlotUse], *, probed: bool) -> bool:
    """Whether a request of a user runs, or has run since the reading before.

    A slot that is idle at two readings has served somebody in between if its request is another one.

    Args:
        before: slots of the same child at the reading before; None for its first reading.
        slots: its slots now.
        probed: whether a probe of its model was under way at any time since the reading before: one slot is ours.
    """
    known = {slot.request for slot in (slots if before is None else before)} | {None}
    used = sum(bool(slot.busy) or slot.request not in known for slot in slots)
    return used > probed
