"""Prometheus started by the demo: stand-ins for the program, and the real one with all rules."""

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from phasewatch.base.errors import DemoError
from phasewatch.demo import prometheus
from phasewatch.demo.prometheus import PrometheusSetup, run_prometheus
from phasewatch.demo.run import VLLM_NAME
from tests.support.fakes import Exporter, logfmt, program
from tests.support.paths import ALERTS
from tests.support.processes import PATIENCE, eventually, get_json, needs

EXPORTER = "127.0.0.1:10061"
VLLMS = {"simulated-vllm": "127.0.0.1:8000"}


def write_script(folder: Path, text: str) -> Path:
    """Write a program that stands in for Prometheus."""
    path = folder / "prometheus"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def select_end(logs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The log lines that report the end of Prometheus."""
    return [line for line in logs if line["event"] == "prometheus has ended"]


def test_without_the_program_the_command_fails_before_anything_is_started(tmp_path: Path) -> None:
    process = program("demo", "--with-prometheus", environment={"PATH": str(tmp_path)})
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert log.startswith("--with-prometheus: no program `prometheus` on PATH")
    assert len(log.splitlines()) == 1


def test_a_program_that_cannot_be_started_fails_the_command_and_leaves_nothing(tmp_path: Path) -> None:
    programs, temporary = tmp_path / "programs", tmp_path / "temporary"
    programs.mkdir()
    temporary.mkdir()
    write_script(programs, "").write_text("#!/nowhere\n")
    environment = {"PATH": str(programs), "TMPDIR": str(temporary)}
    process = program("demo", "--with-prometheus", "--web.listen-address", "127.0.0.1:0", environment=environment)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert log.splitlines()[-1].endswith("prometheus cannot be started: No such file or directory")
    assert "level=warning" not in log
    assert list(temporary.iterdir()) == []


def test_an_early_end_is_logged_with_the_end_of_prometheus_log(tmp_path: Path) -> None:
    setup = PrometheusSetup(str(write_script(tmp_path, "echo no room for my data >&2; exit 7")), ALERTS / "rules")

    async def work() -> None:
        async with run_prometheus(setup, tmp_path, EXPORTER, VLLMS):
            await asyncio.to_thread(eventually, lambda: select_end(logs), "a line in the log")

    with capture_logs() as logs:
        asyncio.run(work())
    (line,) = select_end(logs)
    assert (line["log_level"], line["code"], line["log"]) == ("warning", 7, "no room for my data")


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_STOP_SECONDS", 0.1)
    setup = PrometheusSetup(
        str(write_script(tmp_path, f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done")), ALERTS
    )

    async def work() -> int:
        async with run_prometheus(setup, tmp_path, EXPORTER, VLLMS):
            return int(await asyncio.to_thread(eventually, (tmp_path / "pid").read_text, "its start"))

    process = asyncio.run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def write_wrapper(folder: Path, *, ignores: str = ":", ending: str) -> tuple[PrometheusSetup, Path]:
    """Write a program that starts another one, which writes its process id to the returned file."""
    pid = folder / "pid"
    started = f"{ignores}; echo $$ > {pid}.new; mv {pid}.new {pid}; while :; do sleep 0.1; done"
    return PrometheusSetup(str(write_script(folder, f"{ignores}; sh -c '{started}' {ending}")), ALERTS), pid


def test_a_program_started_by_a_wrapper_ends_with_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_STOP_SECONDS", 1.0)

    async def run_and_read_pid(setup: PrometheusSetup, folder: Path, pid: Path) -> int:
        async with run_prometheus(setup, folder, EXPORTER, VLLMS):
            return int(await asyncio.to_thread(eventually, pid.read_text, "its start"))

    for name, ignores in (("polite", ":"), ("ignores-sigterm", 'trap "" TERM')):
        folder = tmp_path / name
        folder.mkdir()
        setup, pid = write_wrapper(folder, ignores=ignores, ending="; :")
        assert ends(asyncio.run(run_and_read_pid(setup, folder, pid))), name


def test_a_program_left_behind_by_a_wrapper_is_ended(tmp_path: Path) -> None:
    setup, pid = write_wrapper(tmp_path, ending=f"& until test -e {tmp_path}/pid; do sleep 0.05; done; exit 7")

    async def work() -> bool:
        async with run_prometheus(setup, tmp_path, EXPORTER, VLLMS):
            await asyncio.to_thread(eventually, lambda: select_end(logs), "a line in the log")
            return await asyncio.to_thread(ends, int(pid.read_text()))

    with capture_logs() as logs:
        assert asyncio.run(work())


def ends(process: int) -> bool:
    """Whether a process ends; if not, it is killed, so that it is not left behind."""
    try:
        return eventually(lambda: not is_running(process), "its end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def is_running(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_prometheus(PrometheusSetup(str(tmp_path / "gone"), ALERTS), tmp_path, EXPORTER, VLLMS):
            raise AssertionError("a missing program was started")

    with pytest.raises(DemoError, match="gone cannot be started: No such file or directory"):
        asyncio.run(work())


@contextlib.contextmanager
def demo_with_prometheus(folder: Path) -> Iterator[tuple[Exporter, str, int]]:
    """The demo, the URL of its Prometheus, and the id of that process, which is killed if the test fails."""
    with Exporter("--with-prometheus", command="demo", environment={"TMPDIR": str(folder)}) as exporter:
        address = logfmt(exporter.logged("msg=prometheus"))["page"].removesuffix("/alerts")
        (child,) = map(
            int, Path(f"/proc/{exporter.process.pid}/task/{exporter.process.pid}/children").read_text().split()
        )
        try:
            yield exporter, address, child
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            raise


@needs("prometheus")
def test_the_real_prometheus_has_all_rules_scrapes_all_targets_and_ends_with_the_demo(tmp_path: Path) -> None:
    with demo_with_prometheus(tmp_path) as (exporter, address, child):
        assert os.getpgid(child) != os.getpgid(exporter.process.pid)  # so Ctrl-C in a terminal reaches only the demo

        def list_up() -> list[str]:
            targets = get_json(f"{address}/api/v1/targets")["data"]["activeTargets"]
            return sorted(one["labels"]["job"] for one in targets if one["health"] == "up")

        eventually(lambda: list_up() == ["phasewatch", "prometheus", "vllm"], "all targets are up")
        groups = get_json(f"{address}/api/v1/rules")["data"]["groups"]
        loaded = {rule["name"] for group in groups for rule in group["rules"]}
        assert loaded >= list_shipped_rules()
        query = f"{address}/api/v1/query?query=llm_target_up"
        eventually(lambda: len(get_json(query)["data"]["result"]) == 3, "all targets of the exporter")
        vllm_query = f'{address}/api/v1/query?query=vllm:num_requests_running{{target="{VLLM_NAME}"}}'
        eventually(lambda: get_json(vllm_query)["data"]["result"], "the page of the simulated vLLM itself")
        exporter.signal(signal.SIGINT)
        assert exporter.ended() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    assert list(tmp_path.iterdir()) == []
    assert not any("prometheus has ended" in line for line in exporter.lines)


def list_shipped_rules() -> set[str]:
    files = [yaml.safe_load(path.read_text()) for path in (ALERTS / "rules").glob("phasewatch-*.yml")]
    return {
        rule.get("alert") or rule["record"] for file in files for group in file["groups"] for rule in group["rules"]
    }
