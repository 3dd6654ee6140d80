"""The simulated vLLM's engine: lets virtual time pass, step by step, as its users come and go."""

from collections import Counter
from dataclasses import dataclass

from phasewatch.demo.ledger import First, Ledger, Step
from phasewatch.demo.roofline import Cost, Machine, Work
from phasewatch.demo.vllm.counters import Counters
from phasewatch.demo.vllm.scheduler import Part, Scheduler, Sequence
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.workload import Crowd


@dataclass(frozen=True, slots=True)
class _Running:
    """A step that is being computed."""

    parts: list[Part]
    cost: Cost
    end: float
    prompt_tokens: int
    running: int
    waiting: int
    preempted: int


class Engine:
    """One engine, the front end before it, and the users before that.

    How time is cut into calls of `advance` changes nothing.

    Args:
        settings: with which it was started.
        machine: how long steps take.
        crowd: who uses it.

    Attributes:
        paused: while it is, no step begins; one that has begun is ended.
        counters: what its page shows.
        ledger: what truly happened.
    """

    def __init__(self, settings: Settings, machine: Machine, crowd: Crowd) -> None:
        self.paused = False
        self.counters = Counters(settings)
        self.ledger = Ledger()
        self._settings = settings
        self._machine = machine
        self._crowd = crowd
        self._scheduler = Scheduler(settings)
        self._step: _Running | None = None
        self._arrived: list[Sequence] = []
        self._now = 0.0

    def advance(self, now: float) -> None:
        """Let everything happen that happens up to `now`, in seconds since the start."""
        if self._step is None:
            self._begin()  # it may have been paused
        while (moment := self._next()) <= now:
            self._now = moment
            if self._step is not None and self._step.end <= moment:
                self._complete(self._step)
            while self._crowd.next() <= moment:
                self._receive()
            if self._step is None:
                self._begin()
        self._now = now

    def abort_all(self) -> None:
        """Let all clients hang up. A step that is being computed is computed to its end, for nothing."""
        self._arrived.clear()
        self._scheduler.abort_all()
        self.counters.show(self._scheduler)

    def _next(self) -> float:
        """When something happens next."""
        if self._step is not None:
            return min(self._step.end, self._crowd.next())
        return min(self._scheduler.next_ready(self._now), self._crowd.next())

    def _receive(self) -> None:
        """Take a request, or answer 503 where too many wait or run (`--max-num-queued-reqs`, 0.32)."""
        request = self._crowd.take()
        held = len(self._scheduler.running) + len(self._scheduler.waiting) + len(self._arrived)
        most = self._settings.max_num_queued_reqs
        if most is not None and held >= most:
            self.counters.refuse()
            self._crowd.refused(request, request.sent)
        else:
            self._arrived.append(Sequence(request, request.sent + request.grammar))

    def _begin(self) -> None:
        """Queue what has come, and begin a step if there is anything to compute."""
        for sequence in self._arrived:
            self._scheduler.add(sequence)
        self._arrived.clear()
        before = self._scheduler.preempted
        parts = [] if self.paused else self._scheduler.schedule(self._now)
        if not parts:
            self.counters.show(self._scheduler)
            return
        cost = self._machine.cost(_work(parts))
        self._step = _Running(
            parts=parts,
            cost=cost,
            end=self._now + cost.seconds,
            prompt_tokens=sum(part.new - part.again for part in parts if part.sequence.generated == 0),
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            preempted=self._scheduler.preempted - before,
        )

    def _complete(self, step: _Running) -> None:
        """Hand out the tokens of a step."""
        self._step = None
        firsts: list[First] = []
        gaps: Counter[float] = Counter()
        for sequence in (part.sequence for part in step.parts if part.yields and not part.sequence.gone):
            self.counters.count_token(sequence, self._now)
            if sequence.generated == 0:
                request, cached = sequence.request, sequence.cached
                firsts.append(First(self._now - request.sent, request.prompt - cached, cached))
                sequence.first = self._now
            else:
                gaps[self._now - sequence.last] += 1
            sequence.last = self._now
            sequence.told = sequence.preemptions
            sequence.generated += 1
            if sequence.generated == sequence.request.output:
                self._end(sequence)
        if firsts or gaps:
            self.counters.count_step(sum(first.computed for first in firsts) + len(firsts) + gaps.total())
        self.counters.show(self._scheduler)
        self._note(step, firsts, gaps)

    def _end(self, sequence: Sequence) -> None:
        self._scheduler.finish(sequence)
        self.counters.count_end(sequence)
        self._crowd.answered(sequence.request, self._now)

    def _note(self, step: _Running, firsts: list[First], gaps: Counter[float]) -> None:
        self.ledger.record(
            Step(
                end=step.end,
                seconds=step.cost.seconds,
                prompt_tokens=step.prompt_tokens,
                again=sum(part.again for part in step.parts),
                read_bytes=step.cost.read_bytes,
                operations=step.cost.operations,
                running=step.running,
                waiting=step.waiting,
                preempted=step.preempted,
                firsts=tuple(firsts),
                gaps=tuple(gaps.items()),
            )
        )


def _work(parts: list[Part]) -> Work:
    return Work(
        tokens=sum(part.new for part in parts),
        outputs=sum(part.yields for part in parts),
        held=sum(part.before + part.new for part in parts),
        attended=sum(part.new * (part.before + part.new / 2) for part in parts),
    )
