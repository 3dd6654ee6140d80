"""One request: which failures say that the server's process has ended, and what each says in words."""

import asyncio
import errno
import os
import resource
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping

import httpx
import pytest

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.http import Response, create_client, get, post
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import Behaviour, answers, hangs, resets, sends, server
from tests.support.timeline import Timeline


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
        # The handshake was waiting for the server's part of it.
        reset = os_error(errno.ECONNRESET)
        reset.__context__ = ssl.SSLWantReadError()
        assert (await fail("https://h", raising(httpx.ConnectError(""), reset))).reason is Reason.CONNECT

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


def test_a_request_over_a_client_that_was_closed_is_a_failed_request_and_not_a_defect() -> None:
    async def work() -> ScrapeError:
        client = create_client("http://h:8000", None, httpx.MockTransport(lambda _: httpx.Response(200)))
        await client.aclose()
        with pytest.raises(ScrapeError) as raised:
            await get(client, "/slots", headers={}, deadline=PATIENCE, limit=100)
        return raised.value

    error = asyncio.run(work())
    assert (error.reason, error.refused) == (Reason.CONNECT, False)


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


class Origin:
    """A server with redirects: path -> status and Location; any other path has a page. Keeps what it was asked."""

    def __init__(self, redirects: Mapping[str, tuple[int, str]]) -> None:
        self.asked: list[httpx.Request] = []
        self._redirects = redirects

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        status, location = self._redirects.get(request.url.raw_path.decode(), (200, ""))
        headers = {"Location": location} if location else {}
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(b"x 1\n"))


def ask(origin: Origin, path: str = "/metrics", base: str = "http://h:8000") -> Response:
    async def work() -> Response:
        async with create_client(base, None, origin.transport()) as client:
            return await get(client, path, headers={"Authorization": "Bearer s"}, deadline=PATIENCE, limit=1_000_000)

    return asyncio.run(work())


def test_a_redirect_that_only_moves_the_trailing_slash_is_followed_with_the_same_headers() -> None:
    for status in (301, 302, 307, 308):
        for base, path, location, goal in (
            ("http://h:8000", "/metrics", "/metrics/", "/metrics/"),
            ("http://h:8000", "/metrics/", "/metrics", "/metrics"),
            ("http://h:8000", "/metrics", "http://h:8000/metrics/", "/metrics/"),
            ("http://h", "/metrics", "http://h:80/metrics/", "/metrics/"),
            ("http://h:8000", "/metrics", "metrics/", "/metrics/"),
            ("http://h:8000/vllm", "/v1/metrics", "/vllm/v1/metrics/", "/vllm/v1/metrics/"),
            ("http://h:8000", "/info?a=b", "/info/?a=b", "/info/?a=b"),
        ):
            asked = httpx.URL(base + path).raw_path.decode()
            origin = Origin({asked: (status, location)})
            response = ask(origin, path, base)
            assert (response.status, response.body) == (200, b"x 1\n"), (status, location)
            assert [request.url.raw_path.decode() for request in origin.asked] == [asked, goal], (status, location)
            assert origin.asked[1].headers == origin.asked[0].headers, (status, location)


def test_any_other_redirect_is_not_followed() -> None:
    for status, location in (
        (307, "http://other:8000/metrics/"),
        (307, "http://h:8001/metrics/"),
        (307, "https://h:8000/metrics/"),
        (307, "//other/metrics/"),
        (307, "http://user:word@h:8000/metrics/"),
        (307, "/metrics//"),
        (307, "/metrics/?a=b"),
        (307, "/metrics/x"),
        (307, "/login"),
        (307, ""),
        (303, "/metrics/"),
        (300, "/metrics/"),
    ):
        origin = Origin({"/metrics": (status, location)})
        assert ask(origin).status == status, location
        assert len(origin.asked) == 1, location


def test_a_redirect_is_followed_once() -> None:
    origin = Origin({"/metrics": (307, "/metrics/"), "/metrics/": (307, "/metrics")})
    assert ask(origin).status == 307
    assert len(origin.asked) == 2


def test_a_post_is_never_sent_a_second_time() -> None:
    async def work() -> None:
        async with create_client("http://h:8000", None, origin.transport()) as client:
            await post(client, "/api/generate", {}, headers={}, deadline=PATIENCE, limit=1_000_000)

    origin = Origin({"/api/generate": (307, "/api/generate/")})
    asyncio.run(work())
    assert len(origin.asked) == 1


def test_both_requests_of_a_redirect_share_one_deadline() -> None:
    async def work() -> None:
        async def handle(request: httpx.Request) -> httpx.Response:
            await asyncio.sleep(2)
            moved = not request.url.path.endswith("/")
            return httpx.Response(
                307 if moved else 200, headers={"Location": "/metrics/"}, stream=httpx.ByteStream(b"")
            )

        error = await fail("http://h:8000", httpx.MockTransport(handle), deadline=3)
        assert error.reason is Reason.TIMEOUT
        assert (await request("http://h:8000", httpx.MockTransport(handle), deadline=5)).status == 200

    Timeline().run(work())


def test_the_start_of_the_process_is_kept_as_it_was_sent() -> None:
    for headers, start in (({"Process-Start-Time-Unix": "1370475630"}, "1370475630"), ({}, None)):

        def answer(_: httpx.Request, headers: Mapping[str, str] = headers) -> httpx.Response:
            return httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"x 1\n"))

        async def work(transport: httpx.MockTransport) -> Response:
            async with create_client("http://h:8080", None, transport) as client:
                return await get(client, "/metrics", headers={}, deadline=PATIENCE, limit=1_000_000)

        assert asyncio.run(work(httpx.MockTransport(answer))).start == start, headers
