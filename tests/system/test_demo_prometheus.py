"""Prometheus with the demo: its configuration, and the real program with all rules."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from phasewatch.base.errors import DemoError
from phasewatch.demo import prometheus
from phasewatch.demo.prometheus import DEFAULT_PORT, Setup, configuration, free_port, rules_folder, running, setup
from phasewatch.demo.run import VLLM_NAME
from tests.support.fakes import Exporter, logfmt, program
from tests.support.paths import ALERTS
from tests.support.processes import PATIENCE, eventually, get_json, needs

EXPORTER = "127.0.0.1:10061"
VLLMS = {"simulated-vllm": "127.0.0.1:8000"}


def script(folder: Path, text: str) -> Path:
    """A program that stands in for Prometheus."""
    path = folder / "prometheus"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def ended(logs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in logs if line["event"] == "prometheus has ended"]


def test_the_configuration_scrapes_the_exporter_and_the_servers_under_the_names_that_rules_know() -> None:
    told = configuration(Path("/rules"), "127.0.0.1:9090", EXPORTER, VLLMS)
    shipped = yaml.safe_load((ALERTS / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job["static_configs"] for job in told["scrape_configs"]}
    assert {job["job_name"] for job in shipped["scrape_configs"]} <= jobs.keys()
    assert jobs["phasewatch"] == [{"targets": [EXPORTER]}]
    assert jobs["vllm"] == [{"targets": ["127.0.0.1:8000"], "labels": {"target": "simulated-vllm"}}]
    assert told["rule_files"] == ["/rules/*.yml"]


@needs("promtool")
def test_the_configuration_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(configuration(rules_folder(), "127.0.0.1:9090", EXPORTER, VLLMS)))
    subprocess.run(["promtool", "check", "config", file], check=True, capture_output=True)


def test_the_rules_are_those_of_this_checkout() -> None:
    assert rules_folder() == ALERTS / "rules"


def test_without_the_program_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError, match="no program `prometheus` on PATH; install it"):
        setup()


def test_the_command_fails_before_anything_is_started_without_the_program(tmp_path: Path) -> None:
    process = program("demo", "--with-prometheus", environment={"PATH": str(tmp_path)})
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told.startswith("--with-prometheus: no program `prometheus` on PATH")
    assert len(told.splitlines()) == 1


def test_the_command_fails_and_leaves_nothing_where_the_program_cannot_be_started(tmp_path: Path) -> None:
    programs, temporary = tmp_path / "programs", tmp_path / "temporary"
    programs.mkdir()
    temporary.mkdir()
    script(programs, "").write_text("#!/nowhere\n")
    environment = {"PATH": str(programs), "TMPDIR": str(temporary)}
    process = program("demo", "--with-prometheus", "--web.listen-address", "127.0.0.1:0", environment=environment)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told.splitlines()[-1].endswith("prometheus cannot be started: No such file or directory")
    assert "level=warning" not in told
    assert list(temporary.iterdir()) == []


def test_the_usual_port_is_taken_if_it_is_free_and_another_otherwise() -> None:
    found = free_port()
    try:
        taken = socket.create_server(("127.0.0.1", DEFAULT_PORT))
    except OSError:
        assert found != DEFAULT_PORT
        return
    with taken:
        assert found == DEFAULT_PORT
        assert free_port() != DEFAULT_PORT


def test_one_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    found = Setup(str(script(tmp_path, "echo no room for my data >&2; exit 7")), ALERTS / "rules")

    async def work() -> None:
        async with running(found, tmp_path, EXPORTER, VLLMS):
            await asyncio.to_thread(eventually, lambda: ended(logs), "a line in the log")

    with capture_logs() as logs:
        asyncio.run(work())
    (line,) = ended(logs)
    assert (line["log_level"], line["code"], line["log"]) == ("warning", 7, "no room for my data")


def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_STOP_SECONDS", 0.1)
    found = Setup(str(script(tmp_path, f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done")), ALERTS)

    async def work() -> int:
        async with running(found, tmp_path, EXPORTER, VLLMS):
            return int(await asyncio.to_thread(eventually, (tmp_path / "pid").read_text, "its start"))

    process = asyncio.run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def wrapper(folder: Path, *, ignores: str = ":", ending: str) -> tuple[Setup, Path]:
    """A program that starts another one, and a file in which that one says its number."""
    pid = folder / "pid"
    started = f"{ignores}; echo $$ > {pid}.new; mv {pid}.new {pid}; while :; do sleep 0.1; done"
    return Setup(str(script(folder, f"{ignores}; sh -c '{started}' {ending}")), ALERTS), pid


@pytest.mark.parametrize("ignores", [":", 'trap "" TERM'])
def test_what_a_wrapper_has_started_ends_with_the_demo(
    ignores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "_STOP_SECONDS", 1.0)
    found, pid = wrapper(tmp_path, ignores=ignores, ending="; :")

    async def work() -> int:
        async with running(found, tmp_path, EXPORTER, VLLMS):
            return int(await asyncio.to_thread(eventually, pid.read_text, "its start"))

    assert ends(asyncio.run(work()))


def test_what_a_wrapper_leaves_behind_when_it_ends_is_ended_too(tmp_path: Path) -> None:
    found, pid = wrapper(tmp_path, ending=f"& until test -e {tmp_path}/pid; do sleep 0.05; done; exit 7")

    async def work() -> bool:
        async with running(found, tmp_path, EXPORTER, VLLMS):
            await asyncio.to_thread(eventually, lambda: ended(logs), "a line in the log")
            return await asyncio.to_thread(ends, int(pid.read_text()))

    with capture_logs() as logs:
        assert asyncio.run(work())


def ends(process: int) -> bool:
    """Whether a process comes to its end by itself; it is not left behind."""
    try:
        return eventually(lambda: not alive(process), "its end", patience=5.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and that nobody asks for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_one_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(Setup(str(tmp_path / "gone"), ALERTS), tmp_path, EXPORTER, VLLMS):
            raise AssertionError("it is not there")

    with pytest.raises(DemoError, match="gone cannot be started: No such file or directory"):
        asyncio.run(work())


@contextlib.contextmanager
def demo_with_prometheus(folder: Path) -> Iterator[tuple[Exporter, str, int]]:
    """The demo, the address of its Prometheus, and that process, which a failed test does not leave behind."""
    with Exporter("--with-prometheus", command="demo", environment={"TMPDIR": str(folder)}) as shown:
        address = logfmt(shown.logged("msg=prometheus"))["page"].removesuffix("/alerts")
        (child,) = map(int, Path(f"/proc/{shown.process.pid}/task/{shown.process.pid}/children").read_text().split())
        try:
            yield shown, address, child
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            raise


@needs("prometheus")
def test_the_real_one_has_all_rules_and_sees_both_servers_and_ends_with_the_demo(tmp_path: Path) -> None:
    with demo_with_prometheus(tmp_path) as (shown, address, child):
        assert os.getpgid(child) != os.getpgid(shown.process.pid)  # Ctrl-C in a terminal reaches the demo alone

        def up() -> list[str]:
            targets = get_json(f"{address}/api/v1/targets")["data"]["activeTargets"]
            return sorted(one["labels"]["job"] for one in targets if one["health"] == "up")

        eventually(lambda: up() == ["phasewatch", "prometheus", "vllm"], "all targets are up")
        groups = get_json(f"{address}/api/v1/rules")["data"]["groups"]
        loaded = {rule["name"] for group in groups for rule in group["rules"]}
        assert loaded >= shipped_rules()
        query = f"{address}/api/v1/query?query=llm_target_up"
        eventually(lambda: len(get_json(query)["data"]["result"]) == 2, "both targets of the exporter")
        own = f'{address}/api/v1/query?query=vllm:num_requests_running{{target="{VLLM_NAME}"}}'
        eventually(lambda: get_json(own)["data"]["result"], "the page of the simulated vLLM itself")
        shown.signal(signal.SIGINT)
        assert shown.ended() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    assert list(tmp_path.iterdir()) == []
    assert not any("prometheus has ended" in line for line in shown.lines)


def shipped_rules() -> set[str]:
    files = [yaml.safe_load(path.read_text()) for path in (ALERTS / "rules").glob("phasewatch-*.yml")]
    return {
        rule.get("alert") or rule["record"] for file in files for group in file["groups"] for rule in group["rules"]
    }
