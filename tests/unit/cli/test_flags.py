import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasewatch.cli import flags
from tests.support.refusals import refusal


def parsed(*words: str, required: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    flags.add_flag(parser, "--log.level", "level", metavar="LEVEL", type=flags.parse_log_level, default="info")
    flags.add_flag(parser, "--config.file", "file", metavar="FILE", type=Path, required=required)
    flags.add_switch(parser, "--web.enable-lifecycle", "lifecycle")
    return parser.parse_args(words)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOG_LEVEL", "CONFIG_FILE", "WEB_ENABLE_LIFECYCLE"):
        monkeypatch.delenv(f"PHASEWATCH_{name}", raising=False)


def test_a_variable_is_the_flag_in_upper_case_with_underscores() -> None:
    for flag, variable in (
        ("--config.file", "PHASEWATCH_CONFIG_FILE"),
        ("--web.listen-address", "PHASEWATCH_WEB_LISTEN_ADDRESS"),
        ("--target", "PHASEWATCH_TARGET"),
    ):
        assert flags.name_environment_variable(flag) == variable, flag


def test_the_flag_beats_the_environment_and_the_environment_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed().log_level == "info"
    monkeypatch.setenv("PHASEWATCH_LOG_LEVEL", "debug")
    assert parsed().log_level == "debug"
    assert parsed("--log.level", "error").log_level == "error"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHASEWATCH_LOG_LEVEL", "")
    monkeypatch.setenv("PHASEWATCH_CONFIG_FILE", "")
    monkeypatch.setenv("PHASEWATCH_WEB_ENABLE_LIFECYCLE", "")
    assert parsed() == argparse.Namespace(log_level="info", config_file=None, web_enable_lifecycle=False)


def test_a_bad_variable_is_refused_like_a_bad_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHASEWATCH_LOG_LEVEL", "loud")
    with pytest.raises(SystemExit) as refused:
        parsed()
    assert refused.value.code == 2
    assert "expected debug, info, warning or error, found 'loud'" in capsys.readouterr().err
    assert parsed("--log.level", "info").log_level == "info"


def test_a_required_flag_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parsed(required=True)
    assert refused.value.code == 2
    assert "--config.file" in capsys.readouterr().err
    monkeypatch.setenv("PHASEWATCH_CONFIG_FILE", "/etc/x.yml")
    assert parsed(required=True).config_file == Path("/etc/x.yml")


def test_a_switch_reads_true_and_false(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, on in (("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", False), ("False", False)):
        monkeypatch.setenv("PHASEWATCH_WEB_ENABLE_LIFECYCLE", value)
        assert parsed().web_enable_lifecycle is on, value
        assert parsed("--web.enable-lifecycle").web_enable_lifecycle, value


def test_a_switch_refuses_other_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PHASEWATCH_WEB_ENABLE_LIFECYCLE", "maybe")
    with pytest.raises(SystemExit) as refused:
        parsed()
    assert refused.value.code == 2
    assert "--web.enable-lifecycle: expected true or false, found 'maybe'" in capsys.readouterr().err


def test_an_address_is_host_and_port() -> None:
    for value, address in (
        ("127.0.0.1:10061", ("127.0.0.1", 10061)),
        ("localhost:0", ("localhost", 0)),
        (":10061", ("", 10061)),
        ("[::1]:10061", ("::1", 10061)),
        ("[::]:65535", ("::", 65535)),
    ):
        assert flags.parse_address(value) == address, value


NO_ADDRESSES = (
    "",
    "10061",
    "localhost",
    "localhost:",
    "localhost:http",
    "h:65536",
    "h:-1",
    "::1:10061",
    "[::1]",
    "http://h:1",
    "127.0.0.1:²",
    f"h:{'1' * 5000}",
)
NO_WHOLE_NUMBERS = ("", "0", "201", "-1", "1.5", "many", "²", "1e2")
BAD: list[tuple[Callable[[str], Any], str, str]] = [
    *((flags.parse_address, text, f"expected HOST:PORT, [::1]:PORT or :PORT, found {text!r}") for text in NO_ADDRESSES),
    (flags.parse_duration, "5", "expected a duration such as 5s, 500ms or 1m, found '5'"),
    (flags.parse_duration, "0s", "expected a duration above 0"),
    (flags.parse_log_level, "warn", "expected debug, info, warning or error, found 'warn'"),
    (flags.parse_log_format, "text", "expected logfmt or json, found 'text'"),
    (flags.parse_replay_format, "yaml", "expected json or openmetrics, found 'yaml'"),
    (flags.parse_recording_path, "x.txt", "expected a name that ends in .jsonl, .jsonl.gz or .jsonl.xz, found 'x.txt'"),
    *(
        (flags.create_whole_number_parser(1, 200), text, f"expected a whole number from 1 to 200, found {text!r}")
        for text in NO_WHOLE_NUMBERS
    ),
    (flags.parse_recording_path, "x.xz", "expected a name that ends in .jsonl, .jsonl.gz or .jsonl.xz, found 'x.xz'"),
]


def test_a_bad_value_is_refused_with_what_is_expected() -> None:
    for parse, value, message in BAD:
        assert refusal(argparse.ArgumentTypeError, parse, value) == message, value


def test_the_name_of_a_recording_may_end_in_each_compression() -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "dir/a.jsonl.xz"):
        assert flags.parse_recording_path(name) == Path(name), name


def test_a_duration_becomes_seconds() -> None:
    assert flags.parse_duration("1m30s") == 90


def test_a_whole_number_may_be_the_least_and_the_most() -> None:
    for value, number in (("1", 1), ("200", 200), ("007", 7)):
        assert flags.create_whole_number_parser(1, 200)(value) == number, value
