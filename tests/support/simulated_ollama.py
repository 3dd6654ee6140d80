"""Ways to a simulated Ollama: by hand, by httpx in simulated time, over loopback in real time; and its users."""

import asyncio
import contextlib
import json
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol, Self

import httpx

from phasewatch.demo.ollama.api import Answer, Model
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.scheduler import Ticket
from phasewatch.demo.ollama.server import Asked, SimulatedOllama
from phasewatch.scrape.http import HTTP_OK
from tests.support.timeline import EPOCH, START, Timeline

URL: Final = "http://127.0.0.1:11434"

_LOOK_SECONDS: Final = 0.02
"""Real time between two looks whether the client of a waiting request is still there."""


class Ollama(SimulatedOllama):
    """A server that remembers: `asked` are all requests so far."""

    def __init__(self, *models: Model, epoch: int = EPOCH, **settings: Any) -> None:
        super().__init__(*models, epoch=epoch, **settings)
        self.asked: list[Asked] = []

    @property
    def shown(self) -> Counter[str]:
        """How often /api/show was asked for each model, by the name in the request."""
        return Counter(json.loads(asked.body)["model"] for asked in self.asked if asked.path == "/api/show")

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Ticket:
        """A request comes in."""
        self.asked.append(Asked(now, method, path, {name.lower(): value for name, value in headers.items()}, body))
        return super().request(now, method, path, headers, body)


class Desk:
    """A server asked by hand, one step after the other; `now` is its clock."""

    def __init__(self, *models: Model, **settings: Any) -> None:
        self.ollama = Ollama(*models, **settings)
        self.now = round(START * SECOND)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * SECOND)
        self.ollama.advance(self.now)

    def send(self, path: str, method: str = "POST", agent: str = "a user", **body: Any) -> Ticket:
        """Send a request and do not wait for its answer."""
        content = json.dumps(body).encode() if method == "POST" else b""
        return self.ollama.request(self.now, method, path, {"User-Agent": agent, "Host": "127.0.0.1:11434"}, content)

    def answer(self, ticket: Ticket) -> tuple[int, Any]:
        """Wait for an answer; its status and JSON."""
        while ticket.answer is None:
            event = self.ollama.next_event()
            assert event is not None, "nothing will ever answer this request"
            self.now = max(self.now, event)
            self.ollama.advance(self.now)
        return ticket.answer.status, json.loads(ticket.answer.body)

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        return self.answer(self.send(path, "GET"))[1]

    def ask(self, agent: str = "a user", **body: Any) -> dict[str, Any]:
        """A request to /api/generate that must succeed, and its answer."""
        status, reply = self.answer(self.send("/api/generate", agent=agent, **body))
        assert status == HTTP_OK, reply
        assert isinstance(reply, dict)
        return reply


class Simulation(Protocol):
    """A server in simulated time, with or without users of its own; times are nanoseconds of its clock."""

    def wall(self, now: int) -> float:
        """Unix seconds."""

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Ticket:
        """A request comes in."""

    def cancel(self, now: int, ticket: Ticket) -> None:
        """A client has left."""

    def next_event(self) -> int | None:
        """When something happens by itself next."""

    def advance(self, now: int) -> None:
        """Let everything happen that happens until now."""


class OllamaTransport(httpx.AsyncBaseTransport):
    """Requests take the simulated time that the server takes; giving one up closes its connection.

    One for all clients of a server: it is here that they wake each other.
    """

    def __init__(self, ollama: Simulation, timeline: Timeline) -> None:
        self._ollama = ollama
        self._timeline = timeline
        self._changed = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """What httpx calls."""
        body = await request.aread()
        now = self._timeline.nanoseconds
        ticket = self._ollama.request(now(), request.method, request.url.path, request.headers, body)
        try:
            while ticket.answer is None:
                await self._until_next_event()
                self._ollama.advance(now())
        except asyncio.CancelledError:
            self._ollama.cancel(now(), ticket)
            self._wake_others()
            raise
        headers = {
            "Content-Type": ticket.answer.content_type,
            "Content-Length": str(len(ticket.answer.body)),
            "Date": formatdate(self._ollama.wall(now()), usegmt=True),
        }
        return httpx.Response(ticket.answer.status, headers=headers, stream=httpx.ByteStream(ticket.answer.body))

    async def _until_next_event(self) -> None:
        event = self._ollama.next_event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if event is None else event / SECOND):
                await self._changed.wait()

    def _wake_others(self) -> None:
        """Whoever waits must look anew: without this request the next event may come sooner. Others only add events."""
        self._changed.set()
        self._changed = asyncio.Event()


class FakeOllama:
    """The server on loopback, in real time or faster: above a `speed` of 1 its wall clock runs ahead of ours."""

    def __init__(self, *models: Model, speed: float = 1.0, port: int = 0, **settings: Any) -> None:
        self.ollama = Ollama(*models, epoch=time.time_ns(), **settings)
        self._speed = speed
        self._start = time.monotonic_ns()
        self._lock = threading.Lock()
        self._closing = False
        self._server = _QuietServer(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def now(self) -> int:
        """The server's clock, in nanoseconds."""
        return round((time.monotonic_ns() - self._start) * self._speed)

    def answer(
        self, connection: socket.socket, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Answer | None:
        """The answer to a request when its time has come; None if the client has left, or the test is over."""
        with self._lock:
            ticket = self.ollama.request(self.now(), method, path, headers, body)
        while ticket.answer is None:
            with self._lock:
                if self._closing or _has_left(connection):
                    self.ollama.cancel(self.now(), ticket)
                    return None
                self.ollama.advance(self.now())
                event = self.ollama.next_event()
            ahead = 0.0 if event is None else (event - self.now()) / SECOND / self._speed
            time.sleep(min(_LOOK_SECONDS, max(0.0, ahead)))
        return ticket.answer

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that left early is no news."""


def _handler(server: FakeOllama) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = server.answer(self.connection, self.command, self.path, dict(self.headers), body)
            if answer is None:
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_GET  # noqa: N815  # the name that http.server looks for

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _has_left(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


@dataclass(frozen=True, slots=True)
class Visit:
    """A user comes after `pause` seconds and asks `requests` times, thinking for `think_seconds` between two."""

    pause: float
    requests: int = 1
    think_seconds: float = 20.0
    words: int = 150
    num_predict: int = 100
    num_ctx: int | None = None
    keep_alive: str | int | None = None


@dataclass(slots=True)
class User:
    """A user of a model who comes and goes, and in a visit goes on with the same talk. `answers` are what came back."""

    model: str
    visits: Sequence[Visit]
    answers: list[dict[str, Any]] = field(default_factory=list)

    async def live(self, transport: OllamaTransport) -> None:
        """All visits, one after the other."""
        async with httpx.AsyncClient(transport=transport, base_url=URL, trust_env=False, timeout=None) as client:  # noqa: S113  # a user waits
            for number, visit in enumerate(self.visits):
                await asyncio.sleep(visit.pause)
                await self._visit(client, number, visit)

    async def _visit(self, client: httpx.AsyncClient, number: int, visit: Visit) -> None:
        talk: list[str] = []
        for turn in range(visit.requests):
            if turn:
                await asyncio.sleep(visit.think_seconds)
            talk += [f"visit{number}.turn{turn}.word{word}" for word in range(visit.words)]
            options = {"num_predict": visit.num_predict, **({"num_ctx": visit.num_ctx} if visit.num_ctx else {})}
            body = {"model": self.model, "prompt": " ".join(talk), "stream": False, "options": options}
            if visit.keep_alive is not None:
                body["keep_alive"] = visit.keep_alive
            answer = await client.post("/api/generate", content=json.dumps(body), headers={"User-Agent": "a user"})
            self.answers.append(answer.json())
            talk += self.answers[-1].get("response", "").split()
