"""What probes did to a simulated Ollama and its users, each thing put down to the request that caused it."""

import enum
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from phasewatch.demo.ollama.go_time import SECOND

MOST_EVENTS: Final = 10_000
"""The ledger keeps the newest events, so that a server may run for weeks."""

MOST_PROBES: Final = 10_000
"""As many of the newest probes are known one by one."""


class Harm(enum.Enum):
    """What a request can do to others; the value says it in words."""

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
"""What a probe may do: a user who comes while it runs waits for its end."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a request did. `seconds` is how long, for what lasts: delays and prolonged lives."""

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
class Ledger:
    """The newest events; of probes also how many there were, how long they ran, and which of the newest that have ended
    waited behind a user's request.
    """

    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    probes: int = 0
    probe_seconds: float = 0.0
    waited: list[bool] = field(default_factory=list)

    def end_probe(self, *, waited: bool) -> None:
        """Note that a probe has ended, and whether it waited behind a user's request."""
        self.waited.append(waited)
        del self.waited[:-MOST_PROBES]

    def of(self, *kinds: Harm, by_probe: bool = True) -> list[Event]:
        """The events of these kinds that probes, or users, have caused."""
        return [event for event in self.events if event.harm in kinds and event.by_probe is by_probe]

    def harmful(self) -> list[Event]:
        """What probes did that they must never do."""
        return self.of(*set(Harm) - UNAVOIDABLE)

    def delayed_seconds(self) -> float:
        """How long users waited behind probes, all together."""
        return sum(event.seconds for event in self.of(Harm.DELAY))

    def longest_run_of_waits(self) -> int:
        """Most probes in a row that waited behind a user's request."""
        return max((sum(1 for _ in run) for waited, run in itertools.groupby(self.waited) if waited), default=0)
