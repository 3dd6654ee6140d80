import json
import os
import re
import signal
from pathlib import Path

import pytest

from phasewatch import __version__
from phasewatch.cli.main import main
from phasewatch.recordings.format import RecordingReader
from tests.support.fakes import FakeVllm, program
from tests.support.paths import RECORDINGS
from tests.support.processes import PATIENCE

RECORDING = str(RECORDINGS / "single-stream.jsonl.xz")
FLAGS = {
    "serve": (
        "--config.file",
        "--web.listen-address",
        "--web.config.file",
        "--web.enable-lifecycle",
        "--log.level",
        "--log.format",
    ),
    "check": ("--config.file",),
    "record": ("--target", "--config.file", "--duration", "--interval", "--output"),
    "replay": ("--config.file", "--target", "--format"),
    "devices": ("--memory", "--measure"),
}
# Where a mistake passes, these end at once all the same, with 1.
NOT_SERVED = ("serve", "--config.file", "/nothing/here")
NOT_RECORDED = ("record", "--target", "no://address")
TWO_TARGETS = """\
targets:
- {name: chat, backend: vllm, url: "http://a"}
- {name: code, backend: vllm, url: "http://b", window: 10s}
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PHASEWATCH_")]:
        monkeypatch.delenv(name)


def exit_code(*words: str) -> str | int | None:
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code


def targets_of(output: str) -> set[str]:
    """The names of all targets in the JSON lines of a replay."""
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines
    return {metric["labels"]["target"] for line in lines for metric in line["metrics"]}


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"phasewatch {__version__}\n"


def test_help_lists_the_commands_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^    {command} ", text, re.MULTILINE) for command in FLAGS)
    assert re.findall(r"^  (\d)  ", text, re.MULTILINE) == ["0", "1", "2", "3"]


def test_help_of_a_command_names_the_variable_of_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for command, names in FLAGS.items():
        assert exit_code(command, "--help") == 0, command
        text = " ".join(capsys.readouterr().out.split())
        named = re.findall(r"(--[a-z.-]+) (?:[A-Z|:]+ )?[^()]*\([^()]*environment (PHASEWATCH_[A-Z_]+)", text)
        variables = {name: "PHASEWATCH_" + name[2:].upper().replace(".", "_").replace("-", "_") for name in names}
        assert dict(named) == variables, command


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        (),
        ("--unknown",),
        ("guess",),
        ("check",),
        ("check", "--config"),
        ("check", "--config.fil", "x"),
        (*NOT_SERVED, "extra"),
        (*NOT_SERVED, "--web.listen-address", "10061"),
        (*NOT_SERVED, "--log.level", "loud"),
        ("record",),
        (*NOT_RECORDED,),
        (*NOT_RECORDED, "--output", "x.txt"),
        (*NOT_RECORDED, "--output", "x.jsonl", "--duration", "5"),
        ("replay",),
        ("replay", RECORDING, "--format", "yaml"),
        ("devices", "L4", "L40"),
        ("devices", "L4", "--memory", "24"),
    ):
        assert exit_code(*words) == 2, words
        printed = capsys.readouterr()
        assert printed.out == "", words
        assert "error: " in printed.err, words


def test_a_bad_variable_exits_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value, words in (
        ("PHASEWATCH_WEB_LISTEN_ADDRESS", "10061", NOT_SERVED),
        ("PHASEWATCH_WEB_ENABLE_LIFECYCLE", "maybe", NOT_SERVED),
        ("PHASEWATCH_LOG_LEVEL", "loud", NOT_SERVED),
        ("PHASEWATCH_LOG_FORMAT", "xml", NOT_SERVED),
        ("PHASEWATCH_DURATION", "5", (*NOT_RECORDED, "--output", "x.jsonl")),
        ("PHASEWATCH_INTERVAL", "0s", (*NOT_RECORDED, "--output", "x.jsonl")),
        ("PHASEWATCH_OUTPUT", "x.txt", NOT_RECORDED),
        ("PHASEWATCH_FORMAT", "yaml", ("replay", RECORDING)),
        ("PHASEWATCH_MEMORY", "24", ("devices", "L4")),
        ("PHASEWATCH_MEASURE", "maybe", ("devices",)),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(variable, value)
            assert exit_code(*words) == 2, variable


def test_variables_of_other_commands_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(TWO_TARGETS)
    for name in ("WEB_LISTEN_ADDRESS", "LOG_LEVEL", "DURATION", "FORMAT", "WEB_ENABLE_LIFECYCLE"):
        monkeypatch.setenv(f"PHASEWATCH_{name}", "nonsense")
    assert main(["check", "--config.file", str(path)]) == 0


def test_check_of_a_valid_file_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(TWO_TARGETS + "  probe: {enabled: true}\n")
    assert main(["check", "--config.file", str(path)]) == 1
    path.write_text(TWO_TARGETS)
    assert main(["check", "--config.file", str(path)]) == 0
    assert capsys.readouterr().out == "configuration valid: 2 target(s)\n"


def test_check_prints_notes_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text('targets: [{name: a, backend: vllm, url: "http://a", probe: {enabled: true}}]')
    assert main(["check", "--config.file", str(path)]) == 0
    output = capsys.readouterr()
    assert output.err == "note: targets[0].probe: accepted, but not used: a vllm target is never sent a prompt\n"


def test_check_prints_each_problem_on_its_own_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text('intervall: 5s\ntargets: [{name: a, backend: vllm, url: "h:1", "odd\\nkey": 1}]')
    assert main(["check", "--config.file", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert sorted(line.partition(": ")[0] for line in output.err.splitlines()) == [
        "intervall",
        r"targets[0].odd\nkey",
        "targets[0].url",
    ]


def test_an_invalid_configuration_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "serve"):
        path = tmp_path / "phasewatch.yml"
        path.write_text("targets: []")
        assert main([command, "--config.file", str(path)]) == 1, command
        assert capsys.readouterr().err == "targets: expected at least one entry\n", command


def test_an_invalid_web_configuration_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "web.yml"
    path.write_text("http_server_config: {http2: true}")
    assert main(["serve", "--web.config.file", str(path)]) == 1
    assert capsys.readouterr().err.startswith("http_server_config: unknown key")


def test_the_configuration_may_be_named_by_the_environment_and_a_flag_beats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.yml").write_text(TWO_TARGETS)
    (tmp_path / "bad.yml").write_text("targets: []")
    monkeypatch.setenv("PHASEWATCH_CONFIG_FILE", str(tmp_path / "bad.yml"))
    assert main(["check"]) == 1
    assert main(["check", "--config.file", str(tmp_path / "good.yml")]) == 0
    monkeypatch.setenv("PHASEWATCH_CONFIG_FILE", str(tmp_path / "good.yml"))
    assert main(["check"]) == 0


def test_replay_plays_a_target_named_recording_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", RECORDING]) == 0
    assert targets_of(capsys.readouterr().out) == {"recording"}


def test_replay_plays_the_only_target_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text('targets: [{name: chat, backend: vllm, url: "http://a"}]')
    assert main(["replay", RECORDING, "--config.file", str(path)]) == 0
    assert targets_of(capsys.readouterr().out) == {"chat"}


def test_replay_plays_the_named_target_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(TWO_TARGETS)
    played = ["replay", RECORDING, "--config.file", str(path), "--target"]
    assert main([*played, "chat"]) == 0
    chat = capsys.readouterr().out
    assert main([*played, "code"]) == 0
    code = capsys.readouterr().out
    assert (targets_of(chat), targets_of(code)) == ({"chat"}, {"code"})
    assert chat.replace('"chat"', '"code"') != code


def test_replay_asks_which_of_several_targets_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(TWO_TARGETS)
    assert main(["replay", RECORDING, "--config.file", str(path)]) == 1
    assert main(["replay", RECORDING, "--config.file", str(path), "--target", "cat"]) == 1
    assert capsys.readouterr().err == (
        "--target: the configuration has several targets, name one of them: chat, code\n"
        "--target: no target has this name (the configuration has: chat, code)\n"
    )


def test_the_format_may_come_from_the_environment_and_a_flag_beats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHASEWATCH_FORMAT", "openmetrics")
    assert main(["replay", RECORDING]) == 0
    assert capsys.readouterr().out.endswith("# EOF\n")
    assert main(["replay", RECORDING, "--format", "json"]) == 0
    assert targets_of(capsys.readouterr().out) == {"recording"}


def test_replay_of_an_invalid_recording_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, message in (
        (None, "cannot be read: No such file or directory"),
        (b"{}\n", 'no recording: expected a first line with "kind": "header"'),
        (b"nonsense\n", "no valid JSON"),
    ):
        path = tmp_path / "x.jsonl"
        if content is not None:
            path.write_bytes(content)
        assert main(["replay", str(path)]) == 1, content
        output = capsys.readouterr()
        assert output.out == "", content
        assert output.err.startswith(str(path)), content
        assert message in output.err, content


def test_record_writes_what_replay_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new.jsonl.xz"
    with FakeVllm() as vllm:
        words = ["--target", vllm.url, "--duration", "300ms", "--interval", "100ms", "--output", str(output)]
        assert main(["record", *words]) == 0
    assert f"wrote {output}: 3 scrapes, 0 failed" in capsys.readouterr().err
    recording = RecordingReader(output)
    assert (recording.header.backend, recording.header.keys["version"]) == ("vllm", "0.32.0")
    assert [scrape.response.body for scrape in recording.read_scrapes() if scrape.response] == [vllm.page] * 3
    assert main(["replay", str(output)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    up = [metric["value"] for line in lines for metric in line["metrics"] if metric["name"] == "llm_target_up"]
    assert up == [1.0] * 3


def test_record_uses_the_settings_of_a_target_of_the_configuration(tmp_path: Path) -> None:
    output, path, key = tmp_path / "new.jsonl", tmp_path / "phasewatch.yml", tmp_path / "key"
    key.write_text("hunter2\n")
    with FakeVllm() as vllm:
        target = {
            "name": "chat",
            "backend": "vllm",
            "url": vllm.url,
            "authorization": {"type": "Bearer", "credentials_file": str(key)},
        }
        path.write_text(json.dumps({"targets": [target]}))
        words = ["--target", "chat", "--config.file", str(path), "--duration", "100ms", "--interval", "100ms"]
        assert main(["record", *words, "--output", str(output)]) == 0
        _, headers = vllm.asked.get(timeout=PATIENCE)
    assert headers["Authorization"] == "Bearer hunter2"
    assert "hunter2" not in output.read_text()


def test_record_with_nothing_listening_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeVllm() as gone:
        pass
    words = ["--target", gone.url, "--duration", "100ms", "--interval", "100ms"]
    assert main(["record", *words, "--output", str(tmp_path / "new.jsonl")]) == 1
    last_line = capsys.readouterr().err.splitlines()[-1]
    why = "connect: cannot connect: Connection refused"
    assert last_line == f"not one page could be had from {gone.url}, nothing was written: {why}"


def test_record_of_another_server_says_that_no_page_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--duration", "100ms", "--interval", "100ms", "--output", str(tmp_path / "new.jsonl")]
    with FakeVllm(b"python_gc_objects_collected_total 1\n") as other:
        assert main(["record", "--target", other.url, *words]) == 1
    output = capsys.readouterr().err.splitlines()[-1]
    assert "but not one page can be used: no_metrics: the page has no vllm metrics" in output


def test_record_of_an_address_with_a_path_says_where_the_path_can_be_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--target", "http://127.0.0.1:8000/x/metrics", "--output", str(tmp_path / "new.jsonl")]
    assert main(["record", *words]) == 1
    assert capsys.readouterr().err.endswith(
        "set metrics_path if its metrics are not at /metrics: in a file, with --config.file FILE --target NAME\n"
    )


def test_record_refuses_an_invalid_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target, message in (
        ("ftp://h", "--target: expected an address such as http://127.0.0.1:8000"),
        (
            "http://user:hunter2@h",
            "--target: user and password are not taken from the url; use authorization with a credentials_file",
        ),
        (
            "chat",
            (
                "--target: no target has this name "
                "(an address begins with http:// or https://; the configuration has: vllm, ollama)"
            ),
        ),
    ):
        assert main(["record", "--target", target, "--output", str(tmp_path / "new.jsonl")]) == 1, target
        assert capsys.readouterr().err == f"{message}\n", target


def test_record_into_a_missing_folder_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "none" / "new.jsonl"
    with FakeVllm() as vllm:
        assert main(["record", "--target", vllm.url, "--output", str(output)]) == 1
    assert capsys.readouterr().err == f"{output}: cannot be written: No such file or directory\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_record_ended_early_keeps_the_file(number: signal.Signals, tmp_path: Path) -> None:
    output = tmp_path / "new.jsonl.gz"
    words = ["--duration", "1h", "--interval", "10s", "--output", str(output)]
    with FakeVllm() as vllm, program("record", "--target", vllm.url, *words) as process:
        assert process.stderr
        assert process.stderr.readline().startswith("recorded 1 of 360 scrapes, 0 failed")
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert errors == f"wrote {output}: 1 scrapes, 0 failed\n"
    assert len(list(RecordingReader(output).read_scrapes())) == 1


@pytest.mark.parametrize("words", [("replay", RECORDING), ("replay", RECORDING, "--format", "openmetrics")])
def test_a_closed_pipe_ends_replay_quietly(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    with program(*words, stdout=writing) as process:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        _, output = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (0, "")


def test_a_closed_pipe_ends_check_quietly(tmp_path: Path) -> None:
    path = tmp_path / "phasewatch.yml"
    path.write_text(TWO_TARGETS)
    reading, writing = os.pipe()
    os.close(reading)
    with program("check", "--config.file", str(path), stdout=writing) as process:
        os.close(writing)
        _, output = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (0, "")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a measurement is kept in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "phasewatch" / "cpu-memory-bandwidth.json"


@pytest.mark.usefixtures("state")
def test_devices_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0].split()[:2] == ["NAME", "MEMORY"]
    assert any(line.startswith("H100 SXM5 80GB ") for line in output)
    assert output[-1].startswith("This machine's memory (CPU): not measured yet")


@pytest.mark.usefixtures("state")
def test_devices_resolves_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "NVIDIA GeForce RTX 3080", "--memory", "12GB"]) == 0
    assert capsys.readouterr().out.startswith("NVIDIA GeForce RTX 3080: GeForce RTX 3080 (12GB)\n")


@pytest.mark.usefixtures("state")
def test_the_memory_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHASEWATCH_MEMORY", "10240MiB")
    assert main(["devices", "NVIDIA GeForce RTX 3080"]) == 0
    assert capsys.readouterr().out.startswith("NVIDIA GeForce RTX 3080: GeForce RTX 3080 (10GB)\n")


@pytest.mark.usefixtures("state")
def test_a_name_that_does_not_resolve_to_one_device_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("NVIDIA GeForce RTX 3080", "NVIDIA L20Y", "", "CPU"):
        assert main(["devices", name]) == 1, name
        output = capsys.readouterr()
        assert (output.out, bool(output.err)) == ("", True), name


def test_devices_measures_keeps_and_shows_the_bandwidth(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("phasewatch.hardware.measure.choose_block_size", lambda _cache, _available: 2**20)
    monkeypatch.setattr("phasewatch.hardware.measure.PAUSE_BETWEEN_ROUNDS", 0.0)
    assert main(["devices", "--measure"]) == 0
    output = capsys.readouterr().out
    assert f"Kept in {state}; " in output
    assert re.search(r"^  device: \{memory_bandwidth: \d+\.\dGB/s\} +\(vllm target\)$", output, re.MULTILINE)
    assert json.loads(state.read_text())["memory_bandwidth"] > 0
    assert main(["devices", "CPU"]) == 0
    assert capsys.readouterr().out.endswith(" GB/s, measured.\n")


def test_a_measurement_without_memory_for_it_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("phasewatch.hardware.measure.read_available_memory", lambda: 2**20)
    assert main(["devices", "--measure"]) == 1
    assert "of memory must be available" in capsys.readouterr().err


def test_flags_of_devices_that_do_not_go_together_exit_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (("--memory", "12GB"), "--memory: tells devices of one name apart; give the NAME\n"),
        (("L4", "--measure"), "--measure: measures this machine; leave the NAME out\n"),
    ):
        assert main(["devices", *words]) == 1, words
        assert capsys.readouterr().err == message, words
