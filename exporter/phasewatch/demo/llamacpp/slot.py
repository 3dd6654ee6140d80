"""A slot of a simulated llama-server: the request in it and what it keeps of the last one."""

from dataclasses import dataclass

from phasewatch.demo.common.workload import Request, Workload
from phasewatch.demo.llamacpp.slot_view import SlotView


@dataclass(slots=True, eq=False, kw_only=True)
class Slot:
    """A slot. Times are seconds of the simulation.

    Attributes:
        number: its index.
        request: the request in it; None if it is idle.
        aborted: whether the client of the request has disconnected.
        task: number of the request, or of the last one; None before the first.
        cached_prompt: workload of the last request, whose shared prefix is in the cache; None before the first.
        begun: whether the first batch of the prompt has begun.
        cached: prompt tokens taken from the cache.
        processed: prompt tokens computed.
        batched: prompt tokens in the batch at work.
        decoded: tokens generated.
        held_before: tokens that it holds of the last request.
        limit: limit on the tokens of the request, or of the last one.
        has_next: whether the newest token was not the last one.
        first_token_at: when the first token came.
        last_token_at: when the newest token came.
        last_used: when its last request ended.
    """

    number: int
    request: Request | None = None
    aborted: bool = False
    task: int | None = None
    cached_prompt: Workload | None = None
    begun: bool = False
    cached: int = 0
    processed: int = 0
    batched: int = 0
    decoded: int = 0
    held_before: int = 0
    limit: int = -1
    has_next: bool = True
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    last_used: float = -1.0

    def take(self, request: Request, task: int) -> None:
        """Begin a request."""
        self.request, self.task, self.limit = request, task, request.max_tokens
        self.aborted = self.begun = False

    def count_left(self) -> int:
        """Prompt tokens that are neither cached nor computed."""
        return 0 if self.request is None else self.request.prompt - self.cached - self.processed

    def begin_prompt(self) -> int:
        """Look the prompt up in the slot's cache; the tokens found there. The last one is always computed."""
        assert self.request is not None  # noqa: S101  # only a busy slot has a prompt
        self.begun = True
        if self.cached_prompt is not None:
            shared = self.request.shared_prefix if self.cached_prompt is self.request.workload else 0
            # Every prompt begins with the token for the beginning of a text.
            self.cached = min(max(1, shared), self.request.prompt - 1)
        return self.cached

    def release(self, now: float) -> None:
        """End the request. Its tokens stay in the cache, but for the newest one, which was never computed."""
        assert self.request is not None  # noqa: S101  # as above
        self.held_before = self.cached + self.processed + max(0, self.decoded - 1)
        self.cached_prompt, self.last_used = self.request.workload, now
        self.request, self.has_next = None, False
        self.cached = self.processed = self.batched = self.decoded = 0

    def forget(self) -> None:
        """Lose the cache and all knowledge of earlier requests, as in a sleep."""
        self.task, self.cached_prompt, self.held_before = None, None, 0
        self.has_next, self.limit = True, -1

    def view(self) -> SlotView:
        """What /slots shows of it."""
        held = self.cached + self.processed + self.batched + self.decoded
        return SlotView(
            task=self.task,
            is_processing=self.request is not None,
            held=held if self.begun and self.request is not None else self.held_before,
            processed=self.processed,
            cached=self.cached,
            decoded=self.decoded,
            limit=self.limit,
            has_next=self.has_next,
        )
