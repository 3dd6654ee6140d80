"""HTTP on loopback for the simulated servers: one ASGI application each, all on one uvicorn server.

The simulations are pure and are given the time; here it is the time of a clock, in seconds since the demo started.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import uvicorn
from starlette import responses
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from phasewatch.demo.llamacpp.endpoints import LlamaResponse
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.scheduler import Exchange
from phasewatch.scrape.http import Response
from phasewatch.web.server import Server, bind

HOST: Final = "127.0.0.1"

POLL_SECONDS: Final = 0.05
"""Longest time between two checks whether the client of a pending request is still connected."""

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_STOP_SECONDS: Final = 1
_GIVEN_UP: Final = 503

Clock = Callable[[], float]
"""Returns the seconds since the demo started."""


class Vllm(Protocol):
    """A simulation that responds at once. Times are seconds of its clock."""

    def advance(self, now: float) -> None:
        """Process all events up to `now`."""

    def respond(self, method: str, path: str) -> Response:
        """The response to a request."""


class Llama(Protocol):
    """A simulated llama-server. Times are seconds of its clock."""

    def advance(self, now: float) -> None:
        """Process all events up to `now`."""

    def respond(self, method: str, path: str) -> LlamaResponse:
        """The response to a request."""


class Ollama(Protocol):
    """A simulation whose responses take time. Times are nanoseconds of its clock."""

    def advance(self, now: int) -> None:
        """Process all events up to `now`."""

    def find_next_event(self) -> int | None:
        """Time of the next event; None if there is none."""

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
        """Receive a request."""

    def cancel(self, now: int, exchange: Exchange) -> None:
        """Handle a connection that its client has closed."""


@dataclass(frozen=True)
class BoundServer:
    """A simulated server with its port.

    Attributes:
        bound: the listening socket.
        application: the application that responds there.
    """

    bound: socket.socket
    application: ASGIApp

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self.bound.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://{HOST}:{self.port}"


def bind_server(application: ASGIApp) -> BoundServer:
    """Bind a simulated server to a free port.

    Args:
        application: the application that responds there.

    Raises:
        BindError: there is no free port.
    """
    return BoundServer(bind(HOST, 0), application)


def build_vllm_application(vllm: Vllm, clock: Clock) -> Starlette:
    """The application of a simulated vLLM.

    Args:
        vllm: the simulation.
        clock: its clock.
    """

    async def respond(request: Request) -> responses.Response:
        vllm.advance(clock())
        response = vllm.respond(request.method, request.url.path)
        return _to_starlette(response)

    return build_application(respond)


def build_llama_application(llama: Llama, clock: Clock) -> Starlette:
    """The application of a simulated llama-server.

    Args:
        llama: the simulation.
        clock: its clock.
    """

    async def respond(request: Request) -> responses.Response:
        llama.advance(clock())
        return build_llama_response(llama.respond(request.method, f"{request.url.path}?{request.url.query}"))

    return build_application(respond)


def build_ollama_application(ollama: Ollama, clock: Clock) -> Starlette:
    """The application of a simulated Ollama. Pending requests are cancelled by a disconnect and by the end of the demo.

    Args:
        ollama: the simulation.
        clock: its clock.
    """

    def now() -> int:
        return round(clock() * SECOND)

    async def respond(request: Request) -> responses.Response:
        body = await request.body()
        exchange = ollama.request(now(), request.method, request.url.path, request.headers, body)
        while exchange.response is None:
            if request.state.server.should_exit or await request.is_disconnected():
                ollama.cancel(now(), exchange)
                return responses.Response(status_code=_GIVEN_UP)
            event = ollama.find_next_event()
            until_event = POLL_SECONDS if event is None else (event - now()) / SECOND
            await asyncio.sleep(min(POLL_SECONDS, max(0.0, until_event)))
            ollama.advance(now())
        return _to_starlette(exchange.response)

    return build_application(respond)


def _to_starlette(response: Response) -> responses.Response:
    return responses.Response(response.body, response.status, {"Content-Type": response.content_type})


def build_llama_response(response: LlamaResponse) -> responses.Response:
    """A response of a simulated llama-server over HTTP."""
    headers = {"Content-Type": response.content_type, **response.headers}
    return responses.Response(response.body, response.status, headers)


def build_application(respond: Callable[[Request], Awaitable[responses.Response]]) -> Starlette:
    """The application that answers each request, of any method and path, by `respond`."""
    application = Starlette(routes=[Route("/{path:path}", respond, methods=_METHODS)])
    application.router.redirect_slashes = False
    return application


@contextlib.asynccontextmanager
async def serve_all(servers: Sequence[BoundServer]) -> AsyncIterator[None]:
    """Serve while the block runs, then close the ports.

    Args:
        servers: the servers.
    """
    applications = {server.port: server.application for server in servers}

    async def dispatch_by_port(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"server": server}
        await applications[scope["server"][1]](scope, receive, send)

    server = Server(
        uvicorn.Config(
            dispatch_by_port,
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
