"""Which models are loaded on a simulated Ollama, until when, and which request is next.

The rules are those of Ollama 0.33 (server/sched.go). Requests for a loaded model wait in its own queue for its single
slot. Requests that need a load wait in the scheduler's queue, which serves one at a time and unloads idle models to
make room, or waits for busy ones. Times are nanoseconds of the server's clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from phasewatch.demo.ollama.api import GenerateRequest, Refusal, RunnerOptions, build_error_response
from phasewatch.demo.ollama.child import Child
from phasewatch.demo.ollama.completion import Completion, simulate_completion
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import Harm, HarmEvent, HarmLedger
from phasewatch.demo.ollama.model import Model
from phasewatch.scrape.http import Response

LOAD_OVERHEAD: Final = 700_000
"""`load_duration` of a model that is already loaded, as recorded."""

IDLE_OVERHEAD: Final = 2_500_000
"""Part of `total_duration` on an idle server that belongs to no phase, as recorded."""

CANCEL_DURATION: Final = 20_000_000
"""Time from a closed connection to a free slot, as recorded."""

_BUSY: Final = "server busy, please try again.  maximum pending requests exceeded"


@dataclass(slots=True, eq=False, kw_only=True)
class Exchange:
    """An HTTP request in progress: `response` is None until it is complete."""

    response: Response | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class LlmRequest(Exchange):
    """A request that runs a model, from its arrival to its end.

    Attributes:
        model: the model.
        generate: the parsed request.
        options: options for the runner, with the server's defaults.
        by_probe: whether PhaseWatch sent it.
        arrived: when it arrived.
        runner: the runner that it was assigned to.
        reached_head: when it reached the head of the scheduler's queue.
        assigned: when it was assigned to the runner.
        started: when it got the slot.
        ends: when it will be complete.
        completion: what the runner computes for it.
        cancelled: whether its client closed the connection.
        reloads: whether its load is a reload of the same model with other options.
        behind_user: whether it waited behind a user's request.
        delay: time that it waited behind probes.
    """

    model: Model
    generate: GenerateRequest
    options: RunnerOptions
    by_probe: bool
    arrived: int
    runner: "Runner | None" = None
    reached_head: int | None = None
    assigned: int = 0
    started: int = 0
    ends: int = 0
    completion: Completion | None = None
    cancelled: bool = False
    reloads: bool = False
    behind_user: bool = False
    delay: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Runner:
    """A loaded model.

    Attributes:
        model: the model.
        options: the options that it was started with.
        session: how long it stays loaded once idle (sched.go, `sessionDuration`).
        child: the process that runs it.
        expires: when it will be unloaded; None until the first request has ended, unchanged while later ones run.
        warm: whether it has completed a prompt.
        active: the request in its slot.
        queue: the requests that wait for the slot.
        cached_words: words in the slot's cache.
        evicted_for: the request that needs its memory, if it is to be unloaded.
        user_expiry: when it would have been unloaded if there had been no probes.
    """

    model: Model
    options: RunnerOptions
    session: int
    child: Child
    expires: int | None = None
    warm: bool = False
    active: LlmRequest | None = None
    queue: deque[LlmRequest] = field(default_factory=deque)
    cached_words: tuple[str, ...] = ()
    evicted_for: LlmRequest | None = None
    user_expiry: int | None = None

    def list_requests(self) -> list[LlmRequest]:
        """The active request and the queued ones."""
        return ([self.active] if self.active else []) + list(self.queue)


class Scheduler:
    """The loaded models and all requests that wait for one.

    Args:
        build_response: builds the response to a request that has run, or that only loaded a model.
        keep_alive: default time for which an idle model stays loaded.
        max_loaded: number of models loaded at once.
        max_queue: number of requests that may wait for a load, beside the one that is loading.
        child_metrics: whether LLAMA_ARG_ENDPOINT_METRICS is set in the server's environment.
    """

    def __init__(
        self,
        build_response: Callable[[LlmRequest], Response],
        *,
        keep_alive: int,
        max_loaded: int,
        max_queue: int,
        child_metrics: bool,
    ) -> None:
        self.ledger = HarmLedger()
        self.runners: dict[str, Runner] = {}
        self._build_response = build_response
        self._keep_alive = keep_alive
        self._max_loaded = max_loaded
        self._max_queue = max_queue
        self._pending: deque[LlmRequest] = deque()
        self._load_ends: int | None = None
        self._child_metrics = child_metrics
        self._children_started = 0
        self._loading_child: Child | None = None

    def list_children(self) -> list[Child]:
        """The processes of the loaded models and of the one that is loading."""
        loaded = [runner.child for runner in self.runners.values()]
        return loaded if self._loading_child is None else [*loaded, self._loading_child]

    def find_next_event(self) -> int | None:
        """Time of the next event; None if there is none."""
        return min((time for time, _ in self._list_events()), default=None)

    def advance(self, now: int) -> None:
        """Process all events up to `now`, in order."""
        while True:
            time, handle = min(self._list_events(), key=lambda event: event[0], default=(now + 1, None))
            if handle is None or time > now:
                return
            handle(time)

    def submit(self, now: int, request: LlmRequest) -> None:
        """Accept a request."""
        runner = self.runners.get(request.model.digest)
        if runner is not None and not runner.options.needs_reload(request.options):
            self._assign(now, runner, request)
        elif len(self._pending) > self._max_queue:
            request.response = build_error_response(503, _BUSY)
        else:
            request.behind_user = _contains_user(self._pending)
            self._pending.append(request)
            self._serve_pending(now)

    def cancel(self, now: int, request: LlmRequest) -> None:
        """Handle a closed connection. A load that only this request needs is abandoned."""
        if request.response is not None or request.cancelled:
            return
        request.cancelled = True
        if request.runner is None:
            self._leave_pending(now, request)
            self._record_end(now, request)
            self._serve_pending(now)
        elif request.runner.active is request:
            request.ends = min(request.ends, now + CANCEL_DURATION)
        else:
            request.runner.queue.remove(request)
            self._record_end(now, request)

    def unload(self, now: int, request: LlmRequest) -> None:
        """Unload the request's model as soon as it is idle."""
        runner = self.runners.get(request.model.digest)
        if runner is not None:
            self._set_session(now, runner, request, 0)
            self._fill_slot(now, runner)

    def record_harm(self, now: int, harm: Harm, request: LlmRequest, detail: str) -> None:
        """Attribute an effect to a request."""
        self.ledger.events.append(HarmEvent(now, harm, request.model.name, request.by_probe, detail))

    def _list_events(self) -> Iterator[tuple[int, Callable[[int], None]]]:
        if self._load_ends is not None:
            yield self._load_ends, self._end_load
        for runner in self.runners.values():
            if runner.active is not None:
                yield runner.active.ends, partial(self._end_completion, runner)
            elif runner.expires is not None:
                yield runner.expires, partial(self._expire, runner)

    def _serve_pending(self, now: int) -> None:
        while self._pending and self._load_ends is None:
            request = self._pending[0]
            request.reached_head = now if request.reached_head is None else request.reached_head
            runner = self.runners.get(request.model.digest)
            if runner is not None and not runner.options.needs_reload(request.options):
                self._leave_pending(now, request)
                self._assign(now, runner, request)
            elif runner is not None or len(self.runners) >= self._max_loaded:
                if not self._evict(now, runner or self._find_shortest_session(), request):
                    return
            else:
                self._load_ends = now + round(request.model.load_seconds * SECOND)
                self._loading_child = self._start_child(now, request)
                if not request.reloads:
                    self.record_harm(now, Harm.LOAD, request, f"{request.options}")

    def _start_child(self, now: int, request: LlmRequest) -> Child:
        self._children_started += 1
        return Child(self._children_started, request.model, request.options, now, has_metrics=self._child_metrics)

    def _evict(self, now: int, victim: Runner, request: LlmRequest) -> bool:
        """Unload a runner to make room for a request, as soon as it is idle. Returns whether it has been unloaded."""
        if victim.evicted_for is not request:
            victim.evicted_for = request
            victim.session = 0
            request.behind_user |= _contains_user(victim.list_requests())
            if victim.model.digest == request.model.digest:
                request.reloads = True
                self.record_harm(now, Harm.RELOAD, request, f"{request.options} instead of {victim.options}")
            else:
                self.record_harm(now, Harm.EVICTION, request, f"{victim.model.name} has to leave")
        if victim.list_requests():
            return False
        del self.runners[victim.model.digest]
        return True

    def _find_shortest_session(self) -> Runner:
        """The runner to evict: the one with the shortest session, among the idle ones if there are any."""
        by_session = sorted(self.runners.values(), key=lambda runner: runner.session)
        return next((runner for runner in by_session if not runner.list_requests()), by_session[0])

    def _end_load(self, now: int) -> None:
        request, child = self._pending[0], self._loading_child
        assert child is not None  # noqa: S101  # a load has one
        child.is_loading = False
        session = self._keep_alive if request.generate.keep_alive is None else request.generate.keep_alive
        runner = Runner(model=request.model, options=request.options, session=session, child=child)
        self.runners[request.model.digest] = runner
        self._leave_pending(now, request)
        self._assign(now, runner, request)
        self._serve_pending(now)

    def _leave_pending(self, now: int, request: LlmRequest) -> None:
        if self._pending[0] is request:
            self._load_ends = self._loading_child = None
        self._pending.remove(request)
        if request.by_probe and request.reached_head is not None:
            _add_delays(now, request.reached_head, self._pending)

    def _assign(self, now: int, runner: Runner, request: LlmRequest) -> None:
        request.runner, request.assigned = runner, now
        if request.generate.keep_alive is not None:
            self._set_session(now, runner, request, request.generate.keep_alive)
        overtime = None if runner.user_expiry is None else request.arrived - runner.user_expiry
        if request.by_probe and overtime is not None and overtime > 0 and not _contains_user(runner.list_requests()):
            detail = f"sent {overtime / SECOND:.3f} s after it would have left"
            self.record_harm(now, Harm.PROLONGED, request, detail)
        if request.generate.words:
            request.behind_user |= _contains_user(runner.list_requests())
            runner.queue.append(request)
        else:
            request.response = self._build_response(request)
            self._record_end(now, request)
        self._fill_slot(now, runner)

    def _set_session(self, now: int, runner: Runner, request: LlmRequest, session: int) -> None:
        if session != runner.session:
            detail = f"{session / SECOND:g} s instead of {runner.session / SECOND:g} s"
            self.record_harm(now, Harm.KEEP_ALIVE, request, detail)
        runner.session = session

    def _fill_slot(self, now: int, runner: Runner) -> None:
        """Start the next request. Without one the runner is idle: its session starts, or it is unloaded."""
        while runner.active is None and runner.queue:
            self._start(now, runner, runner.queue.popleft())
        if runner.list_requests():
            return
        runner.expires = now + runner.session
        if runner.session == 0:
            self._expire(runner, now)

    def _start(self, now: int, runner: Runner, request: LlmRequest) -> None:
        num_ctx = runner.options.num_ctx
        assert num_ctx is not None  # noqa: S101  # set by `RunnerOptions.resolve`
        try:
            completion = simulate_completion(
                runner.model, request.generate, num_ctx, runner.cached_words, warm=runner.warm
            )
        except Refusal as refusal:
            request.response = refusal.response
            self._record_end(now, request)
            return
        request.completion = completion
        runner.active, request.started = request, now
        runner.child.begin(now + LOAD_OVERHEAD, completion, request.generate.num_predict)
        request.ends = now + LOAD_OVERHEAD + IDLE_OVERHEAD + completion.prompt_duration + completion.eval_duration

    def _end_completion(self, runner: Runner, now: int) -> None:
        request = runner.active
        assert request is not None  # noqa: S101  # only an active request has an end
        completion = request.completion
        assert completion is not None  # noqa: S101  # as above
        runner.active, runner.warm = None, True
        runner.child.end(now)
        runner.cached_words = request.generate.words + completion.reply
        if not request.cancelled:
            request.response = self._build_response(request)
        if request.by_probe:
            self.ledger.probe_seconds += (now - request.started) / SECOND
            _add_delays(now, request.started, [*runner.queue, *(self._pending if runner.evicted_for else ())])
            if completion.cached_count > 1:  # the first token of every prompt is the same
                detail = f"{completion.cached_count} of {completion.prompt_count} tokens"
                self.record_harm(now, Harm.CACHE_HIT, request, detail)
        self._record_end(now, request)
        self._fill_slot(now, runner)

    def _expire(self, runner: Runner, now: int) -> None:
        del self.runners[runner.model.digest]
        self._serve_pending(now)

    def _record_end(self, now: int, request: LlmRequest) -> None:
        """Record the effects of and on a request that has ended."""
        if request.by_probe:
            self.ledger.record_probe_end(waited=request.behind_user)
            return
        if request.runner is not None:
            request.runner.user_expiry = now + request.runner.session
        if request.delay:
            seconds = request.delay / SECOND
            delay = HarmEvent(
                now, Harm.DELAY, request.model.name, by_probe=True, detail=f"for {seconds:.3f} s", seconds=seconds
            )
            self.ledger.events.append(delay)


def _contains_user(requests: Iterable[LlmRequest]) -> bool:
    return any(not request.by_probe for request in requests)


def _add_delays(now: int, since: int, waiting: Iterable[LlmRequest]) -> None:
    """Add the time that users' requests have waited behind a probe since then."""
    for request in waiting:
        if not request.by_probe:
            request.delay += now - max(since, request.arrived)
