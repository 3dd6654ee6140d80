"""What each step of the simulated vLLM computes: continuous batching as in the V1 scheduler (0.32).

Running requests come first, in order of arrival, then waiting ones, first come, first served, up to the token budget of
a step, so long prompts are computed in chunks. A request is admitted when the KV cache has room for all of its tokens.
If a running request lacks a block, the newest one is preempted and computed again later.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from phasewatch.demo.common.workload import Request
from phasewatch.demo.vllm.blocks import BlockKey, BlockPool
from phasewatch.demo.vllm.settings import SimulatedVllmSettings


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the server. Times are seconds of the simulation.

    Attributes:
        request: what the client asked for.
        ready_at: when its grammar is compiled; it cannot run before.
        computed: tokens whose keys and values are in the cache.
        computed_before_preemption: the highest value of `computed` at a preemption.
        generated: output tokens so far.
        blocks: blocks of the cache that it holds.
        registered_blocks: how many of them are available to other requests.
        admitted: whether it was ever admitted; stays true after a preemption.
        cached: prompt tokens found in the cache when it was first admitted.
        scheduled_at: when it was first admitted.
        first_token_at: time of its first token; meaningless while `generated` is 0.
        last_token_at: time of its newest token; likewise.
        preemptions: how often it was preempted.
        counted_preemptions: how many of those vLLM has counted.
        aborted: whether its client gave up; tokens still computed for it are dropped.
    """

    request: Request
    ready_at: float
    computed: int = 0
    computed_before_preemption: int = 0
    generated: int = 0
    blocks: list[int] = field(default_factory=list)
    registered_blocks: int = 0
    admitted: bool = False
    cached: int = 0
    scheduled_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    preemptions: int = 0
    counted_preemptions: int = 0
    aborted: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.request.prompt + self.generated

    @property
    def deferred(self) -> bool:
        """Whether vLLM counts it as deferred while it waits: until it runs, even once its grammar is ready (0.32)."""
        return self.request.grammar_seconds > 0 and not self.admitted


class StepPart(NamedTuple):
    """A sequence's part of a step.

    Attributes:
        sequence: the sequence.
        before: its tokens in the cache before the step.
        new: tokens computed in the step.
        recomputed: those of `new` that had been computed before a preemption.
        yields: whether the step ends with an output token.
    """

    sequence: Sequence
    before: int
    new: int
    recomputed: int
    yields: bool


class Scheduler:
    """Decides what each step computes.

    Args:
        settings: settings of the server.

    Attributes:
        pool: the KV cache.
        running: admitted requests, oldest first.
        waiting: other requests, the next one first.
        cache_queries: prompt tokens looked up in the prefix cache so far, at first admissions.
        cache_hits: those of them that were found.
        preemptions: number of preemptions so far.
    """

    def __init__(self, settings: SimulatedVllmSettings) -> None:
        self._settings = settings
        self.pool = BlockPool(settings.num_gpu_blocks)
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.cache_queries = 0
        self.cache_hits = 0
        self.preemptions = 0

    @property
    def deferred(self) -> int:
        """Number of waiting requests that vLLM counts as deferred, that is, not waiting for capacity."""
        return sum(sequence.deferred for sequence in self.waiting)

    def find_next_ready(self, now: float) -> float:
        """When the next grammar will be compiled; infinity if none is being compiled."""
        return min((sequence.ready_at for sequence in self.waiting if sequence.ready_at > now), default=math.inf)

    def add(self, sequence: Sequence) -> None:
        """Queue a request."""
        self.waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Remove a running request that is complete."""
        self.running.remove(sequence)
        self._release(sequence)

    def abort_all(self) -> None:
        """Drop every request, as when all clients disconnect."""
        for sequence in (*self.running, *self.waiting):
            sequence.aborted = True
            self._release(sequence)
        self.running.clear()
        self.waiting.clear()

    def schedule(self, now: float) -> list[StepPart]:
        """The next step; empty if nothing can be computed."""
        parts: list[StepPart] = []
        budget = self._settings.max_num_batched_tokens
        while len(parts) < len(self.running) and budget > 0:
            sequence = self.running[len(parts)]
            new = min(sequence.tokens - sequence.computed, budget)
            if not self._make_room(sequence, new):
                break
            parts.append(self._compute(sequence, new))
            budget -= new
        # After a preemption nothing is admitted: the preempted request is at the head of the queue and has no room.
        return parts + self._admit(now, budget)

    def _admit(self, now: float, budget: int) -> list[StepPart]:
        parts = []
        passed_over = []
        while self.waiting and budget > 0 and len(self.running) < self._settings.max_num_seqs:
            sequence = self.waiting[0]
            if sequence.ready_at > now:
                passed_over.append(self.waiting.popleft())
                continue
            cached_blocks = self.pool.find_cached(
                self._list_keys(sequence, range((sequence.tokens - 1) // self._settings.block_size))
            )
            needed = self._count_blocks(sequence.tokens) - len(cached_blocks)
            if needed > self.pool.free - self.pool.count_unheld(cached_blocks):
                break
            self.running.append(self.waiting.popleft())
            self._take_from_cache(sequence, cached_blocks, now)
            new = min(sequence.tokens - sequence.computed, budget)
            self._make_room(sequence, new)
            parts.append(self._compute(sequence, new))
            budget -= new
        self.waiting.extendleft(reversed(passed_over))
        return parts

    def _take_from_cache(self, sequence: Sequence, cached_blocks: list[int], now: float) -> None:
        self.pool.hold(cached_blocks)
        sequence.blocks = cached_blocks
        sequence.registered_blocks = len(cached_blocks)
        sequence.computed = len(cached_blocks) * self._settings.block_size
        if not sequence.admitted:  # cache hits after a preemption are not counted (0.12 and newer)
            sequence.admitted = True
            sequence.cached = sequence.computed
            sequence.scheduled_at = now
            self.cache_queries += sequence.tokens
            self.cache_hits += sequence.computed

    def _make_room(self, sequence: Sequence, new: int) -> bool:
        """Allocate blocks for more tokens of a running sequence; False if it had to be preempted itself."""
        needed = self._count_blocks(sequence.computed + new) - len(sequence.blocks)
        while needed > self.pool.free:
            newest = self.running.pop()
            self._release(newest)
            newest.computed_before_preemption = max(newest.computed_before_preemption, newest.computed)
            newest.computed = 0
            newest.preemptions += 1
            self.preemptions += 1
            self.waiting.appendleft(newest)
            if newest is sequence:
                return False
        if needed > 0:
            sequence.blocks += self.pool.allocate(needed)
        return True

    def _compute(self, sequence: Sequence, new: int) -> StepPart:
        before = sequence.computed
        sequence.computed += new
        full = sequence.computed // self._settings.block_size
        if full > sequence.registered_blocks:
            keys = self._list_keys(sequence, range(sequence.registered_blocks, full))
            for block, key in zip(sequence.blocks[sequence.registered_blocks : full], keys, strict=True):
                self.pool.register(block, key)
            sequence.registered_blocks = full
        recomputed = max(0, min(sequence.computed, sequence.computed_before_preemption) - before)
        return StepPart(sequence, before, new, recomputed, sequence.computed == sequence.tokens)

    def _count_blocks(self, tokens: int) -> int:
        return -(-tokens // self._settings.block_size)

    def _list_keys(self, sequence: Sequence, blocks: range) -> Iterator[BlockKey]:
        """Cache keys of some blocks of a sequence."""
        request = sequence.request
        shared = request.shared_prefix // self._settings.block_size
        return ((request.workload if index < shared else request, index) for index in blocks)

    def _release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
