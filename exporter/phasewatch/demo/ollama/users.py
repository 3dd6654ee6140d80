"""A simulated Ollama with its own users, who follow a script that repeats every five minutes.

The script makes models load, respond, get evicted and expire within minutes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from phasewatch.demo.llamacpp.endpoints import LlamaResponse
from phasewatch.demo.ollama.child import Child
from phasewatch.demo.ollama.demo_models import CHAT, LARGE, MODELS, NUM_CTX, SMALL
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import HarmLedger
from phasewatch.demo.ollama.scheduler import Exchange
from phasewatch.demo.ollama.server import SimulatedOllama

CYCLE_SECONDS: Final = 300.0

KEEP_ALIVE_SECONDS: Final = 60.0
"""Ollama's default of five minutes is too long for a demo."""

MAX_LOADED: Final = 2

_HEADERS: Final = {"User-Agent": "a simulated user", "Host": "127.0.0.1"}
_MAX_LATENESS_SECONDS: Final = 5.0
_WORDS: Final = (20, 120)
_REPLY_TOKENS: Final = (60, 220)


@dataclass(frozen=True, slots=True)
class ScriptedVisit:
    """A conversation of a user with a model.

    Attributes:
        at: when it begins, seconds since the beginning of the cycle.
        model: name of the model.
        turns: number of requests.
        pause_seconds: mean time between a response and the next request.
    """

    at: float
    model: str
    turns: int
    pause_seconds: float


VISITS: Final = (
    ScriptedVisit(at=1.0, model=CHAT.name, turns=5, pause_seconds=12.0),
    ScriptedVisit(at=50.0, model=LARGE.name, turns=4, pause_seconds=18.0),
    ScriptedVisit(at=160.0, model=CHAT.name, turns=3, pause_seconds=10.0),
    ScriptedVisit(at=200.0, model=SMALL.name, turns=6, pause_seconds=8.0),
)


@dataclass(slots=True, eq=False)
class _Conversation:
    """A visit in progress: its next request is `due`, or `exchange` waits for a response."""

    visit: ScriptedVisit
    due: int
    random: Random
    turn: int = 0
    words: list[str] = field(default_factory=list)
    exchange: Exchange | None = None


class OllamaWithUsers:
    """The server and its users. Times are nanoseconds since its start.

    Args:
        seed: equal seeds give identical users.
        epoch: Unix nanoseconds of its start.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        self._server = SimulatedOllama(
            *MODELS,
            epoch=epoch,
            num_ctx=NUM_CTX,
            keep_alive=KEEP_ALIVE_SECONDS,
            max_loaded=MAX_LOADED,
            child_metrics=True,
        )
        self._arrivals = _generate_conversations(seed)
        self._next = next(self._arrivals)
        self._conversations: list[_Conversation] = []

    @property
    def ledger(self) -> HarmLedger:
        """What the requests did to each other."""
        return self._server.ledger

    def list_children(self) -> list[Child]:
        """The llama-servers that it runs."""
        return self._server.list_children()

    def respond_as_child(self, now: int, child: Child, method: str, path: str) -> LlamaResponse:
        """The response of one of its children to a request to the child's own port."""
        self.advance(now)
        return self._server.respond_as_child(now, child, method, path)

    def advance_wall_clock(self, nanoseconds: int) -> None:
        """Advance the wall clock without advancing simulated time (the host was suspended)."""
        self._server.advance_wall_clock(nanoseconds)

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
        """Receive a request from outside."""
        self.advance(now)
        return self._server.request(now, method, path, headers, body)

    def cancel(self, now: int, exchange: Exchange) -> None:
        """Handle a connection that its client has closed."""
        self.advance(now)
        self._server.cancel(now, exchange)

    def find_next_event(self) -> int:
        """Time of the next event of the server or a user."""
        server_event = self._server.find_next_event()
        due = [conversation.due for conversation in self._conversations if conversation.exchange is None]
        return min([self._next.due, *due, *([] if server_event is None else [server_event])])

    def advance(self, now: int) -> None:
        """Process all events up to `now`."""
        while (event := self.find_next_event()) <= now:
            self._server.advance(event)
            self._advance_users(event)
        self._server.advance(now)

    def _advance_users(self, now: int) -> None:
        if self._next.due <= now:
            self._conversations.append(self._next)
            self._next = next(self._arrivals)
        for conversation in self._conversations:
            if conversation.exchange is not None and conversation.exchange.response is not None:
                conversation.words += json.loads(conversation.exchange.response.body).get("response", "").split()
                conversation.exchange, conversation.turn = None, conversation.turn + 1
                pause = conversation.visit.pause_seconds * conversation.random.uniform(0.7, 1.3)
                conversation.due = now + round(pause * SECOND)
            elif conversation.exchange is None and conversation.due <= now:
                self._ask(now, conversation)
        self._conversations = [one for one in self._conversations if one.turn < one.visit.turns]

    def _ask(self, now: int, conversation: _Conversation) -> None:
        count = conversation.random.randint(*_WORDS)
        conversation.words += [f"visit{conversation.due}.word{index}" for index in range(count)]
        options = {"num_predict": conversation.random.randint(*_REPLY_TOKENS)}
        prompt = " ".join(conversation.words)
        body = {"model": conversation.visit.model, "prompt": prompt, "stream": False, "options": options}
        conversation.exchange = self._server.request(now, "POST", "/api/generate", _HEADERS, json.dumps(body).encode())


def _generate_conversations(seed: int) -> Iterator[_Conversation]:
    """All visits, endlessly, each up to five seconds late. Visits do not influence each other."""
    random = Random(seed)  # noqa: S311  # a simulation must be repeatable
    cycle_start = 0.0
    while True:
        for visit in VISITS:
            lateness = random.uniform(0, _MAX_LATENESS_SECONDS)
            own_random = Random(random.getrandbits(64))  # noqa: S311  # as above
            yield _Conversation(visit, round((cycle_start + visit.at + lateness) * SECOND), own_random)
        cycle_start += CYCLE_SECONDS
