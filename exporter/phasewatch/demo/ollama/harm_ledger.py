"""What requests did to a simulated Ollama and to each other, each effect attributed to the request that caused it."""

import enum
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from phasewatch.demo.ollama.go_time import SECOND

MAX_EVENTS: Final = 10_000
"""The ledger keeps the newest events, so that a server can run for weeks."""

MAX_PROBES: Final = 10_000
"""The number of newest probes for which the ledger keeps whether they waited."""


class Harm(enum.Enum):
    """What a request can do to others; the value describes it."""

    LOAD = "loaded a model"
    RELOAD = "reloaded a model with other options"
    EVICTION = "pushed out another model"
    KEEP_ALIVE = "changed how long a model stays after its users' requests"
    PROLONGED = "kept a model alive beyond what its users caused"
    UNBOUNDED = "set no limit to the reply"
    REMOTE = "asked a model that is run, and billed, elsewhere"
    DELAY = "held up a user's request"
    CACHE_HIT = "repeated a prompt that was already computed"


UNAVOIDABLE: Final = frozenset({Harm.DELAY, Harm.CACHE_HIT})
"""What a probe may do: a user who arrives while it runs has to wait until it ends."""


@dataclass(frozen=True, slots=True)
class HarmEvent:
    """One effect of a request.

    Attributes:
        at: nanoseconds of the server's clock.
        harm: the kind of effect.
        model: the model that the request asked for.
        by_probe: whether the request was a probe.
        detail: what exactly happened.
        seconds: duration of a delay.
    """

    at: int
    harm: Harm
    model: str
    by_probe: bool
    detail: str
    seconds: float = 0.0

    def __str__(self) -> str:
        who = "a probe" if self.by_probe else "a user"
        return f"{self.at / SECOND:.3f} s: {who} of {self.model} {self.harm.value}: {self.detail}"


@dataclass(slots=True)
class HarmLedger:
    """The effects of all requests, and statistics of the probes.

    Attributes:
        events: the newest events.
        probes: number of probes received.
        probe_seconds: time that probes occupied a slot.
        waited: whether each of the newest ended probes waited behind a user's request.
    """

    events: deque[HarmEvent] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    probes: int = 0
    probe_seconds: float = 0.0
    waited: list[bool] = field(default_factory=list)

    def record_probe_end(self, *, waited: bool) -> None:
        """Record that a probe has ended, and whether it waited behind a user's request."""
        self.waited.append(waited)
        del self.waited[:-MAX_PROBES]

    def select(self, *kinds: Harm, by_probe: bool = True) -> list[HarmEvent]:
        """The events of these kinds that were caused by probes, or by users."""
        return [event for event in self.events if event.harm in kinds and event.by_probe is by_probe]

    def select_forbidden(self) -> list[HarmEvent]:
        """The events that probes must never cause."""
        return self.select(*set(Harm) - UNAVOIDABLE)

    def sum_delays(self) -> float:
        """Total time that users waited behind probes, seconds."""
        return sum(event.seconds for event in self.select(Harm.DELAY))

    def find_longest_waiting_run(self) -> int:
        """The largest number of consecutive probes that waited behind a user's request."""
        return max((sum(1 for _ in run) for waited, run in itertools.groupby(self.waited) if waited), default=0)
