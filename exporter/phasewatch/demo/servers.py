"""The simulated servers' way to loopback: an ASGI application each, all of them on one web server.

The simulations are pure and told the time; here it is that of the machine, in seconds since the demo began.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from phasewatch.app import Server, bind
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.scheduler import Ticket

HOST: Final = "127.0.0.1"

LOOK_SECONDS: Final = 0.05
"""Longest time between two looks whether the client of a waiting request is still there."""

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_STOP_SECONDS: Final = 1
_GIVEN_UP: Final = 503

Clock = Callable[[], float]
"""Seconds since the demo began."""


class Page(Protocol):
    """An answer of a vLLM."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def content_type(self) -> str:
        """Of the body."""

    @property
    def body(self) -> bytes:
        """What the page says."""


class Vllm(Protocol):
    """A simulation that answers at once."""

    def advance(self, now: float) -> None:
        """Let everything happen that happens until now."""

    def answer(self, method: str, path: str) -> Page:
        """The answer to a request."""


class Ollama(Protocol):
    """A simulation whose answers take their time."""

    def advance(self, now: int) -> None:
        """Let everything happen that happens until now."""

    def next_event(self) -> int | None:
        """When something happens by itself next."""

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Ticket:
        """A request comes in."""

    def cancel(self, now: int, ticket: Ticket) -> None:
        """The client of a ticket has closed its connection."""


@dataclass(frozen=True)
class Served:
    """A simulated server on a port of its own.

    Attributes:
        bound: the listening socket.
        application: what answers there.
    """

    bound: socket.socket
    application: ASGIApp

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self.bound.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its base address."""
        return f"http://{HOST}:{self.port}"


def served(application: ASGIApp) -> Served:
    """A simulated server on a free port.

    Args:
        application: what answers there.

    Raises:
        BindError: there is no free port.
    """
    return Served(bind(HOST, 0), application)


def vllm_application(vllm: Vllm, clock: Clock) -> Starlette:
    """What answers for a simulated vLLM.

    Args:
        vllm: the simulation.
        clock: what time it is.
    """

    async def answer(request: Request) -> Response:
        vllm.advance(clock())
        page = vllm.answer(request.method, request.url.path)
        return Response(page.body, page.status, {"Content-Type": page.content_type})

    return _application(answer)


def ollama_application(ollama: Ollama, clock: Clock) -> Starlette:
    """What answers for a simulated Ollama. A client that leaves gives its request up, as does the end of the demo.

    Args:
        ollama: the simulation.
        clock: what time it is.
    """

    def now() -> int:
        return round(clock() * SECOND)

    async def answer(request: Request) -> Response:
        body = await request.body()
        ticket = ollama.request(now(), request.method, request.url.path, request.headers, body)
        while ticket.answer is None:
            if request.state.server.should_exit or await request.is_disconnected():
                ollama.cancel(now(), ticket)
                return Response(status_code=_GIVEN_UP)
            event = ollama.next_event()
            ahead = LOOK_SECONDS if event is None else (event - now()) / SECOND
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, ahead)))
            ollama.advance(now())
        return Response(ticket.answer.body, ticket.answer.status, {"Content-Type": ticket.answer.content_type})

    return _application(answer)


def _application(answer: Callable[[Request], Awaitable[Response]]) -> Starlette:
    application = Starlette(routes=[Route("/{path:path}", answer, methods=_METHODS)])
    application.router.redirect_slashes = False
    return application


@contextlib.asynccontextmanager
async def answering(servers: Sequence[Served]) -> AsyncIterator[None]:
    """Let the servers answer while the block runs, and close their ports after it.

    Args:
        servers: each with its port.
    """
    applications = {server.port: server.application for server in servers}

    async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"server": server}
        await applications[scope["server"][1]](scope, receive, send)

    server = Server(
        uvicorn.Config(
            by_port,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[one.bound for one in servers]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
