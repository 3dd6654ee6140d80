"""What the README promises holds."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.base.errors import Reason
from phasewatch.cli.arguments import DEFAULT_HOST, DEFAULT_PORT
from phasewatch.hardware.table import load_devices
from phasewatch.metrics.collector import build_target_families
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from phasewatch.snapshot.target import TargetSnapshot
from tests.support.command_line import COMMANDS, flags_of, help_text
from tests.support.documented_targets import CHAT
from tests.support.markdown import code, every_code, fences, page, tables
from tests.support.paths import RECORDINGS, ROOT
from tests.support.rule_files import alerts

README = page("README.md")


class _Snapshot(Collector):
    def __init__(self, snapshot: TargetSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        yield from build_target_families([self._snapshot])


def numbers(lines: Iterator[str]) -> dict[str, float]:
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


def test_the_sample_is_what_the_named_recording_shows() -> None:
    match = re.search(r"second (\d+) of that recording", README)
    name = re.search(r"phasewatch replay tests/data/recordings/(\S+jsonl\.xz)", README)
    assert match
    assert name
    snapshot = next(
        snapshot for time, snapshot in replay(RecordingReader(RECORDINGS / name[1]), CHAT) if time >= int(match[1])
    )
    registry = CollectorRegistry()
    registry.register(_Snapshot(snapshot))
    lines = generate_latest(registry).decode().splitlines()
    (sample,) = (text for text in fences(README, "") if "grep ^llm_" in text)
    written = numbers(line for line in sample.splitlines() if line.startswith("llm_"))
    real = numbers(line for line in lines if not line.startswith("#"))
    assert len(written) > 5
    assert written == {series: pytest.approx(real.get(series)) for series in written}
    assert list(written) == [series for series in real if series in written]


def test_the_number_of_series_is_that_of_the_metrics_page() -> None:
    match = re.search(r"up to (\d+)\s+series", README)
    assert match
    assert f"up to {match[1]} series" in page("docs/metrics.md")


def test_the_number_of_devices_is_that_of_the_table() -> None:
    match = re.search(r"knows some (\d+)0 devices", README)
    assert match
    assert int(match[1]) == len(load_devices()) // 10, "the number of devices in README.md"


def test_the_number_of_alerts_is_that_of_the_rules() -> None:
    match = re.search(r"`alerts/` has (\d+) alerts", README)
    assert match
    assert int(match[1]) == len({alert["alert"] for alert in alerts()}), "the number of alerts in README.md"


def test_every_command_is_listed_and_nothing_else_is() -> None:
    listed = [code(cells[0]) for _, cells in tables(README, "command", "does") if "phasewatch" in cells[0]]
    assert listed == [f"phasewatch {command}" for command in COMMANDS]
    assert tuple(re.findall(r"^    (\w+) ", help_text(None), re.MULTILINE)) == COMMANDS


def test_every_flag_of_serve_is_listed_and_nothing_else_is() -> None:
    listed = {}
    for _, cells in tables(README, "flag", "environment", "default", "meaning"):
        default = "" if cells[2] in {"none", "off"} else code(cells[2])
        listed[code(cells[0])] = (code(cells[1]), default)
    assert listed == flags_of("serve")


def test_every_exit_code_is_listed() -> None:
    codes = re.findall(r"^  (\d)  ", help_text(None), re.MULTILINE)
    match = re.search(r"Exit codes: ([^.]+)\.", README)
    assert match
    assert re.findall(r"\b\d\b", match[1]) == codes


def test_every_reason_is_listed_and_nothing_else_is() -> None:
    assert [code(cells[0]) for _, cells in tables(README, "reason", "in one line")] == [
        reason.value for reason in Reason
    ]


def test_every_make_target_is_listed_and_nothing_else_is() -> None:
    listed = [code(cells[0]) for _, cells in tables(README, "command", "does") if "make" in cells[0]]
    targets = re.findall(r"^(\w+):.*## ", page("Makefile"), re.MULTILINE)
    assert sorted(listed) == sorted(f"make {target}" for target in targets if target != "help")


def test_names_of_vllm_are_those_that_are_read() -> None:
    releases = {name: release for upstream in METRIC_NAMES.metrics for name, release in upstream.names.items()}
    rows = [cells for _, cells in tables(README, "fact", "releases", "name in vLLM")]
    assert rows
    for _, release, names in rows:
        assert {releases[name] for name in every_code(names)} == {release}


def test_versions_are_those_that_the_names_were_checked_against() -> None:
    checked = r"sources of\s+(?:vLLM\s+)?((?:[\d.]+,\s+)+[\d.]+\s+and\s+[\d.]+\d)"
    texts = README, page("docs/metrics.md"), page("exporter/phasewatch/backends/vllm/metric_names.py")
    matches = [re.search(checked, text) for text in texts]
    assert len({tuple(re.findall(r"\d+\.\d+\.\d+", match[1])) for match in matches if match}) == 1
    assert all(matches)


def test_the_first_commands_are_targets_of_make() -> None:
    first = [text.strip() for text in fences(README, "")]
    assert first[0] == "make demo"
    assert "make run" in first
    assert "make test" in first
    assert f"http://{DEFAULT_HOST}:{DEFAULT_PORT}/metrics" in README


def test_the_scrape_configuration_is_valid(tmp_path: Path) -> None:
    (text,) = (text for text in fences(README, "yaml") if "scrape_configs" in text)
    assert f"{DEFAULT_HOST}:{DEFAULT_PORT}" in text
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, check=True, capture_output=True)


def test_python_versions_are_those_of_the_package() -> None:
    wanted = tomllib.loads(page("pyproject.toml"))["project"]["requires-python"]
    assert f"Python {wanted.removeprefix('>=')} or newer" in README


def test_the_licence_is_the_one_of_the_package() -> None:
    assert tomllib.loads(page("pyproject.toml"))["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text
