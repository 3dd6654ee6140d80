"""Every generated file follows from the sources, and a fact that is changed in its one place is changed everywhere."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from alerts.generate import __main__ as generate
from alerts.generate.__main__ import render_files
from deploy.kubernetes.generate import render_files as render_manifests
from phasewatch.base.errors import ConfigError
from tests.support.paths import ALERTS, ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the generators read and write."""
    for folder in ("alerts", "docs", "deploy/kubernetes"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def write(render: Callable[[Path], Mapping[Path, str]], root: Path) -> Mapping[str, str]:
    """What a generator changes, by its path below the root."""
    changed = {}
    for path, content in render(root).items():
        if path.read_text(encoding="utf-8") != content:
            changed[str(path.relative_to(root))] = content
            path.write_text(content, encoding="utf-8")
    return changed


def test_generated_files_are_what_the_sources_give() -> None:
    for path, content in render_files(ROOT).items():
        assert path.read_text(encoding="utf-8") == content, f"run make alerts: {path}"


def test_what_prometheus_loads_is_generated_but_for_a_sites_own() -> None:
    loaded = {path for path in (ALERTS / "rules").glob("*.yml") if path.name != "site.yml"}
    assert loaded == set(render_files(ROOT)) - {ROOT / "docs" / "alerts.md"}


def test_a_generated_file_names_the_command_that_writes_it() -> None:
    for path, content in render_files(ROOT).items():
        assert "`make alerts`" in (content if path.suffix == ".md" else content.splitlines()[0])


def test_a_changed_threshold_changes_the_rules_the_table_and_the_rules_for_kubernetes(checkout: Path) -> None:
    replace(checkout / "alerts" / "thresholds.yml", "value: 2.5\n", "value: 7.25\n")
    changed = write(render_files, checkout)
    assert changed.keys() == {"alerts/rules/phasewatch-thresholds.yml", "docs/alerts.md"}
    rule = "- record: phasewatch_threshold:time_to_first_token_seconds\n{0}  expr: vector(7.25)\n"
    assert rule.format(" " * 6) in changed["alerts/rules/phasewatch-thresholds.yml"]
    assert "| `time_to_first_token_seconds` | 7.25 | " in changed["docs/alerts.md"]
    (manifest,) = write(render_manifests, checkout).values()
    assert rule.format(" " * 8) in manifest


def test_a_threshold_under_another_name_than_the_alerts_use_is_refused(checkout: Path) -> None:
    replace(checkout / "alerts" / "thresholds.yml", "name: token_stall_seconds", "name: token_pause_seconds")
    with pytest.raises(ConfigError) as caught:
        render_files(checkout)
    assert [problem.path for problem in caught.value.problems] == [
        "threshold token_pause_seconds",
        "threshold token_stall_seconds",
    ]


def test_an_alert_without_a_runbook_is_refused(checkout: Path) -> None:
    (checkout / "docs" / "runbooks" / "LLMTokenStall.md").unlink()
    with pytest.raises(ConfigError, match=r"^LLMTokenStall: expected a runbook, .*/docs/runbooks/LLMTokenStall.md$"):
        render_files(checkout)


def test_an_alert_with_an_unknown_board_is_refused(checkout: Path) -> None:
    replace(checkout / "alerts" / "alerts" / "collection.yml", "dashboard: overview", "dashboard: overvew")
    with pytest.raises(ConfigError, match=r"^alerts/collection.yml: LLMTargetDown: expected one of overview, "):
        render_files(checkout)


def test_without_docs_the_rules_alone_are_written(checkout: Path) -> None:
    shutil.rmtree(checkout / "docs")
    assert {path.parent for path in render_files(checkout)} == {checkout / "alerts" / "rules"}


def test_the_command_writes_every_file(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "ROOT", checkout)
    for path in (checkout / "alerts" / "rules").glob("*.yml"):
        path.unlink()
    assert generate.main() == 0
    for path, content in render_files(ROOT).items():
        assert (checkout / path.relative_to(ROOT)).read_text(encoding="utf-8") == content


@pytest.mark.parametrize("name", ["objectives.yml", "thresholds.yml", "recording.yml", "alerts/queue.yml"])
def test_the_command_names_a_source_that_is_missing_and_writes_nothing(
    name: str, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", checkout)
    replace(checkout / "alerts" / "thresholds.yml", "value: 2.5\n", "value: 7.25\n")
    missing = checkout / "alerts" / name
    missing.unlink()
    assert generate.main() == 1
    assert capsys.readouterr().err == f"{missing}: cannot be read: No such file or directory\n"
    rules = checkout / "alerts" / "rules" / "phasewatch-thresholds.yml"
    assert rules.read_bytes() == (ALERTS / "rules" / rules.name).read_bytes()
