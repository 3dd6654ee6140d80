"""Programs that tests start: what they need, free ports, and waiting for what they do."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

PATIENCE = 60.0
"""Seconds until a thing that should happen counts as not happening; never a measure of speed."""

Result = TypeVar("Result")


def needs(program: str) -> pytest.MarkDecorator:
    """Skips a test where a program is missing; in CI that is a failure, by way of scripts/debian-packages."""
    missing = shutil.which(program) is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(
        missing, reason=f"{program} is not installed (Debian: prometheus, prometheus-alertmanager, chromium, systemd)"
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def eventually(look: Callable[[], Result | None], what: str, patience: float = PATIENCE) -> Result:
    """The first result of `look` that is true; errors of a server that is not there yet are passed over."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if found := look():
                return found
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {patience:g} seconds: {what}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310  # loopback, by the tests themselves
        text: str = answer.read().decode()
        return text


def get_json(url: str) -> Any:
    return json.loads(get(url))


@contextlib.contextmanager
def running(*command: str | Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program while the block runs; ended by SIGTERM, by SIGKILL if that does not help."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
