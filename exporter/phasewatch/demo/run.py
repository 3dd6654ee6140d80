"""`phasewatch demo`: simulated servers on loopback and the regular exporter on top, in one process and event loop."""

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
from phasewatch.backends import list_rules
from phasewatch.base import units
from phasewatch.base.errors import DemoError
from phasewatch.base.log import get_logger
from phasewatch.config.resolve import load_config
from phasewatch.demo import prometheus
from phasewatch.demo.child_servers import ChildServers, serve_children
from phasewatch.demo.clock import SuspendAwareClock, read_boot_clock
from phasewatch.demo.common.acts import Act
from phasewatch.demo.llamacpp.script import LLAMA_METRICS_TO_WATCH
from phasewatch.demo.llamacpp.server import SimulatedLlamaServer, build_llama_target_keys
from phasewatch.demo.ollama import demo_models
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.users import OllamaWithUsers
from phasewatch.demo.servers import (
    HOST,
    BoundServer,
    Clock,
    bind_server,
    build_llama_application,
    build_ollama_application,
    build_vllm_application,
    serve_all,
)
from phasewatch.demo.vllm import simulation
from phasewatch.demo.vllm.script import CYCLE_SECONDS, METRICS_TO_WATCH
from phasewatch.demo.vllm.simulation import SimulatedVllm
from phasewatch.web.security import WebConfig

NOTICE: Final = "Simulated servers: nothing here was measured on real hardware."

VLLM_NAME: Final = "simulated-vllm"
LLAMA_NAME: Final = "simulated-llama-server"
OLLAMA_NAME: Final = "simulated-ollama"

INTERVAL: Final = "1s"
"""Scrape interval, since saturation states change within seconds."""

PROBE_INTERVAL: Final = "30s"
PROBE_BUDGET: Final = 0.05
"""More frequent probes, and a larger share of the time, than by default, so that a viewer sees some."""

_LOOPBACK_OF_WILDCARD: Final = {"": HOST, "0.0.0.0": HOST, "::": "::1"}  # noqa: S104  # compared, not bound

TICK_SECONDS: Final = 0.25
"""Longest time between two updates of a simulation; every request to it updates it as well."""

BASE_OPEN_FILES: Final = 60
OPEN_FILES_PER_SERVER: Final = 5
"""Files that may be open at once; those of a simulated vLLM are its port and both ends of two connections."""

_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class DemoSettings:
    """The parsed flags of `demo`.

    Attributes:
        host: host to listen on; empty for all addresses.
        port: port that the exporter is bound to.
        seed: seed of the simulations.
        servers: number of vLLMs.
        prometheus: program and rules of Prometheus; None if it is not wanted.
    """

    host: str
    port: int
    seed: int
    servers: int
    prometheus: prometheus.PrometheusSetup | None

    @property
    def address(self) -> str:
        """Host and port at which the exporter can be reached from this machine."""
        host = _LOOPBACK_OF_WILDCARD.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True)
class _Simulations:
    """The simulated servers, their clock, and their ports by target name."""

    clock: Clock
    vllms: dict[str, SimulatedVllm]
    llama: SimulatedLlamaServer
    ollama: OllamaWithUsers
    servers: dict[str, BoundServer]


async def run(settings: DemoSettings, bound: socket.socket) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP.

    Args:
        settings: the flags.
        bound: the listening socket of the exporter.

    Raises:
        BindError: there are no free ports for the simulated servers.
        DemoError: Prometheus or the temporary folder cannot be created, or the limit on open files is too low.
    """
    with (
        bound,
        _block_signals() as unblock_signals,
        _create_temporary_folder() as folder,
        contextlib.ExitStack() as ports,
    ):
        check_open_files_limit(settings.servers)
        simulations = _create_simulations(settings, ports)
        file = folder / "phasewatch.yml"
        urls = {name: server.url for name, server in simulations.servers.items()}
        process_list = folder / "proc"
        file.write_text(build_configuration(urls, process_list), encoding="utf-8")
        exporter = app.ServeSettings(file, settings.host, settings.port, enable_lifecycle=False, web=WebConfig())
        serving = app.serve(exporter, load_config(file, list_rules()), bound, notice=NOTICE, hangup_ends=True)
        async with (
            serve_all(list(simulations.servers.values())),
            serve_children(simulations.ollama, simulations.clock, process_list) as children,
        ):
            tasks = [asyncio.create_task(serving)]
            try:
                await asyncio.sleep(0)  # from here on the exporter handles signals, and its end is the end of the demo
                unblock_signals()
                _log_welcome(settings)
                tasks.append(asyncio.create_task(_advance_simulations(simulations, children)))
                async with _run_prometheus(settings, simulations, folder):
                    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()


@contextlib.contextmanager
def _block_signals() -> Iterator[Callable[[], None]]:
    """Block the signals that end the demo until the block ends, or until the yielded function is called.

    Otherwise a signal that arrives before there is a handler would leave the temporary folder behind.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield unblock
    finally:
        unblock()


@contextlib.contextmanager
def _create_temporary_folder() -> Iterator[Path]:
    """A temporary folder while the block runs.

    Raises:
        DemoError: it cannot be created.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="phasewatch-demo-")
    except OSError as error:
        reason = error.strerror or error
        raise DemoError(f"no temporary folder: {reason}; name one that can be written to in TMPDIR") from error
    with folder as name:
        yield Path(name)


def check_open_files_limit(servers: int) -> None:
    """Check that the process may open as many files as the demo needs.

    Args:
        servers: number of vLLMs.

    Raises:
        DemoError: the limit is too low.
    """
    needed = BASE_OPEN_FILES + OPEN_FILES_PER_SERVER * servers
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise DemoError(
            f"--servers {servers}: this takes up to {needed} open files, and {limit} are allowed; "
            f"allow more with `ulimit -n {needed}`, or choose fewer servers"
        )


def _create_simulations(settings: DemoSettings, ports: contextlib.ExitStack) -> _Simulations:
    """The simulated servers, bound to ports that are closed with `ports`."""
    ollama = OllamaWithUsers(settings.seed, time.time_ns())
    clock = SuspendAwareClock(read_boot_clock, lambda seconds: ollama.advance_wall_clock(round(seconds * SECOND)))
    vllms = create_vllms(settings.seed, settings.servers, time.time())
    applications = {name: build_vllm_application(vllm, clock) for name, vllm in vllms.items()}
    llama = SimulatedLlamaServer(settings.seed, time.time())
    applications[LLAMA_NAME] = build_llama_application(llama, clock)
    applications[OLLAMA_NAME] = build_ollama_application(ollama, clock)
    servers = {}
    for name, application in applications.items():
        servers[name] = bind_server(application)
        ports.enter_context(servers[name].bound)
    return _Simulations(clock, vllms, llama, ollama, servers)


def create_vllms(seed: int, count: int, created: float) -> dict[str, SimulatedVllm]:
    """The simulated vLLMs by target name.

    They start at different positions of the script, so that they are never all in the same act, and have different
    seeds.

    Args:
        seed: seed of the first one; each further one has the next integer.
        count: number of vLLMs.
        created: Unix time at which they start.
    """
    names = [VLLM_NAME, *(f"{VLLM_NAME}-{number}" for number in range(2, count + 1))]
    return {
        name: SimulatedVllm(seed + number, created, CYCLE_SECONDS * number / count) for number, name in enumerate(names)
    }


def build_configuration(urls: Mapping[str, str], process_list: Path) -> str:
    """The exporter's configuration file, as an operator would write it.

    Args:
        urls: URLs of the simulated servers by target name.
        process_list: folder of the process list that has the Ollama's children.
    """
    targets = [_build_target(name, url, process_list) for name, url in urls.items()]
    return yaml.safe_dump({"interval": INTERVAL, "targets": targets}, sort_keys=False)


def _build_target(name: str, url: str, process_list: Path) -> dict[str, Any]:
    if name == OLLAMA_NAME:
        keys = {
            "probe": {"interval": PROBE_INTERVAL, "budget": PROBE_BUDGET},
            "ollama": {"procfs": str(process_list)},
            **demo_models.build_target_keys(),
        }
        return {"name": name, "backend": "ollama", "url": url, **keys}
    if name == LLAMA_NAME:
        return {"name": name, "backend": "llamacpp", "url": url, **build_llama_target_keys()}
    return {"name": name, "backend": "vllm", "url": url, **simulation.build_target_keys()}


def _log_welcome(settings: DemoSettings) -> None:
    get_logger().info(
        "demo",
        page=f"http://{settings.address}/",
        metrics=f"http://{settings.address}/metrics",
        note=f"{NOTICE} Every state of saturation comes within {units.format_duration(CYCLE_SECONDS)}. Ctrl-C ends it.",
    )


def _run_prometheus(
    settings: DemoSettings, simulations: _Simulations, folder: Path
) -> contextlib.AbstractAsyncContextManager[None]:
    if settings.prometheus is None:
        return contextlib.nullcontext()
    vllms = {name: f"{HOST}:{simulations.servers[name].port}" for name in simulations.vllms}
    return prometheus.run_prometheus(settings.prometheus, folder, settings.address, vllms)


async def _advance_simulations(simulations: _Simulations, children: ChildServers) -> None:
    """Advance the simulations even if nothing requests them, log each act as it begins, and keep up with the Ollama's
    children.
    """
    scripted: dict[str, SimulatedVllm | SimulatedLlamaServer] = {**simulations.vllms, LLAMA_NAME: simulations.llama}
    logged: dict[str, Act] = {}
    while True:
        for name, server in scripted.items():
            server.advance(simulations.clock())
            if server.act != logged.get(name):
                logged[name] = server.act
                _log_act(name, server.act)
            await asyncio.sleep(0)
        simulations.ollama.advance(round(simulations.clock() * SECOND))
        await children.update()
        await asyncio.sleep(TICK_SECONDS)


def _log_act(target: str, act: Act) -> None:
    # The acts of many servers would flood the log.
    log = get_logger().info if target in {VLLM_NAME, LLAMA_NAME} else get_logger().debug
    look_at = ", ".join(LLAMA_METRICS_TO_WATCH[act.name] if target == LLAMA_NAME else METRICS_TO_WATCH[act.state])
    log("act", target=target, act=act.name, state=act.state.value, about=act.about, look_at=look_at)
