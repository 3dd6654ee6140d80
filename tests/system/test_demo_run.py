"""The demo as a process: what a user sees who starts and stops it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx
import pytest
import yaml

from phasewatch.demo.clock import LONGEST_TICK
from phasewatch.demo.ollama.demo_models import SMALL
from phasewatch.demo.run import BASE_OPEN_FILES, LLAMA_NAME, NOTICE, OLLAMA_NAME, OPEN_FILES_PER_SERVER, VLLM_NAME
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS, METRICS_TO_WATCH, find_act
from tests.support.fakes import Exporter, logfmt, program
from tests.support.processes import PATIENCE, eventually, get_json

StartDemo = Callable[..., Exporter]

UP = "llm_target_up"
ROUNDING = 1.0
"""Seconds: /v1/models reports whole ones."""
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_demo(folder: Path, *words: str) -> Exporter:
    """The demo with its temporary folder inside `folder`."""
    return Exporter(*words, command="demo", environment={"TMPDIR": str(folder)})


@pytest.fixture
def demo(tmp_path: Path) -> StartDemo:
    """Starts the demo, with its temporary folder inside that of the test."""
    return lambda *words: start_demo(tmp_path, *words)


def list_children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_all_servers_are_scraped_and_their_metrics_change(demo: StartDemo) -> None:
    with demo() as exporter:
        exporter.shows(1.0, UP, target=VLLM_NAME, backend="vllm")
        exporter.shows(1.0, UP, target=LLAMA_NAME, backend="llamacpp")
        exporter.shows(1.0, UP, target=OLLAMA_NAME, backend="ollama")
        exporter.shows(1.0, "llm_model_loaded", target=OLLAMA_NAME)
        for name in (VLLM_NAME, LLAMA_NAME):
            expect_speeds_and_a_ceiling(exporter, name)
        page = exporter.ask("/")
        assert page.status_code == 200
        assert NOTICE in page.text


def expect_speeds_and_a_ceiling(exporter: Exporter, target: str) -> None:
    """Wait for a throughput of a target, for another one, and for a ceiling."""
    speed = "llm_decode_throughput_tokens_per_second"
    first = eventually(lambda: exporter.value(speed, target=target), f"a speed of {target}")
    eventually(lambda: exporter.value(speed, target=target) not in {None, first}, f"another speed of {target}")
    ceiling = "llm_decode_ceiling_tokens_per_second"
    eventually(lambda: exporter.value(ceiling, target=target), f"a ceiling of {target}")


def test_a_signal_ends_the_demo_with_exit_code_0_and_leaves_nothing(tmp_path: Path) -> None:
    for number in ENDING_SIGNALS:
        with start_demo(tmp_path) as exporter:
            exporter.shows(1.0, UP, target=OLLAMA_NAME)
            (folder,) = tmp_path.iterdir()
            assert (folder / "phasewatch.yml").exists(), number
            assert list_children(exporter.process.pid) == [], number
            exporter.signal(number)
            assert exporter.ended() == 0, number
        assert list(tmp_path.iterdir()) == [], number
        messages = [logfmt(line)["msg"] for line in exporter.lines]
        assert messages[:3] == ["listening", "demo", "act"], number
        assert messages[-1] == "stopped", number
        assert {logfmt(line)["level"] for line in exporter.lines} == {"info"}, number


def test_the_log_has_the_urls_and_announces_each_act(demo: StartDemo) -> None:
    with demo() as exporter:
        welcome, act = logfmt(exporter.logged("msg=demo")), logfmt(exporter.logged("msg=act"))
    assert (welcome["page"], welcome["metrics"]) == (f"{exporter.url}/", f"{exporter.url}/metrics")
    assert NOTICE in welcome["note"]
    first = CYCLE[0]
    assert (act["target"], act["act"], act["state"]) == (VLLM_NAME, first.name, first.state.value)
    assert act["about"] == first.about
    assert act["look_at"] == ", ".join(METRICS_TO_WATCH[first.state])


def test_several_servers_are_in_different_acts(demo: StartDemo) -> None:
    names = (VLLM_NAME, f"{VLLM_NAME}-2", f"{VLLM_NAME}-3")
    with demo("--servers", "3", "--log.level", "debug") as exporter:
        for name in (*names, OLLAMA_NAME):
            exporter.shows(1.0, UP, target=name)
        acts = [logfmt(exporter.logged(f"msg=act target={name} ")) for name in names]
        open_files = list(Path(f"/proc/{exporter.process.pid}/fd").iterdir())
        assert len(open_files) < BASE_OPEN_FILES + 3 * OPEN_FILES_PER_SERVER
    assert [act["act"] for act in acts] == [find_act(part * CYCLE_SECONDS / 3)[0].name for part in range(3)]
    assert [act["level"] for act in acts] == ["info", "debug", "debug"]


def test_a_signal_during_startup_ends_the_demo_as_later_ones_do(tmp_path: Path) -> None:
    for number in ENDING_SIGNALS:
        process = program("demo", "--web.listen-address", "127.0.0.1:0", environment={"TMPDIR": str(tmp_path)})
        deadline = time.monotonic() + PATIENCE
        while not any(tmp_path.iterdir()):
            assert time.monotonic() < deadline, number
        process.send_signal(number)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, (number, log)
        assert logfmt(log.splitlines()[-1])["msg"] == "stopped", number
        assert list(tmp_path.iterdir()) == [], number


def test_suspended_time_is_skipped_by_simulations_but_not_by_ollamas_wall_clock(
    demo: StartDemo, tmp_path: Path
) -> None:
    with demo() as exporter:
        exporter.shows(1.0, UP, target=OLLAMA_NAME)
        (file,) = tmp_path.glob("*/phasewatch.yml")
        urls = {target["name"]: target["url"] for target in yaml.safe_load(file.read_text())["targets"]}
        before = measure_lag(urls[VLLM_NAME])
        exporter.signal(signal.SIGSTOP)
        time.sleep(LONGEST_TICK + 3.0)
        exporter.signal(signal.SIGCONT)
        assert measure_lag(urls[VLLM_NAME]) - before > 2.0 - ROUNDING
        requested = time.time()
        unload = {"model": SMALL.name, "keep_alive": 0}
        response = httpx.post(f"{urls[OLLAMA_NAME]}/api/generate", json=unload, trust_env=False, timeout=PATIENCE)
        wall = datetime.fromisoformat(response.json()["created_at"]).timestamp()
        assert requested - ROUNDING < wall < time.time() + ROUNDING


def measure_lag(url: str) -> float:
    """Seconds by which the time of a simulated vLLM lags behind the wall clock, except for rounding."""
    (model,) = get_json(f"{url}/v1/models")["data"]
    return time.time() - float(model["created"])


def test_a_low_limit_on_open_files_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    words = ("demo", "--servers", "100", "--web.listen-address", "127.0.0.1:0")
    needed = BASE_OPEN_FILES + 100 * OPEN_FILES_PER_SERVER
    for limit in (64, 130):
        process = subprocess.run(
            [
                "sh",
                "-c",
                f'ulimit -n {limit} && exec "$@"',
                "sh",
                sys.executable,
                "-W",
                "error",
                "-m",
                "phasewatch",
                *words,
            ],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert process.returncode == 1, limit
        assert process.stderr == (
            f"--servers 100: this takes up to {needed} open files, and {limit} are allowed; "
            f"allow more with `ulimit -n {needed}`, or choose fewer servers\n"
        ), limit
        assert list(tmp_path.iterdir()) == [], limit


def test_a_port_in_use_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        process = program("demo", "--web.listen-address", address, environment={"TMPDIR": str(tmp_path)})
        _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert log == f"cannot listen on {address}: Address already in use; choose with --web.listen-address\n"
    assert list(tmp_path.iterdir()) == []


def test_invalid_flags_are_refused() -> None:
    for words, message in (
        (("--servers", "0"), "--servers: expected a whole number from 1 to 100, found '0'"),
        (("--seed", "-1"), "--seed: expected"),
        (("--seed", "one"), "--seed: expected a whole number from 0 to 4294967295, found 'one'"),
        (("--config.file", "x"), "unrecognized arguments: --config.file"),
    ):
        process = program("demo", *words)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2, words
        assert message in log, words
