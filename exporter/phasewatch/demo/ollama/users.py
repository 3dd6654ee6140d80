"""A simulated Ollama with users of its own, who come and go by a script that repeats every five minutes.

So that within minutes a model can be seen to be loaded, to answer, to be pushed out and to leave by itself.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from phasewatch.demo.ollama.demo_models import CHAT, LARGE, MODELS, NUM_CTX, SMALL
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import Ledger
from phasewatch.demo.ollama.scheduler import Ticket
from phasewatch.demo.ollama.server import SimulatedOllama

CYCLE_SECONDS: Final = 300.0

KEEP_ALIVE_SECONDS: Final = 60.0
"""Ollama's default is five minutes, which is long for somebody who watches."""

MAX_LOADED: Final = 2

_HEADERS: Final = {"User-Agent": "a simulated user", "Host": "127.0.0.1"}
_LATEST_SECONDS: Final = 5.0
_WORDS: Final = (20, 120)
_REPLY_TOKENS: Final = (60, 220)


@dataclass(frozen=True, slots=True)
class Visit:
    """A user comes `at` seconds into the cycle and asks a model several times, with pauses between."""

    at: float
    model: str
    turns: int
    pause_seconds: float


VISITS: Final = (
    Visit(at=1.0, model=CHAT.name, turns=5, pause_seconds=12.0),
    Visit(at=50.0, model=LARGE.name, turns=4, pause_seconds=18.0),
    Visit(at=160.0, model=CHAT.name, turns=3, pause_seconds=10.0),
    Visit(at=200.0, model=SMALL.name, turns=6, pause_seconds=8.0),
)


@dataclass(slots=True, eq=False)
class _Talk:
    """A visit under way: its next request is `due`, or `ticket` waits for an answer."""

    visit: Visit
    due: int
    random: Random
    turn: int = 0
    words: list[str] = field(default_factory=list)
    ticket: Ticket | None = None


class InhabitedOllama:
    """The server with its users. Times are nanoseconds since its start.

    Args:
        seed: the same seed gives the same users.
        epoch: Unix nanoseconds of its start.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        self._server = SimulatedOllama(
            *MODELS, epoch=epoch, num_ctx=NUM_CTX, keep_alive=KEEP_ALIVE_SECONDS, max_loaded=MAX_LOADED
        )
        self._arrivals = _plan(seed)
        self._next = next(self._arrivals)
        self._talks: list[_Talk] = []

    @property
    def ledger(self) -> Ledger:
        """What the requests did to each other."""
        return self._server.ledger

    def stand_still(self, nanoseconds: int) -> None:
        """Let the clock on the wall go on while nothing else does."""
        self._server.stand_still(nanoseconds)

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Ticket:
        """A request comes in from outside."""
        self.advance(now)
        return self._server.request(now, method, path, headers, body)

    def cancel(self, now: int, ticket: Ticket) -> None:
        """The client of a ticket has closed its connection."""
        self.advance(now)
        self._server.cancel(now, ticket)

    def next_event(self) -> int:
        """When something happens by itself next."""
        own = self._server.next_event()
        due = [talk.due for talk in self._talks if talk.ticket is None]
        return min([self._next.due, *due, *([] if own is None else [own])])

    def advance(self, now: int) -> None:
        """Let everything happen that happens until now."""
        while (event := self.next_event()) <= now:
            self._server.advance(event)
            self._live(event)
        self._server.advance(now)

    def _live(self, now: int) -> None:
        if self._next.due <= now:
            self._talks.append(self._next)
            self._next = next(self._arrivals)
        for talk in self._talks:
            if talk.ticket is not None and talk.ticket.answer is not None:
                talk.words += json.loads(talk.ticket.answer.body).get("response", "").split()
                talk.ticket, talk.turn = None, talk.turn + 1
                talk.due = now + round(talk.visit.pause_seconds * talk.random.uniform(0.7, 1.3) * SECOND)
            elif talk.ticket is None and talk.due <= now:
                self._ask(now, talk)
        self._talks = [talk for talk in self._talks if talk.turn < talk.visit.turns]

    def _ask(self, now: int, talk: _Talk) -> None:
        talk.words += [f"visit{talk.due}.word{index}" for index in range(talk.random.randint(*_WORDS))]
        options = {"num_predict": talk.random.randint(*_REPLY_TOKENS)}
        body = {"model": talk.visit.model, "prompt": " ".join(talk.words), "stream": False, "options": options}
        talk.ticket = self._server.request(now, "POST", "/api/generate", _HEADERS, json.dumps(body).encode())


def _plan(seed: int) -> Iterator[_Talk]:
    """All visits for ever, each up to five seconds late. What the others do changes nothing about one."""
    random = Random(seed)  # noqa: S311  # to be the same again is the point
    begin = 0.0
    while True:
        for visit in VISITS:
            late = random.uniform(0, _LATEST_SECONDS)
            own = Random(random.getrandbits(64))  # noqa: S311  # as above
            yield _Talk(visit, round((begin + visit.at + late) * SECOND), own)
        begin += CYCLE_SECONDS
