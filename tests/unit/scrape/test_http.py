"""One request: which failures say that the server's process has ended, and what each says in words."""

import asyncio
import errno
import os
import resource
import socket
import struct
from collections.abc import Awaitable, Callable

import httpx
import pytest

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.http import Response, create_client, get
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import Behaviour, answers, hangs, resets, sends, server


async def request(url: str, transport: httpx.AsyncBaseTransport | None = None, deadline: float = PATIENCE) -> Response:
    async with create_client(url, None, transport) as client:
        return await get(client, "/metrics", headers={}, deadline=deadline, limit=1_000_000)


async def fail(url: str, transport: httpx.AsyncBaseTransport | None = None, deadline: float = PATIENCE) -> ScrapeError:
    with pytest.raises(ScrapeError) as caught:
        await request(url, transport, deadline)
    return caught.value


def raising(error: httpx.HTTPError, *causes: OSError) -> httpx.MockTransport:
    """A network on which every request fails for these causes, wrapped as anyio and httpx wrap them."""

    def handle(_: httpx.Request) -> httpx.Response:
        group = ExceptionGroup("multiple connection attempts failed", causes) if len(causes) > 1 else causes[0]
        attempts = OSError("All connection attempts failed")
        attempts.__cause__ = group
        raise error from attempts

    return httpx.MockTransport(handle)


async def resets_at_once(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def test_only_a_refused_connection_says_that_the_process_has_ended() -> None:
    async def work() -> None:
        port = free_port()
        for host in ("127.0.0.1", "localhost"):
            error = await fail(f"http://{host}:{port}")
            assert (error.reason, error.refused) == (Reason.CONNECT, True), host
            assert error.message == "cannot connect: Connection refused", host
        broken: list[tuple[str, Behaviour, Reason]] = [
            ("reset at once", resets_at_once, Reason.CONNECT),
            ("reset in the middle", resets, Reason.CONNECT),
            ("closed at once", sends(b""), Reason.CONNECT),
            ("not HTTP", sends(b"SSH-2.0-OpenSSH_9.2\r\n"), Reason.CONNECT),
            ("accepted and silent", hangs, Reason.TIMEOUT),
        ]
        for name, behave, reason in broken:
            async with server(behave) as url:
                error = await fail(url, deadline=0.3 if reason is Reason.TIMEOUT else PATIENCE)
                assert (error.reason, error.refused) == (reason, False), name

    asyncio.run(work())


def test_a_server_is_gone_only_if_every_address_refuses() -> None:
    for numbers, refused in (
        ([errno.ECONNREFUSED, errno.ECONNREFUSED], True),
        # localhost on a machine without IPv6: ::1 was never tried.
        ([errno.EADDRNOTAVAIL, errno.ECONNREFUSED], True),
        ([errno.ECONNREFUSED, errno.EAFNOSUPPORT], True),
        ([errno.ECONNREFUSED, errno.ECONNRESET], False),
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH], False),
        ([errno.ENETUNREACH], False),
        ([errno.EADDRNOTAVAIL], False),
        ([errno.ECONNREFUSED, errno.EMFILE], False),
    ):
        transport = raising(httpx.ConnectError(""), *map(os_error, numbers))
        error = asyncio.run(fail("http://server.invalid", transport))
        assert (error.reason, error.refused) == (Reason.CONNECT, refused), numbers


def test_a_broken_connection_says_what_happened() -> None:
    async def work() -> None:
        for behave, message in (
            (resets_at_once, "the connection broke off: Connection reset by peer"),
            (resets, "the connection broke off: Connection reset by peer"),
            (sends(b""), "the server closed the connection without a valid answer"),
        ):
            async with server(behave) as url:
                assert (await fail(url)).message == message
        unknown = await fail("http://no-such-host.invalid:8000")
        assert (unknown.reason, unknown.refused) == (Reason.CONNECT, False)
        assert unknown.message.startswith("the host name in url cannot be resolved: ")

    asyncio.run(work())


def test_a_reset_in_a_tls_handshake_is_a_broken_connection_and_not_bad_tls() -> None:
    async def work() -> None:
        async with server(resets_at_once) as url:
            error = await fail(url.replace("http:", "https:"))
            assert (error.reason, error.refused) == (Reason.CONNECT, False)
            assert error.message == "cannot connect: Connection reset by peer"

    asyncio.run(work())


def without_file_descriptors(work: Callable[[], Awaitable[None]]) -> None:
    """Run with no file descriptor left to open."""

    async def starved() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            await work()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    asyncio.run(starved())


def test_a_shortage_of_file_descriptors_is_the_exporters_own_fault_and_says_what_to_do() -> None:
    async def work() -> None:
        for host in ("127.0.0.1", "localhost"):
            error = await fail(f"http://{host}:1")
            assert (error.reason, error.refused) == (Reason.CONNECT, False), host
            assert error.message.startswith("the exporter has too many open files: raise its limit"), host

    without_file_descriptors(work)


def test_a_good_answer_is_read() -> None:
    async def work() -> None:
        async with server(answers(b"x 1\n")) as url:
            assert (await request(url)).body == b"x 1\n"

    asyncio.run(work())
