"""The clients of a simulated server: what they request, and when."""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

Range = tuple[int, int]
"""Minimum and maximum, both inclusive."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Clients with similar requests: users who wait for a response before they ask again, and arrivals at a rate.

    Attributes:
        prompt: prompt tokens.
        output: output tokens, after which the response stops.
        max_tokens: limit on the output tokens.
        users: users who wait for their responses.
        per_second: rate of additional requests that are independent of responses.
        think_seconds: mean time between a response and the user's next request.
        shared_prefix: tokens that all prompts have in common.
        grammar_seconds: time to compile the grammar of a structured output; (0, 0) for free text.
    """

    prompt: Range
    output: Range
    max_tokens: int
    users: int = 0
    per_second: float = 0.0
    think_seconds: float = 1.0
    shared_prefix: int = 0
    grammar_seconds: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request, compared by identity.

    Attributes:
        number: unique number.
        sent_at: seconds of the simulation.
        prompt: prompt tokens; the first `shared_prefix` are those of the workload.
        shared_prefix: tokens in common with the other prompts of the workload.
        output: tokens that the response will have.
        max_tokens: limit on the output tokens.
        grammar_seconds: time to compile its grammar.
        workload: the workload that it belongs to.
        has_user: whether a user waits for the response and will ask again.
    """

    number: int
    sent_at: float
    prompt: int
    shared_prefix: int
    output: int
    max_tokens: int
    grammar_seconds: float
    workload: Workload
    has_user: bool


RAMP_SECONDS: Final = 2.0
"""Time within which all users of a workload send their first request."""

RETRY_SECONDS: Final = 1.0
"""Mean time after which a user who got a 503 tries again."""


class WorkloadGenerator:
    """Generates the requests of all clients of one server.

    Args:
        random: source of arrival times and sizes.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._arrivals: list[tuple[float, int, Workload, bool]] = []
        self._order = 0
        self._requests = 0

    def start(self, workloads: Iterable[Workload], now: float) -> None:
        """Replace all clients by those of these workloads."""
        self._arrivals.clear()
        for workload in workloads:
            for _ in range(workload.users):
                self._schedule(now + self._random.uniform(0.0, RAMP_SECONDS), workload, has_user=True)
            if workload.per_second:
                self._schedule(now + self._random.expovariate(workload.per_second), workload, has_user=False)

    def find_next_arrival(self) -> float:
        """Time of the next request; infinity if there is none."""
        return self._arrivals[0][0] if self._arrivals else math.inf

    def take_request(self) -> Request:
        """Remove and return the next request."""
        sent_at, _, workload, has_user = heapq.heappop(self._arrivals)
        if not has_user:
            self._schedule(sent_at + self._random.expovariate(workload.per_second), workload, has_user=False)
        self._requests += 1
        return Request(
            number=self._requests,
            sent_at=sent_at,
            prompt=self._random.randint(*workload.prompt),
            shared_prefix=workload.shared_prefix,
            output=self._random.randint(*workload.output),
            max_tokens=workload.max_tokens,
            grammar_seconds=self._random.uniform(*workload.grammar_seconds),
            workload=workload,
            has_user=has_user,
        )

    def schedule_next(self, request: Request, now: float) -> None:
        """After a response: its user, if it has one, asks again after thinking."""
        if request.has_user:
            pause = self._random.expovariate(1 / request.workload.think_seconds)
            self._schedule(now + pause, request.workload, has_user=True)

    def schedule_retry(self, request: Request, now: float) -> None:
        """After a rejection: its user, if it has one, tries again."""
        if request.has_user:
            self._schedule(now + self._random.expovariate(1 / RETRY_SECONDS), request.workload, has_user=True)

    def _schedule(self, time: float, workload: Workload, *, has_user: bool) -> None:
        self._order += 1
        heapq.heappush(self._arrivals, (time, self._order, workload, has_user))
