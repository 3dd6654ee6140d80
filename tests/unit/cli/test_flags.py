import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasewatch.cli import flags


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


@pytest.mark.parametrize(
    ("flag", "variable"),
    [
        ("--config.file", "PHASEWATCH_CONFIG_FILE"),
        ("--web.listen-address", "PHASEWATCH_WEB_LISTEN_ADDRESS"),
        ("--target", "PHASEWATCH_TARGET"),
    ],
)
def test_a_variable_is_the_flag_in_upper_case_with_underscores(flag: str, variable: str) -> None:
    assert flags.name_environment_variable(flag) == variable


def test_the_flag_beats_the_environment_and_the_environment_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed().log_level == "info"
    monkeypatch.setenv("PHASEWATCH_LOG_LEVEL", "debug")
    assert parsed().log_level == "debug"
    assert parsed("--log.level", "error").log_level == "error"


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("value", "on"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", False), ("False", False)]
)
def test_a_switch_reads_true_and_false(monkeypatch: pytest.MonkeyPatch, value: str, *, on: bool) -> None:
    monkeypatch.setenv("PHASEWATCH_WEB_ENABLE_LIFECYCLE", value)
    assert parsed().web_enable_lifecycle is on
    assert parsed("--web.enable-lifecycle").web_enable_lifecycle


def test_a_switch_refuses_other_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PHASEWATCH_WEB_ENABLE_LIFECYCLE", "maybe")
    with pytest.raises(SystemExit) as refused:
        parsed()
    assert refused.value.code == 2
    assert "--web.enable-lifecycle: expected true or false, found 'maybe'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("127.0.0.1:10061", ("127.0.0.1", 10061)),
        ("localhost:0", ("localhost", 0)),
        (":10061", ("", 10061)),
        ("[::1]:10061", ("::1", 10061)),
        ("[::]:65535", ("::", 65535)),
    ],
)
def test_an_address_is_host_and_port(value: str, address: tuple[str, int]) -> None:
    assert flags.parse_address(value) == address


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        *((flags.parse_address, value, f"expected HOST:PORT, [::1]:PORT or :PORT, found {value!r}") for value in (
            "", "10061", "localhost", "localhost:", "localhost:http", "h:65536", "h:-1", "::1:10061", "[::1]", "http://h:1"
        )),
        *((flags.parse_address, value, f"expected HOST:PORT, [::1]:PORT or :PORT, found {value!r}") for value in (
            "127.0.0.1:²", f"h:{'1' * 5000}"
        )),
        (flags.parse_duration, "5", "expected a duration such as 5s, 500ms or 1m, found '5'"),
        (flags.parse_duration, "0s", "expected a duration above 0"),
        (flags.parse_log_level, "warn", "expected debug, info, warning or error, found 'warn'"),
        (flags.parse_log_format, "text", "expected logfmt or json, found 'text'"),
        (flags.parse_replay_format, "yaml", "expected json or openmetrics, found 'yaml'"),
        *((flags.create_whole_number_parser(1, 200), value, f"expected a whole number from 1 to 200, found {value!r}")
          for value in ("", "0", "201", "-1", "1.5", "many", "²", "1e2")),
        *((flags.parse_recording_path, value,
           f"expected a name that ends in .jsonl, .jsonl.gz or .jsonl.xz, found {value!r}")
          for value in ("x.txt", "x.xz")),
    ],
)  # fmt: skip
def test_a_bad_value_is_told_what_is_expected(parse: Callable[[str], Any], value: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        parse(value)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "dir/a.jsonl.xz"])
def test_a_recordings_name_tells_its_compression(name: str) -> None:
    assert flags.parse_recording_path(name) == Path(name)


def test_a_duration_becomes_seconds() -> None:
    assert flags.parse_duration("1m30s") == 90


@pytest.mark.parametrize(("value", "number"), [("1", 1), ("200", 200), ("007", 7)])
def test_a_whole_number_may_be_the_least_and_the_most(value: str, number: int) -> None:
    assert flags.create_whole_number_parser(1, 200)(value) == number
