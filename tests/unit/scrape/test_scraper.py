"""Scraping a target that misbehaves: the right reason, two log lines, and no effect on other targets."""

import asyncio
import gzip
import json
import os
import re
import ssl
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from structlog.testing import capture_logs

from phasewatch.backends.vllm.scraper import VllmScraper
from phasewatch.base.errors import Reason
from phasewatch.config.settings import Authorization, ServerSettings, TlsConfig
from phasewatch.metrics.collector import build_target_families
from phasewatch.scrape.scraper import Scraper
from tests.support.pages import body_at, page
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import Behaviour, answers, bomb, drips, floods, hangs, resets, sends, server
from tests.support.targets import new_target

GOOD = body_at("single-stream", 40)
HALF = page({"generation_tokens_total": 5}).encode()


def list_misbehaviours() -> list[tuple[str, Behaviour, Reason]]:
    return [
        ("a server that never answers", hangs, Reason.TIMEOUT),
        ("a server that sends a byte now and then", drips, Reason.TIMEOUT),
        ("an internal error", answers(b"oops", status="500 Internal Server Error"), Reason.HTTP_STATUS),
        ("a server still loading", answers(b"", status="503 Service Unavailable"), Reason.HTTP_STATUS),
        ("no such path", answers(b"", status="404 Not Found"), Reason.HTTP_STATUS),
        ("a redirect", answers(b"", "Location: http://127.0.0.1:1/", status="302 Found"), Reason.HTTP_STATUS),
        ("a missing key", answers(b'{"error":"Unauthorized"}', status="401 Unauthorized"), Reason.AUTH),
        ("a wrong key", answers(b"", status="403 Forbidden"), Reason.AUTH),
        ("a web page", answers(b"<!doctype html>\n<html></html>\n"), Reason.PARSE),
        ("a page cut inside a line", answers(GOOD[:20_000].encode().rstrip(b"\n")), Reason.PARSE),
        (
            "a body shorter than promised",
            sends(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n# half"),
            Reason.PARSE,
        ),
        (
            "chunks without an end",
            sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n# hal"),
            Reason.PARSE,
        ),
        ("a page of 200 MB", floods, Reason.TOO_LARGE),
        ("a compressed page of 200 MB", answers(bomb(), "Content-Encoding: gzip"), Reason.TOO_LARGE),
        ("a broken compression", answers(b"no gzip", "Content-Encoding: gzip"), Reason.PARSE),
        ("half a compression", answers(bomb()[:500], "Content-Encoding: gzip"), Reason.PARSE),
        ("an unknown encoding", answers(b"?", "Content-Encoding: br"), Reason.PARSE),
        ("invalid UTF-8", answers(HALF + b'vllm:prompt_tokens_total{model_name="\xff"} 1\n'), Reason.PARSE),
        ("a router", answers(b'vllm:num_requests_running{server="http://10.0.0.1:8000"} 3\n'), Reason.NO_METRICS),
        ("a counter that is no number", answers(HALF.replace(b" 5", b" NaN")), Reason.PARSE),
        ("an infinite counter", answers(HALF.replace(b" 5", b" +Inf")), Reason.PARSE),
        ("a negative counter", answers(HALF.replace(b" 5", b" -5")), Reason.PARSE),
        ("a series given twice", answers(HALF + HALF), Reason.PARSE),
        ("a page of python_* only", answers(b'python_info{version="3.12"} 1.0\n'), Reason.NO_METRICS),
        ("an empty page", answers(b""), Reason.NO_METRICS),
        ("a connection that breaks", resets, Reason.CONNECT),
        ("a refusal in an unknown encoding", answers(b"?", "Content-Encoding: br", status="401 No"), Reason.AUTH),
        ("two compressed pages in one", answers(2 * gzip.compress(HALF), "Content-Encoding: gzip"), Reason.PARSE),
        ("a server that hangs up at once", sends(b""), Reason.CONNECT),
        ("something that is not HTTP", sends(b"SSH-2.0-OpenSSH_9.2\r\n"), Reason.CONNECT),
    ]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def reply(status: int, content: bytes | str = b"") -> httpx.Response:
    """An answer that has yet to be read, as one from the network has."""
    return httpx.Response(status, stream=httpx.ByteStream(content.encode() if isinstance(content, str) else content))


def watch(url: str, **facts: Any) -> VllmScraper:
    target = new_target("chat", "vllm", url, **{"timeout": PATIENCE, **facts})
    return VllmScraper(target, Clock(), lambda: 1_700_000_000.0)


def run(work: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    async def within_time() -> None:
        async with asyncio.timeout(4 * PATIENCE):
            await work()

    with capture_logs() as logs:
        asyncio.run(within_time())
    return [dict(line) for line in logs]


def errors(monitor: Scraper) -> dict[Reason, int]:
    return {reason: count for reason, count in monitor.get_snapshot().errors.items() if count}


def trouble(monitor: Scraper) -> tuple[Reason, str]:
    problem = monitor.get_snapshot().trouble
    assert problem is not None
    return problem.reason, problem.message


def test_every_misbehaviour_has_its_reason_and_does_not_affect_another_target() -> None:
    async def scrape(name: str, behave: Behaviour, reason: Reason) -> None:
        async with server(behave) as bad, server(answers(GOOD.encode())) as good:
            timeout = 0.4 if reason is Reason.TIMEOUT else PATIENCE
            sick, well = watch(bad, timeout=timeout), watch(good)
            for _ in range(2):
                await asyncio.gather(sick.scrape(), well.scrape())
            assert errors(sick) == {reason: 2}, name
            assert sick.get_snapshot().up is False, name
            assert {family.name for family in build_target_families([sick.get_snapshot()])} == {
                "llm_target_up",
                "llm_target_scrape_duration_seconds",
                "llm_target_scrape_errors",
            }, name
            assert errors(well) == {}, name
            assert well.get_snapshot().up is True, name
            assert well.get_snapshot().engines[0].phases.decode_throughput_tokens_per_second == 0, name
            await asyncio.gather(sick.close(), well.close())

    for name, behave, reason in list_misbehaviours():
        logs = run(partial(scrape, name, behave, reason))
        lines = [(line["event"], line["target"], line["reason"]) for line in logs]
        assert lines == [("target down", "chat", reason.value)], name


def test_a_refused_connection_says_so() -> None:
    async def work() -> None:
        monitor = watch(f"http://127.0.0.1:{free_port()}")
        await monitor.scrape()
        assert trouble(monitor) == (Reason.CONNECT, "cannot connect: Connection refused")

    run(work)


def test_a_name_that_does_not_exist_is_a_failed_connection() -> None:
    async def work() -> None:
        monitor = watch("http://no-such-host.invalid:8000")
        await monitor.scrape()
        assert errors(monitor) == {Reason.CONNECT: 1}

    run(work)


def test_trouble_is_logged_once_when_it_begins_and_once_when_it_ends() -> None:
    turn = iter([GOOD, None, None, GOOD, GOOD])

    def handle(request: httpx.Request) -> httpx.Response:
        body = next(turn) if request.url.path == "/metrics" else None
        return reply(200, body) if body else reply(500)

    async def work() -> None:
        target = new_target("chat", "vllm", "http://server.invalid")
        monitor = VllmScraper(target, Clock(), lambda: 1_700_000_000.0, httpx.MockTransport(handle))
        for _ in range(5):
            await monitor.scrape()
        assert monitor.get_snapshot().trouble is None
        await monitor.close()

    begin, end = run(work)
    assert (begin["event"], begin["reason"], begin["log_level"]) == ("target down", "http_status", "warning")
    assert begin["error"] == "the server answered 500 instead of 200"
    assert (end["event"], end["failed_scrapes"], end["log_level"]) == ("target up again", 2, "info")


def test_an_optional_target_that_never_responded_is_not_exposed() -> None:
    async def work() -> None:
        monitor = watch(f"http://127.0.0.1:{free_port()}", optional=True)
        for _ in range(3):
            await monitor.scrape()
        assert list(build_target_families([monitor.get_snapshot()])) == []

    (line,) = run(work)
    assert (line["event"], line["log_level"]) == ("optional target not there yet", "info")


def test_an_exception_in_the_exporter_is_counted_as_internal_and_logged() -> None:
    async def work() -> None:
        def break_down(_: httpx.Request) -> httpx.Response:
            raise ZeroDivisionError

        target = new_target("chat", "vllm", "http://server.invalid")
        monitor = VllmScraper(target, Clock(), lambda: 0.0, httpx.MockTransport(break_down))
        await monitor.scrape()
        assert errors(monitor) == {Reason.INTERNAL: 1}

    assert [line["event"] for line in run(work)] == ["scrape broke", "target down"]


def test_a_compressed_page_is_read() -> None:
    async def work() -> None:
        async with server(answers(gzip.compress(GOOD.encode()), "Content-Encoding: gzip")) as url:
            monitor = watch(url)
            await monitor.scrape()
            assert monitor.get_snapshot().up is True
            await monitor.close()

    run(work)


def test_an_empty_content_encoding_is_none() -> None:
    async def work() -> None:
        async with server(answers(GOOD.encode(), "Content-Encoding: ")) as url:
            monitor = watch(url)
            await monitor.scrape()
            assert monitor.get_snapshot().up is True
            await monitor.close()

    run(work)


def test_the_request_asks_for_the_text_format_and_follows_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    seen: list[httpx.Headers] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return reply(200, GOOD)

    async def work() -> None:
        monitor = VllmScraper(
            new_target("chat", "vllm", "http://a.invalid"), Clock(), lambda: 0.0, httpx.MockTransport(handle)
        )
        await monitor.scrape()

    run(work)
    assert seen[0]["accept"] == "text/plain;version=0.0.4"
    assert seen[0]["user-agent"].startswith("phasewatch/")
    assert "authorization" not in seen[0]


REDIRECTED = (
    "the server answered 307, a redirect that is not followed: "
    "set url, or metrics_path for another path of the same server, to where it leads"
)


def test_the_page_is_where_metrics_path_says() -> None:
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        if request.url.path in {"/v1/metrics", "/metrics/"}:
            return reply(200, GOOD)
        goal = "/login" if request.url.path == "/guarded" else f"{request.url.path}/"
        return httpx.Response(307, headers={"Location": goal})

    async def work(path: str, problem: tuple[Reason, str] | None) -> None:
        target = new_target("chat", "vllm", "http://h.invalid", metrics_path=path)
        monitor = VllmScraper(target, Clock(), lambda: 0.0, httpx.MockTransport(handle))
        await monitor.scrape()
        assert monitor.get_snapshot().up is (problem is None), path
        assert problem is None or trouble(monitor) == problem, path

    for path, asked, problem in (
        ("/v1/metrics", ["/v1/metrics"], None),
        ("/metrics/", ["/metrics/"], None),
        ("/metrics", ["/metrics", "/metrics/"], None),
        ("/guarded", ["/guarded"], (Reason.HTTP_STATUS, REDIRECTED)),
    ):
        seen.clear()
        run(partial(work, path, problem))
        assert seen == asked, path


def test_the_secret_is_read_for_each_request_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return reply(401)

    async def work() -> None:
        target = new_target("chat", "vllm", "http://a.invalid", authorization=Authorization("Bearer", file))
        monitor = VllmScraper(target, Clock(), lambda: 0.0, httpx.MockTransport(handle))
        for secret in ("sesame-1\n", "sesame-2"):
            file.write_text(secret)
            await monitor.scrape()
        assert "sesame" not in repr(monitor.get_snapshot()) + repr(target)

    assert "sesame" not in repr(run(work))
    assert seen == ["Bearer sesame-1", "Bearer sesame-2"]


def test_an_unusable_secret_is_a_failed_authentication(tmp_path: Path) -> None:
    file = tmp_path / "key"

    async def work() -> None:
        for content, message in (
            (None, "credentials_file cannot be read: No such file or directory"),
            (b"", "credentials_file must hold one line with the secret"),
            (b"sesame\r\nHost: evil", "credentials_file must hold one line with the secret"),
            ("sésame".encode(), "credentials_file must hold ASCII text"),
        ):
            if content is not None:
                file.write_bytes(content)
            monitor = watch("http://127.0.0.1:1", authorization=Authorization("Bearer", file))
            await monitor.scrape()
            assert trouble(monitor) == (Reason.AUTH, message), content

    run(work)


@pytest.fixture
def tls_server(tmp_path: Path) -> Any:
    """An https server that plays a good page; gives its port and the file of its authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(GOOD.encode())

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust us is what the tests want."""

    listening = Server(("127.0.0.1", 0), Handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield listening.server_port, tmp_path / "ca.pem"
    listening.shutdown()
    listening.server_close()
    thread.join()


def test_only_a_trusted_certificate_is_accepted(tls_server: tuple[int, Path]) -> None:
    port, authority = tls_server

    async def work() -> None:
        for trusted, skip, reason in ((True, False, None), (False, True, None), (False, False, Reason.TLS)):
            tls = TlsConfig(authority if trusted else None, None, None, insecure_skip_verify=skip)
            monitor = watch(f"https://127.0.0.1:{port}", tls_config=tls)
            await monitor.scrape()
            assert errors(monitor) == ({} if reason is None else {reason: 1}), (trusted, skip)
            await monitor.close()

    run(work)


def test_https_to_a_server_without_it_and_a_missing_authority_are_tls_failures(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(sends(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url:
            plain = watch(url.replace("http:", "https:"))
            await plain.scrape()
            assert errors(plain) == {Reason.TLS: 1}
        missing = watch(
            "https://127.0.0.1:1", tls_config=TlsConfig(tmp_path / "none.pem", None, None, insecure_skip_verify=False)
        )
        await missing.scrape()
        assert errors(missing) == {Reason.TLS: 1}

    run(work)


def test_an_old_scrape_is_shown_as_down() -> None:
    clock = Clock()

    async def work() -> None:
        target = new_target("chat", "vllm", "http://a.invalid", interval=5.0, timeout=4.0)
        monitor = VllmScraper(target, clock, lambda: 0.0, httpx.MockTransport(lambda _: reply(200, GOOD)))
        await monitor.scrape()
        clock.now += 18
        assert monitor.get_snapshot().engines
        clock.now += 1
        held_up = monitor.get_snapshot()
        assert (held_up.up, held_up.engines) == (False, ())
        assert held_up.trouble is not None
        assert held_up.trouble.message.startswith("no scrape has ended for 20s")
        await monitor.scrape()
        assert monitor.get_snapshot().up is True

    run(work)


def test_facts_are_requested_once_and_again_after_a_restart() -> None:
    asked: list[str] = []
    restarted = re.sub(r"(_created\{.*\}|process_start_time_seconds) 1", r"\1 2", GOOD)
    pages = iter([GOOD, GOOD, restarted, GOOD])
    responses = {
        "/version": {"version": "0.32.0"},
        "/server_info": {
            "vllm_config": {
                "scheduler_config": {"max_num_seqs": 256, "max_num_active_seqs": 64, "max_num_batched_tokens": 2048}
            }
        },
        "/v1/models": {"data": [{"id": "tiny", "root": "/m", "max_model_len": 4096}, {"id": "lora", "parent": "tiny"}]},
    }

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            return reply(200, next(pages))
        asked.append(request.url.path)
        return reply(200, json.dumps(responses[request.url.path]))

    async def work() -> None:
        monitor = VllmScraper(
            new_target("chat", "vllm", "http://a.invalid"), Clock(), lambda: 0.0, httpx.MockTransport(handle)
        )
        await monitor.scrape()
        for _ in range(3):
            await monitor.refresh_facts()
        assert asked == ["/version", "/v1/models", "/server_info"]
        assert monitor.get_snapshot().facts.server == ServerSettings(64, 2048)
        assert monitor.get_snapshot().facts.version == "0.32.0"
        assert list(monitor.get_snapshot().facts.models) == ["tiny"]
        await monitor.scrape()
        await monitor.scrape()
        assert monitor.get_snapshot().facts.version is None
        await monitor.refresh_facts()
        assert len(asked) == 6

    run(work)


def test_facts_are_requested_again_once_after_failed_scrapes() -> None:
    """Another release may answer after an outage, without a start time or a counter that has fallen."""
    versions = iter(["0.32.0", None, "0.33.0"])
    asked: list[str] = []
    broken = [False]

    def handle(request: httpx.Request) -> httpx.Response:
        if broken[0]:
            raise httpx.ReadError("reset")
        if request.url.path == "/metrics":
            return reply(200, GOOD)
        asked.append(request.url.path)
        version = next(versions) if request.url.path == "/version" else None
        body = {"version": version} if version else {"data": [{"id": "tiny", "root": "/m"}]}
        return reply(200, json.dumps(body)) if version or request.url.path == "/v1/models" else reply(503)

    async def work() -> None:
        target = new_target("chat", "vllm", "http://a.invalid")
        monitor = VllmScraper(target, Clock(), lambda: 0.0, httpx.MockTransport(handle))
        await monitor.scrape()
        await monitor.refresh_facts()
        for broken[0] in (True, False):
            await monitor.scrape()
        assert monitor.get_snapshot().facts.version == "0.32.0"
        for expected in ("0.32.0", "0.33.0", "0.33.0"):  # no answer, the new one, not asked again
            await monitor.refresh_facts()
            assert monitor.get_snapshot().facts.version == expected
        assert asked.count("/version") == 3

    run(work)


def test_facts_in_an_unknown_form_are_left_out() -> None:
    async def work() -> None:
        for body in (
            b"",
            b"[]",
            b'{"version": 3, "data": "x"}',
            b'{"data": [1, {"id": 2}]}',
            b'{"vllm_config": {"scheduler_config": {"max_num_seqs": "x"}}}',
            b'{"version": "\\ud800", "data": [{"id": "\\ud800"}]}',
            b"[" * 200_000,
            b"\xff",
        ):

            def handle(request: httpx.Request, body: bytes = body) -> httpx.Response:
                return reply(200, GOOD if request.url.path == "/metrics" else body)

            monitor = VllmScraper(
                new_target("chat", "vllm", "http://a.invalid"), Clock(), lambda: 0.0, httpx.MockTransport(handle)
            )
            await monitor.scrape()
            await monitor.refresh_facts()
            assert monitor.get_snapshot().facts.version is None, body[:80]
            assert not monitor.get_snapshot().facts.models, body[:80]
            assert monitor.get_snapshot().facts.server == ServerSettings(), body[:80]

    run(work)


def test_requests_for_facts_do_not_make_an_old_scrape_look_fresh() -> None:
    clock = Clock()

    def handle(request: httpx.Request) -> httpx.Response:
        return reply(200, GOOD) if request.url.path == "/metrics" else reply(401)

    async def work() -> None:
        monitor = VllmScraper(
            new_target("chat", "vllm", "http://a.invalid"), clock, lambda: 0.0, httpx.MockTransport(handle)
        )
        await monitor.scrape()
        for _ in range(5):
            clock.now += 15
            await monitor.refresh_facts()
        assert monitor.get_snapshot().up is False

    run(work)


def test_no_cookie_is_kept() -> None:
    seen: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie"))
        answer = reply(200, GOOD)
        answer.headers["set-cookie"] = f"n{len(seen)}=1"
        return answer

    async def work() -> None:
        monitor = VllmScraper(
            new_target("chat", "vllm", "http://a.invalid"), Clock(), lambda: 0.0, httpx.MockTransport(handle)
        )
        for _ in range(3):
            await monitor.scrape()

    run(work)
    assert seen == [None, None, None]


def test_a_secret_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    async def work() -> None:
        monitor = watch("http://127.0.0.1:1", authorization=Authorization("Bearer", tmp_path / "pipe"))
        await monitor.scrape()
        assert trouble(monitor)[0] is Reason.AUTH

    run(work)
