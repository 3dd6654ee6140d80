"""The parts of the demo that need no process of their own."""

import asyncio
import resource
import socket
import tempfile
from pathlib import Path

import pytest
import yaml
from starlette.types import ASGIApp

from phasewatch.base.errors import BindError, DemoError
from phasewatch.demo.run import (
    BASE_OPEN_FILES,
    LLAMA_NAME,
    OLLAMA_NAME,
    OPEN_FILES_PER_SERVER,
    VLLM_NAME,
    DemoSettings,
    build_configuration,
    check_open_files_limit,
    create_vllms,
    run,
)
from phasewatch.demo.servers import BoundServer, bind_server
from phasewatch.demo.vllm.script import CYCLE_SECONDS
from phasewatch.demo.vllm.simulation import SimulatedVllm
from tests.support.simulated_vllm import CREATED
from tests.support.targets import parse_config

URLS = {
    VLLM_NAME: "http://127.0.0.1:8000",
    LLAMA_NAME: "http://127.0.0.1:8080",
    OLLAMA_NAME: "http://127.0.0.1:11434",
}
PROCESS_LIST = Path("/tmp/demo/proc")  # noqa: S108  # only named


def bind_exporter(servers: int = 1) -> tuple[DemoSettings, socket.socket]:
    """Settings and the exporter's listening socket."""
    bound = socket.create_server(("127.0.0.1", 0))
    return DemoSettings("127.0.0.1", bound.getsockname()[1], seed=1, servers=servers, prometheus=None), bound


def test_each_vllm_has_its_own_users_and_its_own_position_in_the_script() -> None:
    for number, server in enumerate(create_vllms(7, 3, CREATED).values()):
        same, other = (SimulatedVllm(seed, CREATED, CYCLE_SECONDS * number / 3) for seed in (7 + number, 8 + number))
        for one in (server, same, other):
            one.advance(20.0)
        pages = [one.respond("GET", "/metrics").body for one in (server, same, other)]
        assert pages[0] == pages[1] != pages[2], number


def test_an_error_in_a_simulation_ends_the_demo_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phasewatch.demo.run.METRICS_TO_WATCH", {})
    settings, bound = bind_exporter()
    with pytest.raises(KeyError):
        asyncio.run(run(settings, bound))
    assert bound.fileno() == -1


def test_without_a_temporary_folder_the_demo_fails_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    opened: list[ASGIApp] = []
    monkeypatch.setattr("phasewatch.demo.run.bind_server", opened.append)
    settings, bound = bind_exporter()
    message = "no temporary folder: No such file or directory; name one that can be written to in TMPDIR"
    with pytest.raises(DemoError, match=f"^{message}$"):
        asyncio.run(run(settings, bound))
    assert bound.fileno() == -1
    assert opened == []


def test_ports_are_closed_if_there_are_not_enough_for_all_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[BoundServer] = []

    def bind_up_to_two(application: ASGIApp) -> BoundServer:
        if len(opened) == 2:
            raise BindError("no more ports")
        opened.append(bind_server(application))
        return opened[-1]

    monkeypatch.setattr("phasewatch.demo.run.bind_server", bind_up_to_two)
    settings, bound = bind_exporter(servers=3)
    with pytest.raises(BindError, match="no more ports"):
        asyncio.run(run(settings, bound))
    assert [server.bound.fileno() for server in opened] == [-1, -1]


def test_the_limit_on_open_files_limits_the_number_of_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, servers in (
        (BASE_OPEN_FILES + 3 * OPEN_FILES_PER_SERVER, 3),
        (resource.RLIM_INFINITY, 100),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        check_open_files_limit(servers)
        if limit != resource.RLIM_INFINITY:
            with pytest.raises(DemoError, match=f"--servers {servers + 1}: "):
                check_open_files_limit(servers + 1)


def test_the_configuration_is_valid_and_configures_device_and_probes() -> None:
    config = parse_config(build_configuration(URLS, PROCESS_LIST))
    assert config.notes == ()
    vllm, llama, ollama = config.targets
    assert (vllm.name, vllm.backend, vllm.url) == (VLLM_NAME, "vllm", URLS[VLLM_NAME])
    assert (ollama.name, ollama.backend, ollama.url) == (OLLAMA_NAME, "ollama", URLS[OLLAMA_NAME])
    assert (llama.name, llama.backend, llama.url) == (LLAMA_NAME, "llamacpp", URLS[LLAMA_NAME])
    assert ollama.probe.enabled
    assert (ollama.ollama.runners, ollama.ollama.procfs) == ("auto", PROCESS_LIST)
    assert ollama.probe.interval <= 60
    assert vllm.interval == 1.0
    assert vllm.device.name
    assert llama.device.name
    assert ollama.device.name
    assert yaml.safe_load(build_configuration(URLS, PROCESS_LIST))["targets"]


def test_every_target_name_says_that_it_is_simulated() -> None:
    assert VLLM_NAME.startswith("simulated-")
    assert LLAMA_NAME.startswith("simulated-")
    assert OLLAMA_NAME.startswith("simulated-")


def test_the_logged_address_is_one_that_can_be_reached_from_this_machine() -> None:
    for host, address in (
        ("127.0.0.1", "127.0.0.1:10061"),
        ("", "127.0.0.1:10061"),
        ("0.0.0.0", "127.0.0.1:10061"),  # noqa: S104  # compared, not bound
        ("::", "[::1]:10061"),
        ("::1", "[::1]:10061"),
        ("localhost", "localhost:10061"),
    ):
        assert DemoSettings(host, 10061, seed=1, servers=1, prometheus=None).address == address, host
