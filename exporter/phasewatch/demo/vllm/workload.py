"""Those who use the simulated vLLM: what they ask for, and when."""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

Range = tuple[int, int]
"""The least and the most, both possible."""


@dataclass(frozen=True, slots=True)
class Workload:
    """People or programs that ask alike. They wait for an answer before they ask again, or come at a rate.

    Attributes:
        users: how many wait for their answers.
        per_second: how many come besides, whatever becomes of those before.
        prompt: tokens of a prompt.
        output: tokens of an answer, after which it ends by itself.
        most: tokens that an answer may have (`max_tokens`).
        think: mean seconds from an answer to the next question of a user.
        shared: tokens with which all prompts begin alike.
        grammar: seconds that the server takes to compile what an answer must look like; (0, 0) for free text.
    """

    prompt: Range
    output: Range
    most: int
    users: int = 0
    per_second: float = 0.0
    think: float = 1.0
    shared: int = 0
    grammar: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request, compared by identity.

    Attributes:
        number: none has the same.
        sent: seconds of the simulation.
        prompt: tokens of the prompt, of which the first `shared` are those of its workload.
        output: tokens that the answer will have.
        most: tokens that it may have.
        grammar: seconds that compiling its grammar takes.
        workload: what it belongs to.
        waits: whether a user waits for it, and will ask again.
    """

    number: int
    sent: float
    prompt: int
    shared: int
    output: int
    most: int
    grammar: float
    workload: Workload
    waits: bool


RAMP: Final = 2.0
"""Seconds within which all users of a workload have begun."""

PATIENCE: Final = 1.0
"""Mean seconds after which a user who got a 503 asks again."""


class Crowd:
    """All who use one server.

    Args:
        random: decides when they come and how much they want.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._coming: list[tuple[float, int, Workload, bool]] = []
        self._order = 0
        self._requests = 0

    def begin(self, workloads: Iterable[Workload], now: float) -> None:
        """Let everybody leave, and others come."""
        self._coming.clear()
        for workload in workloads:
            for _ in range(workload.users):
                self._expect(now + self._random.uniform(0.0, RAMP), workload, waits=True)
            if workload.per_second:
                self._expect(now + self._random.expovariate(workload.per_second), workload, waits=False)

    def next(self) -> float:
        """When the next request comes; infinity if none does."""
        return self._coming[0][0] if self._coming else math.inf

    def take(self) -> Request:
        """The next request."""
        sent, _, workload, waits = heapq.heappop(self._coming)
        if not waits:
            self._expect(sent + self._random.expovariate(workload.per_second), workload, waits=False)
        self._requests += 1
        return Request(
            number=self._requests,
            sent=sent,
            prompt=self._random.randint(*workload.prompt),
            shared=workload.shared,
            output=self._random.randint(*workload.output),
            most=workload.most,
            grammar=self._random.uniform(*workload.grammar),
            workload=workload,
            waits=waits,
        )

    def answered(self, request: Request, now: float) -> None:
        """A request has its answer: whoever waited for it asks again after a while."""
        if request.waits:
            self._expect(now + self._random.expovariate(1 / request.workload.think), request.workload, waits=True)

    def refused(self, request: Request, now: float) -> None:
        """A request was turned away: whoever waits for it tries again."""
        if request.waits:
            self._expect(now + self._random.expovariate(1 / PATIENCE), request.workload, waits=True)

    def _expect(self, when: float, workload: Workload, *, waits: bool) -> None:
        self._order += 1
        heapq.heappush(self._coming, (when, self._order, workload, waits))
