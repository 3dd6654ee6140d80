import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from phasewatch.base import log
from tests.support.fakes import logfmt


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    libraries = {name: logging.getLogger(name).level for name in ("httpx", "httpcore", "apscheduler", "uvicorn")}
    yield
    root.handlers = handlers
    root.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


def test_a_logfmt_line_has_time_level_and_message_first(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "logfmt")
    log.get_logger().info("target up again", target="chat", failed_scrapes=3)
    (line,) = capsys.readouterr().err.splitlines()
    fields = logfmt(line)
    assert list(fields) == ["time", "level", "msg", "target", "failed_scrapes"]
    assert datetime.fromisoformat(fields.pop("time")).utcoffset() is not None
    assert fields == {"level": "info", "msg": "target up again", "target": "chat", "failed_scrapes": "3"}


def test_a_json_line_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    log.get_logger().warning("target down", target="chat", reason="connect")
    (line,) = capsys.readouterr().err.splitlines()
    fields = json.loads(line)
    assert datetime.fromisoformat(fields.pop("time")).utcoffset() is not None
    assert fields == {"level": "warning", "msg": "target down", "target": "chat", "reason": "connect"}


def test_no_value_can_forge_a_field_or_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for hostile in ('x" level=error msg="forged', "x\nlevel=error", 'x\\" level=error y="', "=", 'a "b" c'):
        for form in log.FORMATS:
            log.configure("info", form)
            log.get_logger().info("x", target=hostile)
            (line,) = capsys.readouterr().err.splitlines()
            fields = json.loads(line) if form == "json" else logfmt(line)
            assert fields.pop("time"), (form, hostile)
            assert fields == {"level": "info", "msg": "x", "target": hostile}, (form, hostile)


def test_lines_of_libraries_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    for form in log.FORMATS:
        log.configure("info", form)
        logging.getLogger("some.library").warning("about %s", "this")
        (line,) = capsys.readouterr().err.splitlines()
        fields = json.loads(line) if form == "json" else logfmt(line)
        assert fields.pop("time"), form
        assert fields == {"level": "warning", "msg": "about this"}, form


def test_a_traceback_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    for form in log.FORMATS:
        log.configure("info", form)
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            log.get_logger().exception("scrape broke", target="chat")
        (line,) = capsys.readouterr().err.splitlines()
        fields = json.loads(line) if form == "json" else logfmt(line)
        assert "ZeroDivisionError: division by zero" in fields["exception"], form


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("warning", "logfmt")
    log.get_logger().info("not this")
    logging.getLogger("some.library").info("nor this")
    log.get_logger().error("but this")
    (line,) = capsys.readouterr().err.splitlines()
    assert "but this" in line


def test_libraries_that_log_addresses_or_each_job_are_quiet_even_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    for library in ("httpx", "httpcore.connection", "uvicorn.access", "apscheduler.scheduler"):
        log.configure("debug", "logfmt")
        logging.getLogger(library).info("GET http://user:hunter2@h")
        log.get_logger().debug("ours")
        (line,) = capsys.readouterr().err.splitlines()
        assert "ours" in line, library
