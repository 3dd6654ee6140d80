"""What /slots shows of a slot."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot at a moment.

    Attributes:
        task: number of its request, or of the last one; None before the first.
        is_processing: whether it is busy.
        held: tokens in it: the prompt up to and including the batch at work, and the generated ones.
        processed: prompt tokens computed for its request; 0 once that has ended.
        cached: prompt tokens taken from the cache; 0 once the request has ended.
        decoded: tokens generated for its request; 0 once that has ended.
        limit: limit on the generated tokens; -1 for none.
        has_next: whether the newest token was not the last one.
    """

    task: int | None = None
    is_processing: bool = False
    held: int = 0
    processed: int = 0
    cached: int = 0
    decoded: int = 0
    limit: int = -1
    has_next: bool = True
