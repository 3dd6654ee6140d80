"""What a step of the simulated vLLM computes: continuous batching as in the V1 scheduler (0.32).

What runs comes first, in the order of arrival, then what waits, first come, first served; together no more tokens than
a step has room for, so that long prompts are computed in chunks. A request is admitted when the KV cache has room for
the whole of it. Where a running one lacks a block, the newest is thrown out and computed again later.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from phasewatch.demo.vllm.blocks import BlockPool, Key
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.workload import Request


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the server.

    Attributes:
        request: what was asked.
        ready: from when on it may run; before, its grammar is compiled.
        computed: tokens whose keys and values are in the cache.
        reached: the most that `computed` was before it was thrown out.
        generated: tokens put out.
        blocks: of the cache that it holds.
        named: how many of them can be found by others.
        admitted: it has run, whether or not it runs now.
        cached: tokens of the prompt that were found in the cache when it was first admitted.
        scheduled: when that was.
        first: when its first token came, once one is generated.
        last: when its newest token came, likewise.
        preemptions: how often it was thrown out.
        told: how many of these vLLM has counted.
        gone: it was given up, and whatever is still computed for it is dropped.
    """

    request: Request
    ready: float
    computed: int = 0
    reached: int = 0
    generated: int = 0
    blocks: list[int] = field(default_factory=list)
    named: int = 0
    admitted: bool = False
    cached: int = 0
    scheduled: float = 0.0
    first: float = 0.0
    last: float = 0.0
    preemptions: int = 0
    told: int = 0
    gone: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of prompt and answer so far."""
        return self.request.prompt + self.generated

    @property
    def deferred(self) -> bool:
        """Whether vLLM counts it as deferred while it waits: it does until it runs, even when it is ready (0.32)."""
        return self.request.grammar > 0 and not self.admitted


class Part(NamedTuple):
    """A sequence's part of a step: `new` tokens on top of `before`, of which `again` had been computed before it was
    thrown out; `yields` if a token comes out at its end.
    """

    sequence: Sequence
    before: int
    new: int
    again: int
    yields: bool


class Scheduler:
    """Decides what each step computes.

    Args:
        settings: of the server.

    Attributes:
        pool: the KV cache.
        running: requests that have been admitted, the oldest first.
        waiting: requests that have not, the next one first.
        queried: prompt tokens that were looked up in the cache so far, at first admissions.
        hit: those of them that were found.
        preempted: how often a request was thrown out so far.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.pool = BlockPool(settings.num_gpu_blocks)
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.queried = 0
        self.hit = 0
        self.preempted = 0

    @property
    def deferred(self) -> int:
        """How many wait for something else than capacity."""
        return sum(sequence.deferred for sequence in self.waiting)

    def next_ready(self, now: float) -> float:
        """When the next grammar will be compiled; infinity if none is being compiled."""
        return min((sequence.ready for sequence in self.waiting if sequence.ready > now), default=math.inf)

    def add(self, sequence: Sequence) -> None:
        """Queue a request."""
        self.waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Let a running request end."""
        self.running.remove(sequence)
        self._release(sequence)

    def abort_all(self) -> None:
        """Drop every request, as when all clients have gone."""
        for sequence in (*self.running, *self.waiting):
            sequence.gone = True
            self._release(sequence)
        self.running.clear()
        self.waiting.clear()

    def schedule(self, now: float) -> list[Part]:
        """The next step; empty if nothing can be computed."""
        parts: list[Part] = []
        budget = self._settings.max_num_batched_tokens
        while len(parts) < len(self.running) and budget > 0:
            sequence = self.running[len(parts)]
            new = min(sequence.tokens - sequence.computed, budget)
            if not self._make_room(sequence, new):
                break
            parts.append(self._compute(sequence, new))
            budget -= new
        # After a preemption nothing is admitted: what was thrown out waits first, and has no room.
        return parts + self._admit(now, budget)

    def _admit(self, now: float, budget: int) -> list[Part]:
        parts = []
        passed_over = []
        while self.waiting and budget > 0 and len(self.running) < self._settings.max_num_seqs:
            sequence = self.waiting[0]
            if sequence.ready > now:
                passed_over.append(self.waiting.popleft())
                continue
            found = self.pool.find(self._keys(sequence, (sequence.tokens - 1) // self._settings.block_size))
            if self._blocks_for(sequence.tokens) - len(found) > self.pool.free - self.pool.unheld(found):
                break
            self.running.append(self.waiting.popleft())
            self._take_from_cache(sequence, found, now)
            new = min(sequence.tokens - sequence.computed, budget)
            self._make_room(sequence, new)
            parts.append(self._compute(sequence, new))
            budget -= new
        self.waiting.extendleft(reversed(passed_over))
        return parts

    def _take_from_cache(self, sequence: Sequence, found: list[int], now: float) -> None:
        self.pool.hold(found)
        sequence.blocks = found
        sequence.named = len(found)
        sequence.computed = len(found) * self._settings.block_size
        if not sequence.admitted:  # what is found again after a preemption is not counted (0.12 and newer)
            sequence.admitted = True
            sequence.cached = sequence.computed
            sequence.scheduled = now
            self.queried += sequence.tokens
            self.hit += sequence.computed

    def _make_room(self, sequence: Sequence, new: int) -> bool:
        """Blocks for more tokens of a running sequence; False if it had to be thrown out itself."""
        needed = self._blocks_for(sequence.computed + new) - len(sequence.blocks)
        while needed > self.pool.free:
            newest = self.running.pop()
            self._release(newest)
            newest.reached = max(newest.reached, newest.computed)
            newest.computed = 0
            newest.preemptions += 1
            self.preempted += 1
            self.waiting.appendleft(newest)
            if newest is sequence:
                return False
        sequence.blocks += self.pool.take(needed)
        return True

    def _compute(self, sequence: Sequence, new: int) -> Part:
        before = sequence.computed
        sequence.computed += new
        full = sequence.computed // self._settings.block_size
        if full > sequence.named:
            for block, key in tuple(zip(sequence.blocks, self._keys(sequence, full), strict=False))[sequence.named :]:
                self.pool.name(block, key)
            sequence.named = full
        again = max(0, min(sequence.computed, sequence.reached) - before)
        return Part(sequence, before, new, again, sequence.computed == sequence.tokens)

    def _blocks_for(self, tokens: int) -> int:
        return math.ceil(tokens / self._settings.block_size)

    def _keys(self, sequence: Sequence, blocks: int) -> Iterator[Key]:
        """What the first blocks of a sequence are known by."""
        request = sequence.request
        shared = request.shared // self._settings.block_size
        return ((request.workload if index < shared else request, index) for index in range(blocks))

    def _release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
