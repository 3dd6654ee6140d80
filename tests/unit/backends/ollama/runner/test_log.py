"""The log lines about an Ollama's children: each thing once."""

from typing import Any

from structlog.testing import capture_logs

from phasewatch.backends.ollama.runner.findings import RunnerLook
from phasewatch.backends.ollama.runner.log import RunnerLog
from tests.support.runner_looks import child, look
from tests.support.targets import new_target

OLD = child(5)
NEW = child(6, started=6000)


def report(*looks: RunnerLook) -> list[list[Any]]:
    """The log lines of each look."""
    log = RunnerLog(new_target("o", "ollama", "http://127.0.0.1:11434"))
    lines: list[list[Any]] = []
    for one in looks:
        with capture_logs() as logs:
            log.report(one)
        lines.append(logs)
    return lines


def count(lines: list[list[Any]]) -> list[int]:
    return [len(logs) for logs in lines]


def test_what_was_found_is_said_at_once_and_never_again() -> None:
    exact, estimated = look(OLD, metrics=True), look(OLD, metrics=False)
    assert count(report(exact, exact, look(), exact, look(NEW, metrics=True))) == [1, 0, 0, 0, 0]
    assert count(report(look(OLD), estimated, exact, estimated, exact)) == [0, 1, 1, 0, 0]
    (line,) = report(exact)[0]
    assert (line["event"], line["target"], line["log_level"]) == ("runners", "o", "info")


def test_what_is_missing_is_said_when_two_looks_in_a_row_lack_it() -> None:
    old = look(version=(0, 12, 0))
    assert count(report(old, old, old)) == [0, 1, 0]
    assert count(report(look(), look(OLD), look(), look())) == [0, 0, 0, 1]
    assert report(look(), look())[1][0]["note"].startswith("models are in memory, but /proc shows no llama-server")


def test_a_crash_is_one_line_and_so_is_the_return() -> None:
    lines = report(look(OLD), look(), look(), look(), look(NEW), look(NEW))
    assert count(lines) == [0, 0, 1, 0, 1, 0]
    (ended,), (back,) = lines[2], lines[4]
    assert (ended["event"], ended["model"], ended["log_level"]) == ("runner ended", "a:latest", "warning")
    assert (back["event"], back["model"], back["log_level"]) == ("runner is back", "a:latest", "info")


def test_a_crash_with_a_quick_return_is_one_line() -> None:
    lines = report(look(OLD, busy=[OLD]), look(NEW), look(NEW))
    assert count(lines) == [0, 1, 0]
    assert lines[1][0]["event"] == "runner ended"


def test_a_server_elsewhere_is_said_once() -> None:
    log = RunnerLog(new_target("o", "ollama", "http://gpu-1:11434"))
    with capture_logs() as logs:
        log.report_distance()
        log.report_distance()
    (line,) = logs
    assert line["note"].startswith("its url is not on this machine")
