"""Ways to drive a simulated Ollama: step by step, by httpx in simulated time, over loopback in real time, by users."""

import asyncio
import contextlib
import errno
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
from pathlib import Path
from typing import Any, Final, Protocol, Self

import httpx

from phasewatch.demo.child_servers import OLLAMA_PROCESS, PARENTS
from phasewatch.demo.llamacpp.endpoints import LlamaResponse
from phasewatch.demo.ollama.child import Child
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from phasewatch.demo.ollama.scheduler import Exchange
from phasewatch.demo.ollama.server import HttpRequest, SimulatedOllama
from phasewatch.demo.process_list import SimulatedProcess, write_process_list
from phasewatch.scrape.http import HTTP_OK, Response
from tests.support.timeline import EPOCH, START, Timeline

URL: Final = "http://127.0.0.1:11434"

FIRST_CHILD_PORT: Final = 40_000
"""Port of the first child in simulated time; each further one has the next."""

_POLL_SECONDS: Final = 0.02
"""Real time between two checks whether the client of a pending request is still connected."""


class RecordingOllama(SimulatedOllama):
    """A server that keeps all requests it received in `requests`."""

    def __init__(self, *models: Model, epoch: int = EPOCH, **settings: Any) -> None:
        super().__init__(*models, epoch=epoch, **settings)
        self.requests: list[HttpRequest] = []

    @property
    def show_counts(self) -> Counter[str]:
        """Number of requests to /api/show for each model, by the name in the request."""
        return Counter(json.loads(request.body)["model"] for request in self.requests if request.path == "/api/show")

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
        """Receive a request."""
        lower_case = {name.lower(): value for name, value in headers.items()}
        self.requests.append(HttpRequest(now, method, path, lower_case, body))
        return super().request(now, method, path, headers, body)


class StepwiseOllama:
    """A server that a test sends requests to and whose time it advances step by step; `now` is its clock."""

    def __init__(self, *models: Model, **settings: Any) -> None:
        self.ollama = RecordingOllama(*models, **settings)
        self.now = round(START * SECOND)

    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.now += round(seconds * SECOND)
        self.ollama.advance(self.now)

    def send(self, path: str, method: str = "POST", agent: str = "a user", **body: Any) -> Exchange:
        """Send a request without waiting for its response."""
        content = json.dumps(body).encode() if method == "POST" else b""
        return self.ollama.request(self.now, method, path, {"User-Agent": agent, "Host": "127.0.0.1:11434"}, content)

    def complete(self, exchange: Exchange) -> tuple[int, Any]:
        """Wait for a response; its status and JSON."""
        while exchange.response is None:
            event = self.ollama.find_next_event()
            assert event is not None, "no event is left that could complete this request"
            self.now = max(self.now, event)
            self.ollama.advance(self.now)
        return exchange.response.status, json.loads(exchange.response.body)

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        return self.complete(self.send(path, "GET"))[1]

    def generate(self, agent: str = "a user", **body: Any) -> dict[str, Any]:
        """Send a request to /api/generate that must succeed; the JSON of its response."""
        status, reply = self.complete(self.send("/api/generate", agent=agent, **body))
        assert status == HTTP_OK, reply
        assert isinstance(reply, dict)
        return reply


class Simulation(Protocol):
    """A server in simulated time, with or without users of its own. Times are nanoseconds of its clock."""

    def wall_clock(self, now: int) -> float:
        """Unix seconds of its clock."""

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
        """Receive a request."""

    def cancel(self, now: int, exchange: Exchange) -> None:
        """Handle a connection that its client has closed."""

    def find_next_event(self) -> int | None:
        """Time of the next event; None if there is none."""

    def advance(self, now: int) -> None:
        """Process all events up to `now`."""

    def list_children(self) -> list[Child]:
        """The llama-servers that it runs."""

    def respond_as_child(self, now: int, child: Child, method: str, path: str) -> LlamaResponse:
        """The response of one of its children."""


class OllamaTransport(httpx.AsyncBaseTransport):
    """Requests take the simulated time that the server takes; cancelling one closes its connection.

    All clients of a server must share one transport, since it wakes them when another one disconnects. Its children
    answer at `FIRST_CHILD_PORT` and above.

    Args:
        ollama: the server.
        timeline: the simulated time.
        process_list: folder that lists its children after each request; None for nowhere.
    """

    def __init__(self, ollama: Simulation, timeline: Timeline, process_list: Path | None = None) -> None:
        self._ollama = ollama
        self._timeline = timeline
        self._process_list = process_list
        self._changed = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Called by httpx."""
        body = await request.aread()
        now = self._timeline.nanoseconds
        if (request.url.port or 0) >= FIRST_CHILD_PORT:
            return self._ask_child(request)
        exchange = self._ollama.request(now(), request.method, request.url.path, request.headers, body)
        try:
            while exchange.response is None:
                await self._until_next_event()
                self._ollama.advance(now())
        except asyncio.CancelledError:
            self._ollama.cancel(now(), exchange)
            self._wake_others()
            raise
        finally:
            self._write_process_list()
        response = exchange.response
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Date": formatdate(self._ollama.wall_clock(now()), usegmt=True),
        }
        return httpx.Response(response.status, headers=headers, stream=httpx.ByteStream(response.body))

    def _ask_child(self, request: httpx.Request) -> httpx.Response:
        now = self._timeline.nanoseconds()
        self._ollama.advance(now)
        self._write_process_list()
        children = {FIRST_CHILD_PORT + child.number: child for child in self._ollama.list_children()}
        child = children.get(request.url.port or 0)
        if child is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            raise httpx.ConnectError("nothing listens there") from refused
        response = self._ollama.respond_as_child(now, child, request.method, request.url.raw_path.decode())
        headers = {"Content-Type": response.content_type, **response.headers}
        return httpx.Response(response.status, headers=headers, stream=httpx.ByteStream(response.body))

    def _write_process_list(self) -> None:
        if self._process_list is None:
            return
        children = {
            OLLAMA_PROCESS + child.number: SimulatedProcess(
                child.build_arguments(FIRST_CHILD_PORT + child.number), OLLAMA_PROCESS, child.started / SECOND
            )
            for child in self._ollama.list_children()
        }
        write_process_list(self._process_list, {**PARENTS, **children})

    async def _until_next_event(self) -> None:
        event = self._ollama.find_next_event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if event is None else event / SECOND):
                await self._changed.wait()

    def _wake_others(self) -> None:
        """Make waiting requests ask for the next event again: without the cancelled request it may come sooner."""
        self._changed.set()
        self._changed = asyncio.Event()


class FakeOllama:
    """The server on loopback, in real time or faster: with a `speed` above 1 its wall clock runs ahead of ours."""

    def __init__(self, *models: Model, speed: float = 1.0, port: int = 0, **settings: Any) -> None:
        self.ollama = RecordingOllama(*models, epoch=time.time_ns(), **settings)
        self._speed = speed
        self._start = time.monotonic_ns()
        self._lock = threading.Lock()
        self._closing = False
        self._server = _QuietServer(("127.0.0.1", port), _build_handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def now(self) -> int:
        """The server's clock, nanoseconds."""
        return round((time.monotonic_ns() - self._start) * self._speed)

    def respond(
        self, connection: socket.socket, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Response | None:
        """Wait for the response to a request; None if the client has disconnected, or the test is over."""
        with self._lock:
            exchange = self.ollama.request(self.now(), method, path, headers, body)
        while exchange.response is None:
            with self._lock:
                if self._closing or _is_disconnected(connection):
                    self.ollama.cancel(self.now(), exchange)
                    return None
                self.ollama.advance(self.now())
                event = self.ollama.find_next_event()
            until_event = 0.0 if event is None else (event - self.now()) / SECOND / self._speed
            time.sleep(min(_POLL_SECONDS, max(0.0, until_event)))
        return exchange.response

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
        """Ignore clients that disconnect early."""


def _build_handler(server: FakeOllama) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            response = server.respond(self.connection, self.command, self.path, dict(self.headers), body)
            if response is None:
                return
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        do_POST = do_GET  # noqa: N815  # the name that http.server looks for

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _is_disconnected(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


@dataclass(frozen=True, slots=True)
class Visit:
    """After `pause` seconds, a conversation of `requests` requests, with `think_seconds` between two."""

    pause: float
    requests: int = 1
    think_seconds: float = 20.0
    words: int = 150
    num_predict: int = 100
    num_ctx: int | None = None
    keep_alive: str | int | None = None


@dataclass(slots=True)
class User:
    """A user of a model. A visit is one conversation, whose prompts grow. `responses` are the JSON bodies received."""

    model: str
    visits: Sequence[Visit]
    responses: list[dict[str, Any]] = field(default_factory=list)

    async def live(self, transport: OllamaTransport) -> None:
        """Make all visits, one after the other."""
        async with httpx.AsyncClient(transport=transport, base_url=URL, trust_env=False, timeout=None) as client:  # noqa: S113  # a user waits
            for number, visit in enumerate(self.visits):
                await asyncio.sleep(visit.pause)
                await self._visit(client, number, visit)

    async def _visit(self, client: httpx.AsyncClient, number: int, visit: Visit) -> None:
        words: list[str] = []
        for turn in range(visit.requests):
            if turn:
                await asyncio.sleep(visit.think_seconds)
            words += [f"visit{number}.turn{turn}.word{word}" for word in range(visit.words)]
            options = {"num_predict": visit.num_predict, **({"num_ctx": visit.num_ctx} if visit.num_ctx else {})}
            body = {"model": self.model, "prompt": " ".join(words), "stream": False, "options": options}
            if visit.keep_alive is not None:
                body["keep_alive"] = visit.keep_alive
            response = await client.post("/api/generate", content=json.dumps(body), headers={"User-Agent": "a user"})
            self.responses.append(response.json())
            words += self.responses[-1].get("response", "").split()
