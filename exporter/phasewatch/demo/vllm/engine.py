"""The engine of the simulated vLLM: advances simulated time step by step as requests arrive and complete."""

from collections import Counter
from dataclasses import dataclass

from phasewatch.demo.common.roofline import Roofline, StepCost, StepWork
from phasewatch.demo.common.workload import WorkloadGenerator
from phasewatch.demo.vllm.counters import Counters
from phasewatch.demo.vllm.ledger import EngineStep, FinishedRequest, FirstToken, TruthLedger
from phasewatch.demo.vllm.scheduler import Scheduler, Sequence, StepPart
from phasewatch.demo.vllm.settings import SimulatedVllmSettings


@dataclass(frozen=True, slots=True)
class _RunningStep:
    """A step that is being computed."""

    parts: list[StepPart]
    cost: StepCost
    end: float
    prompt_tokens: int
    running: int
    waiting: int
    preempted: int


class Engine:
    """One engine with its API server and its clients.

    The result does not depend on how the time is divided into calls of `advance`.

    Args:
        settings: settings of the server.
        roofline: duration of steps.
        clients: source of requests.

    Attributes:
        paused: while true, no new step begins; a running one completes.
        counters: the values on the metrics page.
        ledger: the ground truth.
    """

    def __init__(self, settings: SimulatedVllmSettings, roofline: Roofline, clients: WorkloadGenerator) -> None:
        self.paused = False
        self.counters = Counters(settings)
        self.ledger = TruthLedger()
        self._settings = settings
        self._roofline = roofline
        self._clients = clients
        self._scheduler = Scheduler(settings)
        self._step: _RunningStep | None = None
        self._arrived: list[Sequence] = []
        self._now = 0.0

    def advance(self, now: float) -> None:
        """Process all events up to `now`, in seconds since the start."""
        if self._step is None:
            self._begin()  # it may have been paused
        while (event := self._next_event()) <= now:
            self._now = event
            if self._step is not None and self._step.end <= event:
                self._complete(self._step)
            while self._clients.find_next_arrival() <= event:
                self._receive()
            if self._step is None:
                self._begin()
        self._now = now

    def abort_all(self) -> None:
        """Disconnect all clients. A step that is being computed still runs to its end."""
        held = len(self._arrived) + len(self._scheduler.running) + len(self._scheduler.waiting)
        for _ in range(held):
            self.counters.count_disconnect()
        self._arrived.clear()
        self._scheduler.abort_all()
        self.counters.update_gauges(self._scheduler)

    def _next_event(self) -> float:
        """Time of the next event."""
        if self._step is not None:
            return min(self._step.end, self._clients.find_next_arrival())
        return min(self._scheduler.find_next_ready(self._now), self._clients.find_next_arrival())

    def _receive(self) -> None:
        """Accept a request, or answer 503 if too many are waiting or running (`--max-num-queued-reqs`, 0.32)."""
        request = self._clients.take_request()
        held = len(self._scheduler.running) + len(self._scheduler.waiting) + len(self._arrived)
        limit = self._settings.max_num_queued_reqs
        if limit is not None and held >= limit:
            self.counters.count_rejection()
            self._clients.schedule_retry(request, request.sent_at)
        else:
            self._arrived.append(Sequence(request, request.sent_at + request.grammar_seconds))

    def _begin(self) -> None:
        """Queue new requests, and begin a step if there is anything to compute."""
        for sequence in self._arrived:
            self._scheduler.add(sequence)
        self._arrived.clear()
        preemptions_before = self._scheduler.preemptions
        parts = [] if self.paused else self._scheduler.schedule(self._now)
        if not parts:
            self.counters.update_gauges(self._scheduler)
            return
        cost = self._roofline.compute_cost(_sum_work(parts))
        self._step = _RunningStep(
            parts=parts,
            cost=cost,
            end=self._now + cost.seconds,
            prompt_tokens=sum(part.new - part.recomputed for part in parts if part.sequence.generated == 0),
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            preempted=self._scheduler.preemptions - preemptions_before,
        )

    def _complete(self, step: _RunningStep) -> None:
        """Deliver the tokens of a step."""
        self._step = None
        first_tokens: list[FirstToken] = []
        finished: list[FinishedRequest] = []
        token_gaps: Counter[float] = Counter()
        for sequence in (part.sequence for part in step.parts if part.yields and not part.sequence.aborted):
            self.counters.count_token(sequence, self._now)
            if sequence.generated == 0:
                request, cached = sequence.request, sequence.cached
                first_tokens.append(FirstToken(self._now - request.sent_at, request.prompt - cached, cached))
                sequence.first_token_at = self._now
            else:
                token_gaps[self._now - sequence.last_token_at] += 1
            sequence.last_token_at = self._now
            sequence.counted_preemptions = sequence.preemptions
            sequence.generated += 1
            if sequence.generated == sequence.request.output:
                self._finish(sequence)
                request = sequence.request
                finished.append(FinishedRequest(self._now - request.sent_at, request.prompt, sequence.generated))
        if first_tokens or token_gaps:
            computed_tokens = sum(first.computed_tokens for first in first_tokens)
            self.counters.count_step(computed_tokens + len(first_tokens) + token_gaps.total())
        self.counters.update_gauges(self._scheduler)
        self._record(step, first_tokens, token_gaps, finished)

    def _finish(self, sequence: Sequence) -> None:
        self._scheduler.finish(sequence)
        self.counters.count_finished(sequence)
        self._clients.schedule_next(sequence.request, self._now)

    def _record(
        self,
        step: _RunningStep,
        first_tokens: list[FirstToken],
        token_gaps: Counter[float],
        finished: list[FinishedRequest],
    ) -> None:
        self.ledger.record(
            EngineStep(
                end=step.end,
                seconds=step.cost.seconds,
                prompt_tokens=step.prompt_tokens,
                recomputed_tokens=sum(part.recomputed for part in step.parts),
                read_bytes=step.cost.read_bytes,
                operations=step.cost.operations,
                running=step.running,
                waiting=step.waiting,
                preempted=step.preempted,
                first_tokens=tuple(first_tokens),
                token_gaps=tuple(token_gaps.items()),
                finished=tuple(finished),
            )
        )


def _sum_work(parts: list[StepPart]) -> StepWork:
    tokens, outputs, held, attended = 0, 0, 0, 0.0
    for _, before, new, _, yields in parts:
        tokens += new
        outputs += yields
        held += before + new
        attended += new * (before + new / 2)
    return StepWork(tokens, outputs, held, attended)
