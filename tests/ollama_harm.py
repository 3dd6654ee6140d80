"""What probes did to a simulated Ollama and its users, each thing put down to the request that caused it."""

import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from timeline import SECOND, START


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


_UNAVOIDABLE = frozenset({Harm.DELAY, Harm.CACHE_HIT})


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
        return f"{self.at / SECOND - START:.3f} s: {who} of {self.model} {self.harm.value}: {self.detail}"


@dataclass(slots=True)
class Ledger:
    """All events; of probes also how many there were, how long they ran, and which waited behind a user's request."""

    events: list[Event] = field(default_factory=list)
    probes: int = 0
    probe_seconds: float = 0.0
    waited: list[bool] = field(default_factory=list)

    def of(self, *kinds: Harm, by_probe: bool = True) -> list[Event]:
        """The events of these kinds that probes, or users, have caused."""
        return [event for event in self.events if event.harm in kinds and event.by_probe is by_probe]

    def delayed_seconds(self) -> float:
        """How long users waited behind probes, all together."""
        return sum(event.seconds for event in self.of(Harm.DELAY))

    def longest_run_of_waits(self) -> int:
        """Most probes in a row that waited behind a user's request."""
        return max((sum(1 for _ in run) for waited, run in itertools.groupby(self.waited) if waited), default=0)

    def assert_harmless(self, *, probes: int = 1) -> None:
        """No probe changed anything, and there were as many as `probes` at least: none harms nobody either."""
        assert self.probes >= probes, f"{self.probes} probes, at least {probes} expected"
        _assert_none(self.of(*set(Harm) - _UNAVOIDABLE))

    def assert_uncached(self) -> None:
        """Every probe's prompt was computed, so that its time means something."""
        _assert_none(self.of(Harm.CACHE_HIT))

    def assert_backs_off(self) -> None:
        """After a probe that waited behind a user's request the next one found the server free."""
        run = self.longest_run_of_waits()
        assert run <= 1, f"{run} probes in a row waited behind users' requests"

    def assert_within_budget(self, share: float, seconds: float) -> None:
        """Probes held the slot for no larger share of the time."""
        used = self.probe_seconds / seconds
        assert used <= share, f"probes held the slot for {used:.2%} of {seconds:g} s, allowed are {share:.2%}"


def _assert_none(events: Iterable[Event]) -> None:
    told = [str(event) for event in events]
    assert not told, "\n".join(told)
