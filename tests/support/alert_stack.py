"""Alertmanager and Prometheus on loopback with the shipped files: other addresses and durations, nothing else."""

import contextlib
import json
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.support.accelerated_rules import divide_duration, write_accelerated_rules
from tests.support.paths import ALERTS
from tests.support.processes import eventually, free_port, get, running

NOWHERE: Final = "http://notifications.invalid"
"""Where the shipped receivers send to."""

_TIMINGS: Final = ("group_wait", "group_interval", "repeat_interval")
_COMMENTED: Final = re.compile(r"^( *)# ( *(?:- )?\w+:(?: .*)?)$", re.MULTILINE)


class Webhook:
    """Takes notifications; `received` has the path and the body of each, in the order they came."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.received))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def alerts(self, path: str) -> list[dict[str, Any]]:
        """The firing alerts that came to a path."""
        return [alert for body in self.bodies(path) for alert in body["alerts"] if alert["status"] == "firing"]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The notifications that came to a path."""
        return [body for target, body in list(self.received) if target == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(received: list[tuple[str, dict[str, Any]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")  # what Slack answers; the others do not mind

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def uncommented(text: str) -> str:
    """A file whose examples are in force: `# key: value` without its `# `. Sentences in comments stay what they are."""
    return _COMMENTED.sub(r"\1\2", text)


@contextlib.contextmanager
def alertmanager(config: Mapping[str, Any], folder: Path, *, factor: float) -> Iterator[str]:
    """Alertmanager with a configuration and the shipped templates, its timings divided by the factor.

    Gives its address.
    """
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump({**config, "route": _quick(config["route"], factor)}))
    shutil.copytree(ALERTS / "templates", folder / "templates")
    address = f"127.0.0.1:{free_port()}"
    flags = (
        f"--config.file={file}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    )
    with _ready("prometheus-alertmanager", *flags, address=address, log=folder / "alertmanager.log"):
        yield f"http://{address}"


@contextlib.contextmanager
def _ready(*command: str, address: str, log: Path) -> Iterator[None]:
    """A server once it is ready; one that ends before fails with its log."""
    with running(*command, log=log) as process:

        def ready() -> str:
            assert process.poll() is None, log.read_text()
            return get(f"http://{address}/-/ready")

        eventually(ready, f"{command[0]} is ready")
        yield


def _quick(route: Mapping[str, Any], factor: float) -> dict[str, Any]:
    timings = {key: divide_duration(route[key], factor) for key in _TIMINGS if key in route}
    return {**route, **timings, "routes": [_quick(one, factor) for one in route.get("routes", ())]}


@contextlib.contextmanager
def prometheus(
    exporter: str, manager: str, folder: Path, *, site: Mapping[str, Any], factor: float, interval: str
) -> Iterator[str]:
    """Prometheus with the shipped configuration and rules, scraping one exporter; gives its address.

    Args:
        exporter: address of the exporter.
        manager: address of Alertmanager.
        folder: for its files.
        site: a rule file of a site, with thresholds of its own.
        factor: what the durations of the rules are divided by.
        interval: between scrapes, and between evaluations.
    """
    address = f"127.0.0.1:{free_port()}"
    text = (ALERTS / "prometheus.yml").read_text()
    shipped = {"alertmanager:9093": manager, "phasewatch:10061": exporter, "localhost:9090": f"http://{address}"}
    for host, here in shipped.items():
        assert host in text
        text = text.replace(host, here.removeprefix("http://"))
    file = folder / "prometheus.yml"
    file.write_text(re.sub(r"(_interval: )\w+", rf"\g<1>{interval}", text))
    (folder / "rules").mkdir()
    write_accelerated_rules(folder / "rules", factor)
    (folder / "rules" / "site.yml").write_text(yaml.safe_dump(site))
    flags = (
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        # An alert that fires before Alertmanager is found is lost until it is sent again, by default a minute later.
        "--rules.alert.resend-delay=2s",
    )
    with _ready("prometheus", *flags, address=address, log=folder / "prometheus.log"):
        yield f"http://{address}"
