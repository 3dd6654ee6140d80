"""Which models are resident on a simulated Ollama, until when, and whose turn it is.

The rules are those of Ollama 0.33 (server/sched.go). Requests for a resident model wait in its own queue for its one
slot; requests that need a load wait in the scheduler's, which serves one at a time and sends idle models away for it,
or waits for busy ones. Times are nanoseconds of the server's clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from phasewatch.demo.ollama.api import Answer, Generate, Model, Refusal, RunnerOptions, failure
from phasewatch.demo.ollama.completion import Work, work
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import Event, Harm, Ledger

LOAD_OVERHEAD: Final = 700_000
"""load_duration of a model that is there; as recorded."""

IDLE_RESIDUAL: Final = 2_500_000
"""What no phase accounts for in total_duration on an idle server; as recorded."""

CANCEL_TIME: Final = 20_000_000
"""From a closed connection to a free slot; as recorded."""

_BUSY: Final = "server busy, please try again.  maximum pending requests exceeded"


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """A request under way: no answer yet, or all of it."""

    answer: Answer | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Job(Ticket):
    """A request that runs a model, from its arrival to its end.

    `turn` is when it came first in the scheduler's queue, `handed` when it got its runner, `started` when the slot.
    `reloads` tells whether its load follows from other options, `behind_user` whether a user's request was before it;
    `delay` is what it lost behind probes.
    """

    model: Model
    request: Generate
    options: RunnerOptions
    by_probe: bool
    arrived: int
    runner: "Runner | None" = None
    turn: int | None = None
    handed: int = 0
    started: int = 0
    ends: int = 0
    work: Work | None = None
    cancelled: bool = False
    reloads: bool = False
    behind_user: bool = False
    delay: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Runner:
    """A resident model.

    `expires` is None until the first request after the load has ended, and stays where it was during later ones.
    `user_expiry` is when the model would have left if nobody but its users had asked.
    """

    model: Model
    options: RunnerOptions
    session: int
    expires: int | None = None
    warm: bool = False
    active: Job | None = None
    queue: deque[Job] = field(default_factory=deque)
    cached: tuple[str, ...] = ()
    condemned_by: Job | None = None
    user_expiry: int | None = None

    def jobs(self) -> list[Job]:
        """Requests that it works on or has still to begin."""
        return ([self.active] if self.active else []) + list(self.queue)


class Scheduler:
    """The resident models and everything that waits for one.

    Args:
        reply: the answer to a request that has run, or only loaded.
        keep_alive: nanoseconds that a model stays where nobody chose.
        max_loaded: models resident at once.
        max_queue: requests that wait for a load, apart from the one that is being served.
    """

    def __init__(self, reply: Callable[[Job], Answer], *, keep_alive: int, max_loaded: int, max_queue: int) -> None:
        self.ledger = Ledger()
        self.runners: dict[str, Runner] = {}
        self._reply = reply
        self._keep_alive = keep_alive
        self._max_loaded = max_loaded
        self._max_queue = max_queue
        self._pending: deque[Job] = deque()
        self._load_ends: int | None = None

    def next_event(self) -> int | None:
        """When something happens by itself next."""
        return min((time for time, _ in self._events()), default=None)

    def advance(self, now: int) -> None:
        """Let everything happen that happens until now, in its order."""
        while True:
            time, happen = min(self._events(), key=lambda event: event[0], default=(now + 1, None))
            if happen is None or time > now:
                return
            happen(time)

    def submit(self, now: int, job: Job) -> None:
        """A request comes in."""
        runner = self.runners.get(job.model.digest)
        if runner is not None and not runner.options.needs_reload(job.options):
            self._join(now, runner, job)
        elif len(self._pending) > self._max_queue:
            job.answer = failure(503, _BUSY)
        else:
            job.behind_user = _any_user(self._pending)
            self._pending.append(job)
            self._serve_pending(now)

    def cancel(self, now: int, job: Job) -> None:
        """The client of a request has closed its connection. A load for it alone is given up."""
        if job.answer is not None or job.cancelled:
            return
        job.cancelled = True
        if job.runner is None:
            self._leave_pending(now, job)
            self._settle(now, job)
            self._serve_pending(now)
        elif job.runner.active is job:
            job.ends = min(job.ends, now + CANCEL_TIME)
        else:
            job.runner.queue.remove(job)
            self._settle(now, job)

    def unload(self, now: int, job: Job) -> None:
        """A request for a model to leave: it does once it is idle."""
        runner = self.runners.get(job.model.digest)
        if runner is not None:
            self._set_session(now, runner, job, 0)
            self._fill_slot(now, runner)

    def note(self, now: int, harm: Harm, job: Job, detail: str) -> None:
        """Put something down to a request."""
        self.ledger.events.append(Event(now, harm, job.model.name, job.by_probe, detail))

    def _events(self) -> Iterator[tuple[int, Callable[[int], None]]]:
        if self._load_ends is not None:
            yield self._load_ends, self._end_load
        for runner in self.runners.values():
            if runner.active is not None:
                yield runner.active.ends, partial(self._end_work, runner)
            elif runner.expires is not None:
                yield runner.expires, partial(self._expire, runner)

    def _serve_pending(self, now: int) -> None:
        while self._pending and self._load_ends is None:
            job = self._pending[0]
            job.turn = now if job.turn is None else job.turn
            runner = self.runners.get(job.model.digest)
            if runner is not None and not runner.options.needs_reload(job.options):
                self._leave_pending(now, job)
                self._join(now, runner, job)
            elif runner is not None or len(self.runners) >= self._max_loaded:
                if not self._is_out(now, runner or self._shortest_lived(), job):
                    return
            else:
                self._load_ends = now + round(job.model.load_seconds * SECOND)
                if not job.reloads:
                    self.note(now, Harm.LOAD, job, f"{job.options}")

    def _is_out(self, now: int, victim: Runner, job: Job) -> bool:
        """Send a runner away to make room for a job: at once if it is idle, else when it has become so."""
        if victim.condemned_by is not job:
            victim.condemned_by = job
            victim.session = 0
            job.behind_user |= _any_user(victim.jobs())
            if victim.model.digest == job.model.digest:
                job.reloads = True
                self.note(now, Harm.RELOAD, job, f"{job.options} instead of {victim.options}")
            else:
                self.note(now, Harm.EVICTION, job, f"{victim.model.name} has to leave")
        if victim.jobs():
            return False
        del self.runners[victim.model.digest]
        return True

    def _shortest_lived(self) -> Runner:
        by_session = sorted(self.runners.values(), key=lambda runner: runner.session)
        return next((runner for runner in by_session if not runner.jobs()), by_session[0])

    def _end_load(self, now: int) -> None:
        job = self._pending[0]
        session = self._keep_alive if job.request.keep_alive is None else job.request.keep_alive
        runner = Runner(model=job.model, options=job.options, session=session)
        self.runners[job.model.digest] = runner
        self._leave_pending(now, job)
        self._join(now, runner, job)
        self._serve_pending(now)

    def _leave_pending(self, now: int, job: Job) -> None:
        if self._pending[0] is job:
            self._load_ends = None
        self._pending.remove(job)
        if job.by_probe and job.turn is not None:
            _charge(now, job.turn, self._pending)

    def _join(self, now: int, runner: Runner, job: Job) -> None:
        job.runner, job.handed = runner, now
        if job.request.keep_alive is not None:
            self._set_session(now, runner, job, job.request.keep_alive)
        past = None if runner.user_expiry is None else job.arrived - runner.user_expiry
        if job.by_probe and past is not None and past > 0 and not _any_user(runner.jobs()):
            self.note(now, Harm.PROLONGED, job, f"sent {past / SECOND:.3f} s after it would have left")
        if job.request.words:
            job.behind_user |= _any_user(runner.jobs())
            runner.queue.append(job)
        else:
            job.answer = self._reply(job)
            self._settle(now, job)
        self._fill_slot(now, runner)

    def _set_session(self, now: int, runner: Runner, job: Job, session: int) -> None:
        if session != runner.session:
            self.note(now, Harm.KEEP_ALIVE, job, f"{session / SECOND:g} s instead of {runner.session / SECOND:g} s")
        runner.session = session

    def _fill_slot(self, now: int, runner: Runner) -> None:
        """Begin the next request. When there is none the runner is idle: its session begins, or it leaves."""
        while runner.active is None and runner.queue:
            self._begin(now, runner, runner.queue.popleft())
        if runner.jobs():
            return
        runner.expires = now + runner.session
        if runner.session == 0:
            self._expire(runner, now)

    def _begin(self, now: int, runner: Runner, job: Job) -> None:
        assert runner.options.num_ctx is not None  # noqa: S101  # `RunnerOptions.resolved` has seen to it
        try:
            job.work = work(runner.model, job.request, runner.options.num_ctx, runner.cached, warm=runner.warm)
        except Refusal as refusal:
            job.answer = refusal.answer
            self._settle(now, job)
            return
        runner.active, job.started = job, now
        job.ends = now + LOAD_OVERHEAD + IDLE_RESIDUAL + job.work.prompt_duration + job.work.eval_duration

    def _end_work(self, runner: Runner, now: int) -> None:
        job = runner.active
        assert job is not None  # noqa: S101  # who calls this at its end has begun it
        assert job.work is not None  # noqa: S101  # as above
        runner.active, runner.warm, runner.cached = None, True, job.request.words + job.work.reply
        if not job.cancelled:
            job.answer = self._reply(job)
        if job.by_probe:
            self.ledger.probe_seconds += (now - job.started) / SECOND
            _charge(now, job.started, [*runner.queue, *(self._pending if runner.condemned_by else ())])
            if job.work.cached_count > 1:  # the first token of every prompt is the same
                detail = f"{job.work.cached_count} of {job.work.prompt_count} tokens"
                self.note(now, Harm.CACHE_HIT, job, detail)
        self._settle(now, job)
        self._fill_slot(now, runner)

    def _expire(self, runner: Runner, now: int) -> None:
        del self.runners[runner.model.digest]
        self._serve_pending(now)

    def _settle(self, now: int, job: Job) -> None:
        """A request has ended: book what it went through."""
        if job.by_probe:
            self.ledger.end_probe(waited=job.behind_user)
            return
        if job.runner is not None:
            job.runner.user_expiry = now + job.runner.session
        if job.delay:
            seconds = job.delay / SECOND
            delay = Event(
                now, Harm.DELAY, job.model.name, by_probe=True, detail=f"for {seconds:.3f} s", seconds=seconds
            )
            self.ledger.events.append(delay)


def _any_user(jobs: Iterable[Job]) -> bool:
    return any(not job.by_probe for job in jobs)


def _charge(now: int, since: int, waiting: Iterable[Job]) -> None:
    """A probe stood in the way of these since then."""
    for job in waiting:
        if not job.by_probe:
            job.delay += now - max(since, job.arrived)
