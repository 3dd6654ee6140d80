"""Small servers on loopback that behave, or do not."""

import asyncio
import contextlib
import gzip
import itertools
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.processes import PATIENCE

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(behave: Behaviour) -> AsyncIterator[str]:
    """A server that reads a request and then does what it is told; gives its address."""

    handlers: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await reader.read(65_536)
            await behave(writer)
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers)


def sends(raw: bytes) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return behave


def answers(body: bytes, *headers: str, status: str = "200 OK") -> Behaviour:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers)
    return sends("\r\n".join([*lines, "", ""]).encode() + body)


async def hangs(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(PATIENCE)


async def drips(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(1000):
        writer.write(b"#")
        await writer.drain()
        await asyncio.sleep(0.02)


async def resets(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n# begin")
    await writer.drain()
    # Closed without lingering, the system sends a reset.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def floods(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(200):
        writer.write(b"#" * 999_999 + b"\n")
        await writer.drain()


@cache
def bomb() -> bytes:
    """200 MB of zeros, compressed to 200 kB."""
    return gzip.compress(bytes(200_000_000))


class RecordedServer:
    """Plays pages at the pace at which they were recorded, over and over the last one.

    Args:
        pages: seconds since the start, and the page from then on.
    """

    def __init__(self, pages: Sequence[tuple[float, str]]) -> None:
        self._pages = pages
        self._start = time.monotonic()
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = played.page() if self.path == "/metrics" else "{}"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                """Keep the tests' output clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def page(self) -> str:
        elapsed = time.monotonic() - self._start
        begun = itertools.takewhile(lambda page: page[0] <= elapsed, self._pages)
        return list(begun)[-1][1]

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._start = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
