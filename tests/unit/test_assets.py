"""The shipped dashboards and rules: found in a checkout and in a package, and written out without harm."""

import errno
import re
import tomllib
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from phasewatch import assets
from phasewatch.base.errors import AssetError
from tests.support.compose_file import Stack
from tests.support.fakes import program
from tests.support.markdown import page
from tests.support.paths import DASHBOARDS_JSON, ROOT
from tests.support.processes import PATIENCE


def tree(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shipped() -> dict[Path, bytes]:
    return {path: (ROOT / path).read_bytes() for path in assets.list_paths()}


def test_in_a_checkout_the_files_are_those_of_the_checkout() -> None:
    assert assets.find_folder() == ROOT


def test_in_an_installed_package_they_are_inside_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "files", lambda _: tmp_path / "phasewatch")
    (tmp_path / "phasewatch" / "assets" / "alerts").mkdir(parents=True)
    assert assets.find_folder() == tmp_path / "phasewatch" / "assets"


def test_missing_files_are_reported_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "files", lambda _: tmp_path / "exporter" / "phasewatch")
    with pytest.raises(AssetError, match=r"were not found in .*exporter/phasewatch nor in .*; install PhaseWatch from"):
        assets.find_folder()


def test_every_board_rule_and_configuration_is_shipped() -> None:
    names = {str(path) for path in assets.list_paths()}
    assert {str(path.relative_to(ROOT)) for path in DASHBOARDS_JSON.glob("*.json")} <= names
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "alerts" / "rules").glob("phasewatch-*")} <= names
    stack = Stack(ROOT)
    mounted = {mount.source for name in ("prometheus", "alertmanager", "grafana") for mount in stack.mounts(name)}
    assert [source for source in mounted if not any(name.startswith(source) for name in names)] == []


def test_files_of_a_site_are_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rules/site.yml", "templates/site.tmpl", "rules/phasewatch-alerts.yml"):
        path = tmp_path / "phasewatch" / "assets" / "alerts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(resources, "files", lambda _: tmp_path / "phasewatch")
    assert assets.list_paths() == [Path("alerts/rules/phasewatch-alerts.yml")]


def test_the_wheel_includes_exactly_these_files() -> None:
    packed = tomllib.loads(page("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert packed == {str(path): f"phasewatch/assets/{path}" for path in assets.list_paths()}


def test_an_export_is_the_shipped_files_and_nothing_else(tmp_path: Path) -> None:
    outcome = assets.export(tmp_path / "new" / "folder", force=False)
    assert tree(tmp_path / "new" / "folder") == shipped()
    assert outcome == assets.ExportOutcome(tuple(assets.list_paths()), ())


def test_a_second_export_changes_nothing(tmp_path: Path) -> None:
    assets.export(tmp_path, force=False)
    before = {path: (tmp_path / path).stat().st_mtime_ns for path in assets.list_paths()}
    assert assets.export(tmp_path, force=False) == assets.ExportOutcome((), tuple(assets.list_paths()))
    assert {path: (tmp_path / path).stat().st_mtime_ns for path in assets.list_paths()} == before


def test_a_file_that_differs_is_kept_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "alertmanager.yml").write_text("mine")
    with pytest.raises(
        AssetError, match=r"nothing was written[^/]*\n  .*/alerts/alertmanager.yml\nexport into another"
    ):
        assets.export(tmp_path, force=False)
    assert tree(tmp_path) == {Path("alerts/alertmanager.yml"): b"mine"}


def test_force_overwrites_shipped_files_and_leaves_others_alone(tmp_path: Path) -> None:
    (tmp_path / "alerts" / "rules").mkdir(parents=True)
    (tmp_path / "alerts" / "alertmanager.yml").write_text("mine")
    (tmp_path / "alerts" / "rules" / "site.yml").write_text("mine")
    outcome = assets.export(tmp_path, force=True)
    assert outcome.written == tuple(assets.list_paths())
    assert tree(tmp_path) == {**shipped(), Path("alerts/rules/site.yml"): b"mine"}


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AssetError, match=r"file/alerts.*: cannot be written: Not a directory"):
        assets.export(tmp_path / "file", force=False)
    (tmp_path / "alerts" / "prometheus.yml").mkdir(parents=True)
    with pytest.raises(AssetError, match=r"prometheus.yml: cannot be written: Is a directory"):
        assets.export(tmp_path, force=True)


def test_a_link_that_leads_out_of_the_folder_is_not_followed_even_by_force(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    (out / "alerts").mkdir(parents=True)
    (out / "dashboards").symlink_to(elsewhere)
    (out / "alerts" / "prometheus.yml").symlink_to(elsewhere / "mine")
    (out / "alerts" / "thresholds.yml").symlink_to(elsewhere / "new")
    with pytest.raises(AssetError, match=r"nothing was written, since symbolic links lead out of ") as caught:
        assets.export(out, force=True)
    named = {line.strip() for line in str(caught.value).splitlines()[1:-1]}
    boards = {str(out / path) for path in assets.list_paths() if path.parts[0] == "dashboards"}
    assert named == {*boards, f"{out}/alerts/prometheus.yml", f"{out}/alerts/thresholds.yml"}
    assert tree(elsewhere) == {Path("mine"): b"mine"}
    assert sorted(path.name for path in (out / "alerts").iterdir()) == ["prometheus.yml", "thresholds.yml"]


def test_a_link_to_the_folder_or_inside_it_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "alerts").mkdir(parents=True)
    (tmp_path / "real" / "alerts" / "thresholds.yml").symlink_to("thresholds.yml")
    (tmp_path / "real" / "boards").mkdir()
    (tmp_path / "real" / "dashboards").symlink_to("boards")
    (tmp_path / "out").symlink_to("real")
    assets.export(tmp_path / "out", force=False)
    assert all((tmp_path / "out" / path).read_bytes() == content for path, content in shipped().items())


def test_a_file_that_cannot_be_written_completely_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "__init__.py").write_text("mine")

    def full(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path), None, str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(AssetError, match=r"/alerts/__init__.py: cannot be written: No space left on device$"):
        assets.export(tmp_path, force=True)
    assert tree(tmp_path) == {Path("alerts/__init__.py"): b"mine"}


def test_the_addresses_that_it_says_to_set_are_those_in_the_files(tmp_path: Path) -> None:
    addresses = re.findall(r"\b[a-z]+:\d+", "\n".join(assets.describe_export(tmp_path, assets.ExportOutcome((), ()))))
    stack = Stack(ROOT)
    (source,) = stack.yaml("dashboards/provisioning/datasources/phasewatch.yml")["datasources"]
    written = re.findall(r'^ *- targets: \["(.+)"\]$', page("alerts/prometheus.yml"), re.MULTILINE)
    assert sorted([*addresses, "localhost:9090"]) == sorted([*written, urlsplit(source["url"]).netloc])
    assert set(addresses) <= stack.reachable()


def test_the_command_lists_the_files_and_the_next_steps(tmp_path: Path) -> None:
    code, out, err = run("assets", "export", str(tmp_path / "out"))
    assert (code, err) == (0, "")
    listed = re.findall(rf"^{tmp_path}/out/(\S+)$", out, re.MULTILINE)
    assert listed == [str(path) for path in assets.list_paths()]
    assert f"written: {len(listed)} file(s); unchanged: 0" in out
    for step in (f"Prometheus    copy {tmp_path}/out/alerts/rules", "Alertmanager ", "Grafana "):
        assert step in out


def test_the_command_fails_without_force_where_a_file_differs(tmp_path: Path) -> None:
    assert run("assets", "export", str(tmp_path))[0] == 0
    (tmp_path / "dashboards" / "grafana.ini").write_text("mine")
    code, out, err = run("assets", "export", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.splitlines()[1] == f"  {tmp_path}/dashboards/grafana.ini"
    assert run("assets", "export", str(tmp_path), "--force")[0] == 0
    assert tree(tmp_path) == shipped()


def test_without_a_folder_or_with_another_word_it_is_wrong_usage(tmp_path: Path) -> None:
    assert run("assets", "export")[0] == 2
    assert run("assets", "export", "")[0] == 2
    assert run("assets", "import", str(tmp_path))[0] == 2


def run(*words: str) -> tuple[int, str, str]:
    """Exit code and outputs of the program."""
    process = program(*words, stdout=-1)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err
