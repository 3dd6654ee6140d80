"""The network's edge for tests: a loopback server that plays vLLM, and the program under test as a process."""

import os
import queue
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from phasewatch.recordings.format import RecordingReader
from tests.support.paths import RECORDINGS
from tests.support.processes import PATIENCE, eventually

_DISTURBING: Final = ("PHASEWATCH_", "PYTHONUNBUFFERED")
_LOGFMT: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"=]*)(?: |$)')


@cache
def recorded_page(name: str = "single-stream") -> bytes:
    """The last page of a recording."""
    *_, last = RecordingReader(RECORDINGS / f"{name}.jsonl.xz").read_scrapes()
    assert last.response is not None
    return last.response.body


def logfmt(line: str) -> dict[str, str]:
    """The fields of a logfmt line; fails if it is none."""
    fields, position = {}, 0
    while position < len(line):
        match = _LOGFMT.match(line, position)
        assert match, f"no logfmt: {line!r}"
        value = match[2]
        unquoted = re.sub(r"\\(.)", r"\1", value[1:-1].replace(r"\n", "\n"))
        fields[match[1]] = unquoted if value.startswith('"') else value
        position = match.end()
    return fields


class FakeVllm:
    """A server on loopback that shows one page of metrics, or whatever `page` and `status` are set to."""

    def __init__(self, page: bytes | None = None, port: int = 0) -> None:
        self.page = recorded_page() if page is None else page
        self.status = 200
        self.asked: queue.SimpleQueue[tuple[str, Mapping[str, str]]] = queue.SimpleQueue()
        self._answering = threading.Event()
        self._answering.set()
        self._server = _QuietServer(("127.0.0.1", port), _handler(self._answer))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def hang(self) -> None:
        """Take requests and leave them without an answer."""
        self._answering.clear()

    def _answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        self.asked.put((path, headers))
        self._answering.wait(4 * PATIENCE)
        if path == "/version":
            return 200, b'{"version": "0.32.0"}'
        return (self.status, self.page) if path == "/metrics" else (404, b"")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that left early is no news."""


def _handler(answer: Callable[[str, Mapping[str, str]], tuple[int, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path, dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def program(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    entry: tuple[str, ...] = ("-m", "phasewatch"),
    **options: Any,
) -> subprocess.Popen[str]:
    """Start the program, or whatever else Python enters; the environment of whoever runs the tests has no say in it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_DISTURBING)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", *entry, *arguments],
        env={**inherited, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class Exporter:
    """`phasewatch serve`, or `demo`, as a process on a free port of loopback; `lines` is its log so far."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | bool = False,
        listen: tuple[str, ...] = ("--web.listen-address", "127.0.0.1:0"),
        command: str = "serve",
        entry: tuple[str, ...] = ("-m", "phasewatch"),
    ) -> None:
        self.lines: list[str] = []
        self._client = httpx.Client(trust_env=False, verify=verify, timeout=PATIENCE)
        self.process = program(command, *listen, *arguments, environment=environment, entry=entry)
        self._reader = threading.Thread(target=self._read)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self) -> Self:
        self._reader.start()
        try:
            line = self.logged("listening")
        except AssertionError:
            self.__exit__()
            raise
        address = re.search(r"https?://[\d.]+:\d+", line)
        assert address
        self.url = address[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join()
        if self.process.stderr:
            self.process.stderr.close()
        self._client.close()

    def logged(self, words: str, times: int = 1) -> str:
        """The log line with these words, once there are as many of them; the last of them."""

        def list_lines() -> list[str]:
            lines = [line for line in list(self.lines) if words in line]
            return lines if len(lines) >= times else []

        return eventually(list_lines, f"a log line with {words!r}, in {self.lines}")[-1]

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        """What an endpoint answers."""
        return self._client.request(method, self.url + path, **options)

    def value(self, name: str, **labels: str) -> float | None:
        """A sample of /metrics, None if it is not there."""
        for family in text_string_to_metric_families(self.ask("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None

    def shows(self, value: object, name: str, **labels: str) -> None:
        """Wait until /metrics has this value: a number, None for no such series, or a `pytest.approx`."""
        eventually(lambda: self.value(name, **labels) == value, f"{name}{labels} {value}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def ended(self) -> int:
        """The exit code, once there is one and the whole log is read."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code
