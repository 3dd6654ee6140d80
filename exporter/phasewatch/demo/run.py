"""`phasewatch demo`: simulated servers on loopback with the ordinary exporter on top, in one process on one loop."""

import asyncio
import contextlib
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from phasewatch import app
from phasewatch.base import units
from phasewatch.base.errors import DemoError
from phasewatch.base.log import logger
from phasewatch.config import resolve as config
from phasewatch.demo import prometheus
from phasewatch.demo.clock import PatientClock, machine_seconds
from phasewatch.demo.ollama import demo_models
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.users import InhabitedOllama
from phasewatch.demo.servers import HOST, Clock, Served, answering, ollama_application, served, vllm_application
from phasewatch.demo.tour import LOOK_AT
from phasewatch.demo.vllm.script import CYCLE_SECONDS, Act
from phasewatch.demo.vllm.simulation import SimulatedVllm, target_keys
from phasewatch.web.security import WebConfig

NOTICE: Final = "Simulated servers: nothing here was measured on real hardware."

VLLM_NAME: Final = "simulated-vllm"
OLLAMA_NAME: Final = "simulated-ollama"

INTERVAL: Final = "1s"
"""Between scrapes of a vLLM: the verdicts on saturation change within seconds."""

PROBE_INTERVAL: Final = "30s"
PROBE_BUDGET: Final = 0.05
"""More often than by default, and for a larger share of the time, so that somebody who watches sees a probe."""

_REACHED_AT: Final = {"": HOST, "0.0.0.0": HOST, "::": "::1"}  # noqa: S104  # read, not bound

TICK_SECONDS: Final = 0.25
"""Longest time for which a simulation stands still; whoever asks one moves it on as well."""

FILES: Final = 40
FILES_OF_A_SERVER: Final = 5
"""Files that are open at once, and those of each simulated server: its port, and both ends of two connections."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Settings:
    """The flags of `demo`, parsed.

    Attributes:
        host: to listen on; empty for all addresses.
        port: that was taken.
        seed: of the simulations.
        servers: how many vLLMs.
        prometheus: what to start Prometheus with; None for none.
    """

    host: str
    port: int
    seed: int
    servers: int
    prometheus: prometheus.Setup | None

    @property
    def address(self) -> str:
        """Host and port at which somebody on this machine reaches the exporter."""
        host = _REACHED_AT.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True)
class _Town:
    """The simulations, their time, and the ports at which they answer."""

    clock: Clock
    vllms: dict[str, SimulatedVllm]
    ollama: InhabitedOllama
    ports: dict[str, Served]


async def run(settings: Settings, bound: socket.socket) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP.

    Args:
        settings: the flags.
        bound: the listening socket of the exporter.

    Raises:
        BindError: there are no free ports for the simulated servers.
        DemoError: Prometheus cannot be started, there is no place for temporary files, or too few may be open.
    """
    with bound, _signals_held() as let_go, _folder() as folder, contextlib.ExitStack() as ports:
        check_files(settings.servers)
        town = _town(settings, ports)
        file = folder / "phasewatch.yml"
        file.write_text(configuration({one: server.url for one, server in town.ports.items()}), encoding="utf-8")
        exporter = app.Settings(file, settings.host, settings.port, enable_lifecycle=False, web=WebConfig())
        serving = app.serve(exporter, config.load(file), bound, notice=NOTICE, hangup_ends=True)
        async with answering(list(town.ports.values())):
            tasks = [asyncio.create_task(serving)]
            try:
                await asyncio.sleep(0)  # from here on signals end the exporter, and with it all the rest
                let_go()
                _welcome(settings)
                tasks.append(asyncio.create_task(_live(town)))
                async with _prometheus(settings, town, folder):
                    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()


@contextlib.contextmanager
def _signals_held() -> Iterator[Callable[[], None]]:
    """Hold back the signals that end the demo until the block ends, or until what it gives is called.

    Otherwise one that comes before anybody listens would leave the temporary folder behind.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)

    def let_go() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_go
    finally:
        let_go()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder while the block runs.

    Raises:
        DemoError: there is no place for one.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix="phasewatch-demo-")
    except OSError as error:
        told = error.strerror or error
        raise DemoError(f"no temporary folder: {told}; name one that can be written to in TMPDIR") from error
    with made as name:
        yield Path(name)


def check_files(servers: int) -> None:
    """See that as many files may be open as the demo needs.

    Args:
        servers: how many vLLMs.

    Raises:
        DemoError: they may not.
    """
    needed = FILES + FILES_OF_A_SERVER * servers
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise DemoError(
            f"--servers {servers}: this takes up to {needed} open files, and {most} are allowed; "
            f"allow more with `ulimit -n {needed}`, or choose fewer servers"
        )


def _town(settings: Settings, ports: contextlib.ExitStack) -> _Town:
    """The simulated servers, and their ports until `ports` is closed."""
    ollama = InhabitedOllama(settings.seed, time.time_ns())
    clock = PatientClock(machine_seconds, lambda seconds: ollama.stand_still(round(seconds * SECOND)))
    vllms = fleet(settings.seed, settings.servers, time.time())
    applications = {name: vllm_application(vllm, clock) for name, vllm in vllms.items()}
    applications[OLLAMA_NAME] = ollama_application(ollama, clock)
    found = {}
    for name, application in applications.items():
        found[name] = served(application)
        ports.enter_context(found[name].bound)
    return _Town(clock, vllms, ollama, found)


def fleet(seed: int, servers: int, started: float) -> dict[str, SimulatedVllm]:
    """The simulated vLLMs by the names of their targets.

    They are spread over the script, so that they are never all at the same act, and each has users of its own.

    Args:
        seed: of the first; each further one has the next.
        servers: how many.
        started: Unix time at which they begin.
    """
    return {
        name: SimulatedVllm(seed + number, started, CYCLE_SECONDS * number / servers)
        for number, name in enumerate(_names(servers))
    }


def _names(count: int) -> list[str]:
    return [VLLM_NAME, *(f"{VLLM_NAME}-{number}" for number in range(2, count + 1))]


def configuration(urls: Mapping[str, str]) -> str:
    """The exporter's configuration, as a file of an operator's would have it.

    Args:
        urls: addresses of the simulated servers, by the name of the target.
    """
    targets = [_target(name, url) for name, url in urls.items()]
    return yaml.safe_dump({"interval": INTERVAL, "targets": targets}, sort_keys=False)


def _target(name: str, url: str) -> dict[str, Any]:
    if name == OLLAMA_NAME:
        probe = {"interval": PROBE_INTERVAL, "budget": PROBE_BUDGET}
        return {"name": name, "backend": "ollama", "url": url, "probe": probe, **demo_models.target_keys()}
    return {"name": name, "backend": "vllm", "url": url, **target_keys()}


def _welcome(settings: Settings) -> None:
    logger().info(
        "demo",
        page=f"http://{settings.address}/",
        metrics=f"http://{settings.address}/metrics",
        note=f"{NOTICE} Every state of saturation comes within {units.human_duration(CYCLE_SECONDS)}. Ctrl-C ends it.",
    )


def _prometheus(settings: Settings, town: _Town, folder: Path) -> contextlib.AbstractAsyncContextManager[None]:
    if settings.prometheus is None:
        return contextlib.nullcontext()
    vllms = {name: f"{HOST}:{town.ports[name].port}" for name in town.vllms}
    return prometheus.running(settings.prometheus, folder, settings.address, vllms)


async def _live(town: _Town) -> None:
    """Let the simulations go on whether or not somebody asks, and tell each act of a vLLM as it begins."""
    told: dict[str, Act] = {}
    while True:
        for name, vllm in town.vllms.items():
            vllm.advance(town.clock())
            if vllm.act != told.get(name):
                told[name] = vllm.act
                _tell(name, vllm.act)
            await asyncio.sleep(0)
        town.ollama.advance(round(town.clock() * SECOND))
        await asyncio.sleep(TICK_SECONDS)


def _tell(target: str, act: Act) -> None:
    log = logger().info if target == VLLM_NAME else logger().debug  # of many servers nobody reads all
    look_at = ", ".join(LOOK_AT[act.state])
    log("act", target=target, act=act.name, state=act.state.value, about=act.about, look_at=look_at)
