"""Speed and memory of the exporter, as a table: medians and ratios of one run on one machine.

Everything is measured side by side in this run, so that ratios hold on any machine. MEMORY_SECONDS sets how long the
memory of a running exporter is watched (60 by default).
"""

import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from phasewatch.backends.page_state import PageState, build_snapshot, fold_page
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.backends.vllm.totals import PAGE_RULES
from phasewatch.recordings.format import RecordingReader
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.paths import RECORDINGS
from tests.support.targets import new_target

RECORDING = RECORDINGS / "batch-ramp.jsonl.xz"
MEMORY_SECONDS = float(os.environ.get("MEMORY_SECONDS", "60"))
MANY = 100


def main() -> None:
    """Run every measurement and print the table."""
    bodies = [scrape.response.body.decode() for scrape in RecordingReader(RECORDING).read_scrapes() if scrape.response]
    lines = bodies[-1].count("\n")
    print(f"{'what':<58} {'median':>10} {'aim':>12}")
    theirs = measure_median(lambda: list(text_string_to_metric_families(bodies[-1])), 30)
    ours = parse_and_derive(bodies)
    print_row(f"prometheus_client: parse a page of {lines} lines", f"{theirs * 1e3:.2f} ms")
    print_row(f"PhaseWatch: parse and derive it, window of {len(bodies)} pages", f"{ours * 1e3:.2f} ms")
    print_row("ratio", f"{ours / theirs:.3f}", "<= 0.2")
    with Pages(bodies) as pages:
        with Exporter(pages.url, 1, "1s") as exporter:
            print_row("start to first reading (interval 1 s)", f"{exporter.first_reading:.2f} s", "< 3 s")
            exporter.warm_up()
            print_row("GET /metrics, 1 target", f"{measure_median(exporter.get, 50) * 1e3:.2f} ms", "< 5 ms")
        with Exporter(pages.url, MANY, "5s") as exporter:
            exporter.warm_up()
            print_row(f"GET /metrics, {MANY} targets", f"{measure_median(exporter.get, 20) * 1e3:.1f} ms", "< 100 ms")
            print_row(f"size of that page, {MANY} targets", f"{len(exporter.get()) / 1e6:.2f} MB")
            print_row(f"memory, {MANY} targets at 5 s", f"{exporter.read_memory():.1f} MiB")
        with Exporter(pages.url, 1, "1s") as exporter:
            watch_memory(exporter)


def print_row(what: str, value: str, aim: str = "") -> None:
    """Print a line of the table."""
    print(f"{what:<58} {value:>10} {aim:>12}", flush=True)


def measure_median(work: Callable[[], object], times: int) -> float:
    """Median seconds of a piece of work."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def parse_and_derive(bodies: list[str]) -> float:
    """Median seconds from a page's text to what /metrics shows of it, with a full window behind it."""
    target, reader, state = new_target("bench", "vllm", "http://bench.invalid"), PageReader(METRIC_NAMES), PageState()
    taken = []
    for second, body in enumerate(bodies):
        start = time.perf_counter()
        state = fold_page(state, reader.read(body), ScrapeTiming(second, second + 0.01, None), target, PAGE_RULES)
        build_snapshot(state, target)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[len(taken) // 2 :])


def watch_memory(exporter: "Exporter") -> None:
    """Watch the resident memory of an exporter with one target at 1 s, /metrics read every second."""
    readings = []
    end = time.monotonic() + MEMORY_SECONDS
    while time.monotonic() < end:
        exporter.get()
        readings.append(exporter.read_memory())
        time.sleep(1)
    half = len(readings) // 2
    print_row(f"memory, 1 target at 1 s, most in {MEMORY_SECONDS:.0f} s", f"{max(readings):.1f} MiB", "< 64 MiB")
    growth = statistics.median(readings[half:]) - statistics.median(readings[:half])
    print_row("memory, median of the second half less that of the first", f"{growth:+.2f} MiB", "flat")


class Pages:
    """A server on loopback that gives the next page of a recording at each request."""

    def __init__(self, bodies: list[str]) -> None:
        encoded = [body.encode() for body in bodies]
        begun = time.monotonic()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                """Answer with the page that belongs to this second."""
                body = encoded[int(time.monotonic() - begun) % len(encoded)]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 2 * MANY  # they all connect at once

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Exporter:
    """A running exporter with a number of targets that all play the same pages."""

    def __init__(self, url: str, targets: int, interval: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        config = Path(self._directory.name) / "phasewatch.yml"
        entries = [f"  - {{name: t{index}, backend: vllm, url: '{url}'}}\n" for index in range(targets)]
        config.write_text(f"interval: {interval}\ntargets:\n{''.join(entries)}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._command = (
            *(sys.executable, "-m", "phasewatch", "serve", "--config.file", str(config)),
            *("--web.listen-address", self._address, "--log.level", "error"),
        )
        self._targets = targets
        self.first_reading = 0.0

    def __enter__(self) -> Self:
        start = time.monotonic()
        self._process = subprocess.Popen(self._command)
        while self.get().count(b"llm_decode_throughput_tokens_per_second{") < 1:
            time.sleep(0.02)
        self.first_reading = time.monotonic() - start
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._directory.cleanup()

    def warm_up(self) -> None:
        """Wait until every target shows its full set of metrics."""
        while self.get().count(b"llm_inter_token_latency_mean_seconds{") < self._targets:
            time.sleep(0.5)

    def get(self) -> bytes:
        """The page of metrics; empty while the exporter is starting."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/metrics") as answer:
                page: bytes = answer.read()
                return page
        except OSError:
            return b""

    def read_memory(self) -> float:
        """Resident memory in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found  # noqa: S101  # every process has it
        return int(found[1]) / 1024


if __name__ == "__main__":
    main()
