"""The demo as a process: what a person sees who starts it and ends it again."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx
import pytest
import yaml
from starlette.types import ASGIApp

from phasewatch.analysis.saturation import State
from phasewatch.base.errors import BindError, DemoError
from phasewatch.config.resolve import parse
from phasewatch.demo.clock import LONGEST_TICK
from phasewatch.demo.ollama.demo_models import SMALL
from phasewatch.demo.run import (
    FILES,
    FILES_OF_A_SERVER,
    NOTICE,
    OLLAMA_NAME,
    VLLM_NAME,
    Settings,
    check_files,
    configuration,
    fleet,
    run,
)
from phasewatch.demo.servers import Served, served
from phasewatch.demo.tour import LOOK_AT
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS, act_at
from phasewatch.demo.vllm.simulation import SimulatedVllm
from phasewatch.metrics.collector import TABLE
from tests.support.fakes import Exporter, logfmt, program
from tests.support.processes import PATIENCE, eventually, get_json
from tests.support.simulated_vllm import STARTED

Demo = Callable[..., Exporter]

UP = "llm_target_up"
ROUNDING = 1.0
"""Seconds: /v1/models tells whole ones."""
URLS = {VLLM_NAME: "http://127.0.0.1:8000", OLLAMA_NAME: "http://127.0.0.1:11434"}


@pytest.fixture
def demo(tmp_path: Path) -> Callable[..., Exporter]:
    """Starts the demo, with its temporary folder inside that of the test."""
    return lambda *words: Exporter(*words, command="demo", environment={"TMPDIR": str(tmp_path)})


def children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_both_servers_are_watched_and_their_numbers_move(demo: Demo) -> None:
    with demo() as shown:
        shown.shows(1.0, UP, target=VLLM_NAME, backend="vllm")
        shown.shows(1.0, UP, target=OLLAMA_NAME, backend="ollama")
        shown.shows(1.0, "llm_model_loaded", target=OLLAMA_NAME)
        speed = "llm_decode_throughput_tokens_per_second"
        first = eventually(lambda: shown.value(speed, target=VLLM_NAME), "a speed")
        eventually(lambda: shown.value(speed, target=VLLM_NAME) not in {None, first}, "another speed")
        assert (shown.value("llm_decode_ceiling_tokens_per_second", target=VLLM_NAME) or 0) > 0
        page = shown.ask("/")
        assert page.status_code == 200
        assert NOTICE in page.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_0_and_leaves_nothing(number: signal.Signals, demo: Demo, tmp_path: Path) -> None:
    with demo() as shown:
        shown.shows(1.0, UP, target=OLLAMA_NAME)
        (folder,) = tmp_path.iterdir()
        assert (folder / "phasewatch.yml").exists()
        assert children(shown.process.pid) == []
        shown.signal(number)
        assert shown.ended() == 0
    assert list(tmp_path.iterdir()) == []
    messages = [logfmt(line)["msg"] for line in shown.lines]
    assert messages[:3] == ["listening", "demo", "act"]
    assert messages[-1] == "stopped"
    assert {logfmt(line)["level"] for line in shown.lines} == {"info"}


def test_the_log_tells_where_to_look_and_what_happens(demo: Demo) -> None:
    with demo() as shown:
        welcome, act = logfmt(shown.logged("msg=demo")), logfmt(shown.logged("msg=act"))
    assert (welcome["page"], welcome["metrics"]) == (f"{shown.url}/", f"{shown.url}/metrics")
    assert NOTICE in welcome["note"]
    first = CYCLE[0]
    assert (act["target"], act["act"], act["state"]) == (VLLM_NAME, first.name, first.state.value)
    assert act["about"] == first.about
    assert act["look_at"] == ", ".join(LOOK_AT[first.state])


def test_several_servers_are_at_different_acts(demo: Demo) -> None:
    names = (VLLM_NAME, f"{VLLM_NAME}-2", f"{VLLM_NAME}-3")
    with demo("--servers", "3", "--log.level", "debug") as shown:
        for name in (*names, OLLAMA_NAME):
            shown.shows(1.0, UP, target=name)
        acts = [logfmt(shown.logged(f"msg=act target={name} ")) for name in names]
        assert len(list(Path(f"/proc/{shown.process.pid}/fd").iterdir())) < FILES + 3 * FILES_OF_A_SERVER
    assert [act["act"] for act in acts] == [act_at(part * CYCLE_SECONDS / 3)[0].name for part in range(3)]
    assert [act["level"] for act in acts] == ["info", "debug", "debug"]


def test_each_server_has_users_of_its_own_from_its_own_act_on() -> None:
    servers = list(fleet(7, 3, STARTED).values())
    for number, server in enumerate(servers):
        same, another = (SimulatedVllm(seed, STARTED, CYCLE_SECONDS * number / 3) for seed in (7 + number, 8 + number))
        for one in (server, same, another):
            one.advance(20.0)
        pages = [one.answer("GET", "/metrics").body for one in (server, same, another)]
        assert pages[0] == pages[1] != pages[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_as_soon_as_there_is_a_folder_ends_it_as_later(number: signal.Signals, tmp_path: Path) -> None:
    process = program("demo", "--web.listen-address", "127.0.0.1:0", environment={"TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + PATIENCE
    while not any(tmp_path.iterdir()):
        assert time.monotonic() < deadline
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert logfmt(told.splitlines()[-1])["msg"] == "stopped"
    assert list(tmp_path.iterdir()) == []


def test_what_it_was_stopped_for_is_left_out_by_all_simulations_and_the_ollama_still_knows_the_time(
    demo: Demo, tmp_path: Path
) -> None:
    with demo() as shown:
        shown.shows(1.0, UP, target=OLLAMA_NAME)
        (file,) = tmp_path.glob("*/phasewatch.yml")
        urls = {target["name"]: target["url"] for target in yaml.safe_load(file.read_text())["targets"]}
        before = behind(urls[VLLM_NAME])
        shown.signal(signal.SIGSTOP)
        time.sleep(LONGEST_TICK + 3.0)
        shown.signal(signal.SIGCONT)
        assert behind(urls[VLLM_NAME]) - before > 2.0 - ROUNDING
        asked = time.time()
        unload = {"model": SMALL.name, "keep_alive": 0}
        answer = httpx.post(f"{urls[OLLAMA_NAME]}/api/generate", json=unload, trust_env=False, timeout=PATIENCE)
        wall = datetime.fromisoformat(answer.json()["created_at"]).timestamp()
        assert asked - ROUNDING < wall < time.time() + ROUNDING


def behind(url: str) -> float:
    """Seconds by which the time of a simulated vLLM is behind ours, but for rounding."""
    (model,) = get_json(f"{url}/v1/models")["data"]
    return time.time() - float(model["created"])


def test_a_simulation_that_breaks_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phasewatch.demo.run.LOOK_AT", {})
    bound = socket.create_server(("127.0.0.1", 0))
    settings = Settings("127.0.0.1", bound.getsockname()[1], seed=1, servers=1, prometheus=None)
    with pytest.raises(KeyError):
        asyncio.run(run(settings, bound))
    assert bound.fileno() == -1


def test_without_a_place_for_temporary_files_it_says_so_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    opened: list[Served] = []
    monkeypatch.setattr("phasewatch.demo.run.served", opened.append)
    bound = socket.create_server(("127.0.0.1", 0))
    settings = Settings("127.0.0.1", bound.getsockname()[1], seed=1, servers=1, prometheus=None)
    told = "no temporary folder: No such file or directory; name one that can be written to in TMPDIR"
    with pytest.raises(DemoError, match=f"^{told}$"):
        asyncio.run(run(settings, bound))
    assert bound.fileno() == -1
    assert opened == []


def test_ports_that_were_taken_are_closed_where_there_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Served] = []

    def limited_ports(application: ASGIApp) -> Served:
        if len(opened) == 2:
            raise BindError("no more ports")
        opened.append(served(application))
        return opened[-1]

    monkeypatch.setattr("phasewatch.demo.run.served", limited_ports)
    bound = socket.create_server(("127.0.0.1", 0))
    settings = Settings("127.0.0.1", bound.getsockname()[1], seed=1, servers=3, prometheus=None)
    with pytest.raises(BindError, match="no more ports"):
        asyncio.run(run(settings, bound))
    assert [one.bound.fileno() for one in opened] == [-1, -1]


@pytest.mark.parametrize("most", [64, 130])
def test_too_few_open_files_are_told_before_anything_is_started(most: int, tmp_path: Path) -> None:
    words = ("demo", "--servers", "100", "--web.listen-address", "127.0.0.1:0")
    limited = f'ulimit -n {most} && exec "$@"'
    process = subprocess.run(
        ["sh", "-c", limited, "sh", sys.executable, "-W", "error", "-m", "phasewatch", *words],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    needed = FILES + 100 * FILES_OF_A_SERVER
    assert process.returncode == 1
    assert process.stderr == (
        f"--servers 100: this takes up to {needed} open files, and {most} are allowed; "
        f"allow more with `ulimit -n {needed}`, or choose fewer servers\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("most", "fit"), [(FILES + 3 * FILES_OF_A_SERVER, 3), (resource.RLIM_INFINITY, 100)])
def test_as_many_servers_as_files_allow_may_run(most: int, fit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    check_files(fit)
    if most != resource.RLIM_INFINITY:
        with pytest.raises(DemoError, match=f"--servers {fit + 1}: "):
            check_files(fit + 1)


def test_a_taken_port_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = program("demo", "--web.listen-address", address, environment={"TMPDIR": str(tmp_path)})
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert told == f"cannot listen on {address}: Address already in use; choose with --web.listen-address\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--servers", "0"), "--servers: expected a whole number from 1 to 100, found '0'"),
        (("--seed", "-1"), "--seed: expected"),
        (("--seed", "one"), "--seed: expected a whole number from 0 to 4294967295, found 'one'"),
        (("--config.file", "x"), "unrecognized arguments: --config.file"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, str], message: str) -> None:
    process = program("demo", *words)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert message in told


def test_the_configuration_is_one_that_an_operator_could_write() -> None:
    config = parse(configuration(URLS))
    assert config.notes == ()
    vllm, ollama = config.targets
    assert (vllm.name, vllm.backend, vllm.url) == (VLLM_NAME, "vllm", URLS[VLLM_NAME])
    assert (ollama.name, ollama.backend, ollama.url) == (OLLAMA_NAME, "ollama", URLS[OLLAMA_NAME])
    assert ollama.probe.enabled
    assert ollama.probe.interval <= 60
    assert vllm.interval == 1.0
    assert vllm.device.name
    assert ollama.device.name
    assert yaml.safe_load(configuration(URLS))["targets"]


def test_every_name_says_that_it_is_simulated() -> None:
    assert VLLM_NAME.startswith("simulated-")
    assert OLLAMA_NAME.startswith("simulated-")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:10061"),
        ("", "127.0.0.1:10061"),
        ("0.0.0.0", "127.0.0.1:10061"),  # noqa: S104  # read, not bound
        ("::", "[::1]:10061"),
        ("::1", "[::1]:10061"),
        ("localhost", "localhost:10061"),
    ],
)
def test_the_page_is_told_where_somebody_on_this_machine_finds_it(host: str, address: str) -> None:
    assert Settings(host, 10061, seed=1, servers=1, prometheus=None).address == address


def test_there_is_something_to_look_at_in_every_state() -> None:
    assert LOOK_AT.keys() == set(State)
    assert {name for names in LOOK_AT.values() for name in names} <= {metric.name for metric in TABLE}
