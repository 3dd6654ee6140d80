"""A Prometheus for the demo: finds the program, gives it the shipped rules and a configuration, and ends it again."""

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
from phasewatch.base.log import logger
from phasewatch.demo.servers import HOST

DEFAULT_PORT: Final = 9090

INTERVAL: Final = "5s"
"""Between scrapes and between evaluations: the shortest that the rules are made for."""

_STOP_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.02
_LAST_WORDS: Final = 500


@dataclass(frozen=True)
class Setup:
    """What is needed to start Prometheus.

    Attributes:
        program: the binary.
        rules: the folder with the shipped rules.
    """

    program: str
    rules: Path


def setup() -> Setup:
    """The program and the rules.

    Raises:
        DemoError: there is no such program; the message says what to do.
        AssetError: there are no rules.
    """
    program = shutil.which("prometheus")
    if program is None:
        raise DemoError(
            "--with-prometheus: no program `prometheus` on PATH; install it (Debian, Ubuntu: "
            "apt install --no-install-recommends prometheus; elsewhere: https://prometheus.io/download), "
            "or leave the flag out"
        )
    return Setup(program, rules_folder())


def rules_folder() -> Path:
    """Where the shipped alert rules are.

    Raises:
        AssetError: there are none.
    """
    return assets.folder() / "alerts" / "rules"


def configuration(rules: Path, own: str, exporter: str, vllms: Mapping[str, str]) -> dict[str, Any]:
    """The configuration: the shipped rules, the exporter, and the vLLMs themselves for the service level objectives.

    Args:
        rules: folder of the rules.
        own: host and port of Prometheus.
        exporter: host and port of the exporter.
        vllms: host and port of each, by the name of its target.
    """
    return {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(rules / "*.yml")],
        "scrape_configs": [
            _job("phasewatch", [{"targets": [exporter]}]),
            _job("prometheus", [{"targets": [own]}]),
            _job("vllm", [{"targets": [address], "labels": {"target": name}} for name, address in vllms.items()]),
        ],
    }


def _job(name: str, targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"job_name": name, "static_configs": list(targets)}


def free_port() -> int:
    """Prometheus' usual port if it is free, any free one otherwise."""
    for port in (DEFAULT_PORT, 0):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)) as taken:
            found: int = taken.getsockname()[1]
            return found
    raise DemoError("--with-prometheus: there is no free port on loopback")


@contextlib.asynccontextmanager
async def running(found: Setup, folder: Path, exporter: str, vllms: Mapping[str, str]) -> AsyncIterator[None]:
    """Prometheus while the block runs. One that ends early is told in the log; the demo goes on.

    Args:
        found: program and rules.
        folder: for its configuration, data and log.
        exporter: host and port of the exporter.
        vllms: host and port of each simulated vLLM, by the name of its target.

    Raises:
        DemoError: it cannot be started.
    """
    own = f"{HOST}:{free_port()}"
    file, log = folder / "prometheus.yml", folder / "prometheus.log"
    # JSON is YAML that every release of Prometheus reads.
    file.write_text(json.dumps(configuration(found.rules, own, exporter, vllms)), encoding="utf-8")
    flags = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={own}")
    try:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                found.program,
                *flags,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal would end it before the demo
            )
    except OSError as error:
        raise DemoError(f"--with-prometheus: {found.program} cannot be started: {error.strerror}") from error
    logger().info("prometheus", page=f"http://{own}/alerts", scrapes=exporter)
    watch = asyncio.create_task(_tell_the_end(process, log))
    try:
        yield
    finally:
        if not watch.done():
            watch.cancel()
            await _end(process)


async def _tell_the_end(process: asyncio.subprocess.Process, log: Path) -> None:
    code = await process.wait()
    _signal(process, signal.SIGKILL)  # a wrapper may have left the program itself behind
    logger().warning("prometheus has ended", code=code, log=_last_words(log))


def _last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_WORDS:]


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, and SIGKILL where that takes too long: to the whole group, since a wrapper hands no signal on."""
    _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            while _signal(process, 0):  # noqa: ASYNC110  # nothing announces the end of a whole group
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> bool:
    """Send a signal to the group of a process, or only look, with 0. False if nobody is in it any more."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
        return True
    return False
