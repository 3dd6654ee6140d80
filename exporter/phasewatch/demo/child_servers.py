"""The children of the simulated Ollama behind ports of their own, and the process list in which they are found."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from starlette import responses
from starlette.requests import Request

from phasewatch.demo.llamacpp.endpoints import LlamaResponse
from phasewatch.demo.ollama.child import Child
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.process_list import SimulatedProcess, write_process_list
from phasewatch.demo.servers import Clock, bind_server, build_application, build_llama_response, serve_all

OLLAMA_PROCESS: Final = 4_000
"""Process number of the Ollama; those of its children follow."""

PARENTS: Final = {
    1: SimulatedProcess(("/sbin/init",), 0, 0.0),
    OLLAMA_PROCESS: SimulatedProcess(("/usr/bin/ollama", "serve"), 1, 0.0),
}
"""The processes beside the children. A list without the first one would be that of a mount that hides processes."""

_GONE: Final = 503


class OllamaWithChildren(Protocol):
    """A simulation with children. Times are nanoseconds of its clock."""

    def list_children(self) -> list[Child]:
        """The llama-servers that it runs."""

    def respond_as_child(self, now: int, child: Child, method: str, path: str) -> LlamaResponse:
        """The response of one of its children."""


@dataclass(slots=True)
class ChildServers:
    """The ports of the children. Each child has one of its own, so that a model that is loaded again has another.

    Attributes:
        ollama: the simulation.
        clock: its clock.
        folder: folder of the process list.
    """

    ollama: OllamaWithChildren
    clock: Clock
    folder: Path
    _serving: dict[int, contextlib.AsyncExitStack] = field(default_factory=dict)
    _processes: dict[int, SimulatedProcess] = field(default_factory=lambda: dict(PARENTS))

    async def update(self) -> None:
        """Start the servers of new children, and stop those of children that have ended.

        Raises:
            BindError: there is no free port.
        """
        children = {child.number: child for child in self.ollama.list_children()}
        ended = self._serving.keys() - children.keys()
        for number in ended:
            del self._processes[OLLAMA_PROCESS + number]
        for number in children.keys() - self._serving.keys():
            await self._start(children[number])
        # The list first, so that nobody is sent to a port that is about to be closed.
        write_process_list(self.folder, self._processes)
        for number in ended:
            await self._serving.pop(number).aclose()

    async def close(self) -> None:
        """Stop all."""
        while self._serving:
            await self._serving.popitem()[1].aclose()

    async def _start(self, child: Child) -> None:
        async def respond(request: Request) -> responses.Response:
            if child not in self.ollama.list_children():
                return responses.Response(status_code=_GONE)
            path = f"{request.url.path}?{request.url.query}"
            now = round(self.clock() * SECOND)
            return build_llama_response(self.ollama.respond_as_child(now, child, request.method, path))

        server = bind_server(build_application(respond))
        stack = self._serving[child.number] = contextlib.AsyncExitStack()
        stack.enter_context(server.bound)
        await stack.enter_async_context(serve_all([server]))
        arguments = child.build_arguments(server.port)
        process = SimulatedProcess(arguments, OLLAMA_PROCESS, child.started / SECOND)
        self._processes[OLLAMA_PROCESS + child.number] = process


@contextlib.asynccontextmanager
async def serve_children(ollama: OllamaWithChildren, clock: Clock, folder: Path) -> AsyncIterator[ChildServers]:
    """The ports of the children, which are closed at the end of the block.

    Args:
        ollama: the simulation.
        clock: its clock.
        folder: folder of the process list.
    """
    servers = ChildServers(ollama, clock, folder)
    try:
        await servers.update()
        yield servers
    finally:
        await servers.close()
