"""A Prometheus for the demo: locates the program, configures it with the shipped rules, runs and stops it."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from phasewatch import assets
from phasewatch.base.errors import DemoError
from phasewatch.base.log import get_logger
from phasewatch.demo.servers import HOST

DEFAULT_PORT: Final = 9090

INTERVAL: Final = "5s"
"""Scrape and evaluation interval: the shortest that the rules support."""

_STOP_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.02
_LOG_TAIL_CHARACTERS: Final = 500


@dataclass(frozen=True)
class PrometheusSetup:
    """What is needed to start Prometheus.

    Attributes:
        program: path of the program.
        rules: folder with the shipped rules.
    """

    program: str
    rules: Path


def find_prometheus() -> PrometheusSetup:
    """Locate the program and the rules.

    Raises:
        DemoError: the program is not on PATH; the message says what to do.
        AssetError: the rules are missing.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise DemoError(
            "--with-prometheus: no program `prometheus` on PATH; install it (Debian, Ubuntu: "
            "apt install --no-install-recommends prometheus; elsewhere: https://prometheus.io/download), "
            "or leave the flag out"
        )
    return PrometheusSetup(program, find_rules())


def find_rules() -> Path:
    """The folder with the shipped alert rules.

    Raises:
        AssetError: it is missing.
    """
    return assets.find_folder() / "alerts" / "rules"


def build_configuration(rules: Path, prometheus: str, exporter: str, vllms: Mapping[str, str]) -> dict[str, Any]:
    """Prometheus' configuration: the shipped rules, the exporter, and the vLLMs for the service level objectives.

    Args:
        rules: folder with the rules.
        prometheus: host and port of Prometheus itself.
        exporter: host and port of the exporter.
        vllms: host and port of each simulated vLLM, by target name.
    """
    return {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(rules / "*.yml")],
        "scrape_configs": [
            _build_job("phasewatch", [{"targets": [exporter]}]),
            _build_job("prometheus", [{"targets": [prometheus]}]),
            _build_job("vllm", [{"targets": [address], "labels": {"target": name}} for name, address in vllms.items()]),
        ],
    }


def _build_job(name: str, targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"job_name": name, "static_configs": list(targets)}


def find_free_port() -> int:
    """Prometheus' default port if it is free, else any free one.

    Raises:
        DemoError: there is no free port.
    """
    for port in (DEFAULT_PORT, 0):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)) as server:
            free: int = server.getsockname()[1]
            return free
    raise DemoError("--with-prometheus: there is no free port on loopback")


@contextlib.asynccontextmanager
async def run_prometheus(
    setup: PrometheusSetup, folder: Path, exporter: str, vllms: Mapping[str, str]
) -> AsyncIterator[None]:
    """Run Prometheus during the block. If it ends early, a warning is logged and the demo continues.

    Args:
        setup: program and rules.
        folder: folder for its configuration, data and log.
        exporter: host and port of the exporter.
        vllms: host and port of each simulated vLLM, by target name.

    Raises:
        DemoError: it cannot be started.
    """
    address = f"{HOST}:{find_free_port()}"
    file, log = folder / "prometheus.yml", folder / "prometheus.log"
    # JSON is YAML that every release of Prometheus reads.
    file.write_text(json.dumps(build_configuration(setup.rules, address, exporter, vllms)), encoding="utf-8")
    flags = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}")
    try:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                setup.program,
                *flags,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # otherwise Ctrl-C in a terminal would end it before the demo
            )
    except OSError as error:
        raise DemoError(f"--with-prometheus: {setup.program} cannot be started: {error.strerror}") from error
    get_logger().info("prometheus", page=f"http://{address}/alerts", scrapes=exporter)
    watch = asyncio.create_task(_log_end(process, log))
    try:
        yield
    finally:
        if not watch.done():
            watch.cancel()
            await _stop(process)


async def _log_end(process: asyncio.subprocess.Process, log: Path) -> None:
    code = await process.wait()
    _signal_group(process, signal.SIGKILL)  # a wrapper may have left the program itself running
    get_logger().warning("prometheus has ended", code=code, log=_read_log_tail(log))


def _read_log_tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()[-_LOG_TAIL_CHARACTERS:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, then SIGKILL after a timeout, to the whole process group, since wrappers do not forward signals."""
    _signal_group(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            while _signal_group(process, 0):  # noqa: ASYNC110  # there is no notification for the end of a process group
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: int) -> bool:
    """Send a signal to the process group, or check it with signal 0. False if the group is empty."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
        return True
    return False
