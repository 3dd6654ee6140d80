"""The engine of a simulated llama-server: slots, batches, and the counters and ground truth that follow from them.

As in llama.cpp b10434: a request takes the idle slot that was used least recently, or waits. Each call of
`llama_decode` has one token of every stream and, up to `--batch-size`, prompt tokens, so that all streams stand still
while a batch of prompt tokens is computed.
"""

import math
from collections import deque
from dataclasses import dataclass

from phasewatch.demo.common.roofline import Roofline, StepCost, StepWork
from phasewatch.demo.common.workload import Request, WorkloadGenerator
from phasewatch.demo.llamacpp.counters import AverageGauges, Counters
from phasewatch.demo.llamacpp.ledger import LlamaStep, SleepLedger, TruthLedger, Wake
from phasewatch.demo.llamacpp.settings import LlamaServerSettings
from phasewatch.demo.llamacpp.slot import Slot

_SHORTEST_STREAM = 1e-6
"""Time that a request of a single token adds to the time of streams, seconds."""


@dataclass(frozen=True, slots=True)
class _RunningStep:
    """A call of `llama_decode` at work, with the slots in its batch."""

    slots: tuple[Slot, ...]
    prompt_tokens: int
    cost: StepCost
    end: float
    processing: int
    deferred: int


class Engine:
    """The slots of one server and its clients.

    The result does not depend on how the time is divided into calls of `advance`. Prompts must fit into a slot.

    Args:
        settings: settings of the server.
        roofline: duration of steps.
        clients: source of requests.

    Attributes:
        counters: the counters on the metrics page.
        averages: the two average gauges.
        slots: the slots.
        deferred: the requests that wait for a slot, with their task numbers.
        truth: what truly happened.
        sleep: what fell asleep and woke.
        asleep: whether the server sleeps.
    """

    def __init__(self, settings: LlamaServerSettings, roofline: Roofline, clients: WorkloadGenerator) -> None:
        self.counters = Counters()
        self.averages = AverageGauges()
        self.slots = tuple(Slot(number=number) for number in range(settings.slots))
        self.deferred: deque[tuple[Request, int]] = deque()
        self.truth = TruthLedger()
        self.sleep = SleepLedger()
        self.asleep = False
        self._settings = settings
        self._roofline = roofline
        self._clients = clients
        self._step: _RunningStep | None = None
        self._tasks = 0
        self._prompt_seconds = 0.0
        self._last_active = 0.0
        self._now = 0.0

    def advance(self, now: float) -> None:
        """Process all events up to `now`, in seconds since the start."""
        while (event := self._find_next_event()) <= now:
            self._now = event
            if self._step is not None and self._step.end <= event:
                self._complete(self._step)
            if self._clients.find_next_arrival() <= event:
                self._receive()
            elif self._find_sleep() <= event:
                self._fall_asleep()
            if self._step is None:
                self._begin()
        self._now = now

    def observe(self, page: str) -> None:
        """Handle a read of a page that is a task of the engine: it wakes a server that sleeps, and restarts its idle
        time.
        """
        self._take_task()
        idle = self._step is None and self._settings.sleep_idle_seconds is not None
        self.sleep.kept_awake += idle and not self.asleep
        self._stay_awake(page)

    def abort_all(self) -> None:
        """Disconnect all clients. A batch that is being computed still runs to its end."""
        self.deferred.clear()
        for slot in self.slots:
            slot.aborted = True

    def count_processing(self) -> int:
        """The busy slots."""
        return sum(slot.request is not None for slot in self.slots)

    def _find_next_event(self) -> float:
        end = math.inf if self._step is None else self._step.end
        return min(end, self._clients.find_next_arrival(), self._find_sleep())

    def _find_sleep(self) -> float:
        """When the server will fall asleep if nothing happens before."""
        idle_seconds = self._settings.sleep_idle_seconds
        if idle_seconds is None or self.asleep or self._step is not None:
            return math.inf
        return self._last_active + idle_seconds

    def _fall_asleep(self) -> None:
        self.asleep = True
        self.sleep.sleeps.append(self._now)
        for slot in self.slots:
            slot.forget()

    def _stay_awake(self, read: str | None) -> None:
        if self.asleep:
            self.asleep = False
            self.sleep.wakes.append(Wake(self._now, read))
        self._last_active = self._now

    def _take_task(self) -> int:
        """The number of the next task. Requests, steps and reads of pages take one each."""
        self._tasks += 1
        return self._tasks - 1

    def _receive(self) -> None:
        self._stay_awake(None)
        self.deferred.append((self._clients.take_request(), self._take_task()))
        self._fill_slots()

    def _fill_slots(self) -> None:
        while self.deferred and (idle := [slot for slot in self.slots if slot.request is None]):
            # Of slots that were never used, the last one is first.
            slot = min(idle, key=lambda one: (one.last_used, -one.number))
            slot.take(*self.deferred.popleft())

    def _begin(self) -> None:
        """Begin a step if there is anything to compute."""
        streams = [slot for slot in self.slots if slot.decoded > 0]
        prompts = self._batch_prompts(self._settings.batch - len(streams))
        slots = (*streams, *prompts)
        if not slots:
            return
        prompt_tokens = sum(slot.batched for slot in prompts)
        held = [slot.view().held for slot in slots]
        attended = sum(slot.batched * (total - slot.batched / 2) for slot, total in zip(slots, held, strict=True))
        work = StepWork(
            tokens=len(streams) + prompt_tokens,
            outputs=len(streams) + sum(slot.count_left() == slot.batched for slot in prompts),
            held=sum(held),
            attended=attended + sum(held[: len(streams)]),
        )
        cost = self._roofline.compute_cost(work)
        end = self._now + cost.seconds
        self._step = _RunningStep(slots, prompt_tokens, cost, end, self.count_processing(), len(self.deferred))

    def _batch_prompts(self, room: int) -> list[Slot]:
        """The slots whose prompts have tokens in the next batch."""
        batched = []
        for slot in self.slots:
            if slot.request is None or slot.decoded or room <= 0:
                continue
            if not slot.begun:
                self.counters.cached_tokens += slot.begin_prompt()
            slot.batched = min(room, slot.count_left())
            room -= slot.batched
            batched.append(slot)
        return batched

    def _complete(self, step: _RunningStep) -> None:
        """Deliver the tokens of a step."""
        self._step = None
        self._last_active = self._now
        self._take_task()
        self.counters.decodes += 1
        self.counters.busy_slots += len(step.slots)
        self._prompt_seconds += step.cost.seconds if step.prompt_tokens else 0.0
        first_tokens, token_gaps = 0, []
        for slot in step.slots:
            self.counters.longest_sequence = max(self.counters.longest_sequence, slot.view().held)
            if slot.decoded:
                token_gaps.append(self._now - slot.last_token_at)
                self._deliver(slot)
                continue
            slot.processed, slot.batched = slot.processed + slot.batched, 0
            if slot.count_left() == 0:
                first_tokens += 1
                slot.first_token_at = self._now
                self._deliver(slot)
                self._count_prompt(slot)
        for slot in self.slots:
            self._end(slot)
        self._fill_slots()
        self.truth.record(
            LlamaStep(
                end=step.end,
                seconds=step.cost.seconds,
                read_bytes=step.cost.read_bytes,
                prompt_tokens=step.prompt_tokens,
                first_tokens=first_tokens,
                token_gaps=tuple(token_gaps),
                processing=step.processing,
                deferred=step.deferred,
            )
        )

    def _deliver(self, slot: Slot) -> None:
        slot.decoded += 1
        slot.last_token_at, slot.has_next = self._now, True

    def _count_prompt(self, slot: Slot) -> None:
        self.counters.prompt_tokens += slot.processed
        self.counters.prompt_seconds += self._prompt_seconds
        self.averages.count_prompt(slot.processed, self._prompt_seconds)
        self._prompt_seconds = 0.0

    def _end(self, slot: Slot) -> None:
        """End the request in a slot if it is complete, or its client has gone."""
        request = slot.request
        if request is None or not (slot.aborted or slot.decoded == request.output):
            return
        if slot.processed and not slot.decoded:  # aborted in the middle of its prompt
            self._count_prompt(slot)
        if slot.decoded:
            seconds = max(_SHORTEST_STREAM, slot.last_token_at - slot.first_token_at)
            self.counters.predicted_tokens += slot.decoded
            self.counters.predicted_seconds += seconds
            self.averages.count_stream(slot.decoded, seconds)
        if not slot.aborted:
            self._clients.schedule_next(request, self._now)
        slot.release(self._now)
