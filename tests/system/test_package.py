"""The wheel and the source distribution, as users get them: built, installed outside of the repository, and run."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from phasewatch import assets
from tests.support.compose_file import FILES, Stack
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE, eventually, free_port, get, needs
from tests.support.rule_files import promtool

VERSION: Final = Stack(ROOT).version
MINUTES: Final = 300.0
"""Seconds that building and installing may take, with a slow index of packages."""


STRAY: Final = (
    "alerts/rules/site.yml",
    "alerts/templates/site.tmpl",
    "deploy/compose/secrets/slack",
    "deploy/compose/site/alertmanager.yml",
    "docker-compose.override.yml",
    "exporter/notes.txt",
    "exporter/phasewatch/.env",
    "exporter/phasewatch/hardware/measured.json",
    "exporter/phasewatch/recording.jsonl",
    "exporter/phasewatch/web/landing/static/private.key",
    "phasewatch.yml",
)
"""What lies in a checkout that somebody works and runs the stack in."""


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel and a source distribution."""

    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution of a checkout in use, and the wheel that is built from it and from nothing else."""
    folder, checkout = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("checkout")
    # Without .gitignore, which hatchling would follow: what is packed must not depend on it.
    left_out = shutil.ignore_patterns(".*_cache", ".git", ".gitignore", "__pycache__")
    shutil.copytree(ROOT, checkout, ignore=left_out, dirs_exist_ok=True)
    for name in STRAY:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("nobody else's business")
    words = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MINUTES)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, source)


@dataclass(frozen=True, slots=True)
class Installed:
    """PhaseWatch in an environment of its own, run in a folder outside of the repository."""

    program: Path
    folder: Path

    def run(self, *words: str | Path) -> str:
        """What a command prints; it must succeed."""
        return self.call(self.program, *words)

    def call(self, *words: str | Path, cwd: Path | None = None) -> str:
        """What another program prints in the same surroundings, in another folder if given; it must succeed."""
        done = subprocess.run(
            words,
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the tests' own environment helps."""
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a fresh environment, with what it says it needs and nothing else."""
    folder = tmp_path_factory.mktemp("outside")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=MINUTES)
    pip = (folder / "venv" / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", built.wheel)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        pip, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=MINUTES
    )
    assert done.returncode == 0, done.stderr
    return Installed(folder / "venv" / "bin" / "phasewatch", folder)


def test_the_wheel_has_the_program_the_boards_and_the_rules_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"phasewatch-{VERSION}.dist-info/")}
        carried = {name: wheel.read(name) for name in names if name.startswith("phasewatch/assets/")}
        metadata = wheel.read(f"phasewatch-{VERSION}.dist-info/METADATA").decode()
    assert carried == {f"phasewatch/assets/{path}": (ROOT / path).read_bytes() for path in assets.list_paths()}
    source = ROOT / "exporter"
    files = {str(path.relative_to(source)) for path in (source / "phasewatch").rglob("*") if path.is_file()}
    assert names - carried.keys() == {name for name in files if "__pycache__" not in name}
    assert f"\nVersion: {VERSION}\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert [extra for extra in ("auth", "nvidia", "amd") if f"\nProvides-Extra: {extra}\n" not in metadata] == []
    assert "\nProject-URL: Changelog, https://github.com/phasewatch/phasewatch/blob/main/CHANGELOG.md\n" in metadata
    assert re.findall(r"\nClassifier: Programming Language :: Python :: 3\.(\d+)", metadata) == ["11", "12", "13"]
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_the_source_distribution_can_be_built_tested_and_deployed(built: Built) -> None:
    with tarfile.open(built.source) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    tests = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}
    assert "tests/conftest.py" in tests
    assert {*FILES, *tests, "Makefile", "LICENSE", "CHANGELOG.md", "pyproject.toml", "docs/compose.md"} <= names
    assert [name for name in names if "__pycache__" in name or name in STRAY] == []


def test_the_installed_program_prints_its_version(installed: Installed) -> None:
    assert installed.run("--version") == f"phasewatch {VERSION}\n"


def test_an_installed_program_checks_a_configuration(installed: Installed) -> None:
    told = installed.run("check", "--config.file", ROOT / "deploy" / "compose" / "phasewatch.yml")
    assert told == "configuration valid: 5 target(s)\n"


def test_an_installed_program_knows_its_devices(installed: Installed) -> None:
    assert "864 GB/s" in installed.run("devices", "NVIDIA L40S")


def test_an_installed_demo_shows_all_simulated_servers_and_ends_with_success(installed: Installed) -> None:
    with demo(installed) as address:
        eventually(lambda: measured(address), "numbers of all simulated servers")
        assert "PhaseWatch" in get(f"http://{address}/")
        assert ".card" in get(f"http://{address}/style.css")


def measured(address: str) -> bool:
    """Whether a simulated vLLM shows its speed, and the llama-server and the Ollama are up."""
    page = get(f"http://{address}/metrics")
    others = {"llamacpp": "simulated-llama-server", "ollama": "simulated-ollama"}
    up = all(f'llm_target_up{{backend="{kind}",target="{name}"}} 1.0' in page for kind, name in others.items())
    return up and re.search(r"^llm_decode_tokens_per_second\{", page, re.MULTILINE) is not None


@contextlib.contextmanager
def demo(installed: Installed) -> Iterator[str]:
    """The demo while the block runs, ended by SIGTERM; it must end with 0. Gives its address."""
    address = f"127.0.0.1:{free_port()}"
    words = (installed.program, "demo", "--web.listen-address", address)
    with (installed.folder / "demo.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=installed.folder, env=installed.environment, stderr=log)
    try:
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    assert code == 0


@needs("promtool")
def test_what_an_installed_program_exports_is_accepted_by_promtool(installed: Installed) -> None:
    out = installed.folder / "out"
    told = installed.run("assets", "export", out)
    assert f"written: {len(assets.list_paths())} file(s)" in told
    rules = sorted((out / "alerts" / "rules").glob("*.yml"))
    assert len(rules) == 5
    promtool("check", "rules", "--lint=all", "--lint-fatal", *rules)
    promtool("check", "config", out / "alerts" / "prometheus.yml")


def test_objectives_can_be_changed_without_the_repository(installed: Installed) -> None:
    out = installed.folder / "changed"
    installed.run("assets", "export", out)
    rules = out / "alerts" / "rules" / "phasewatch-slo.yml"
    before = rules.read_text()
    write = (installed.program.parent / "python", "-m", "alerts.generate")
    installed.call(*write, cwd=out)
    assert rules.read_text() == before
    objectives = out / "alerts" / "objectives.yml"
    objectives.write_text(objectives.read_text().replace("seconds: 2.5", "seconds: 5"))
    installed.call(*write, cwd=out)
    assert 'le=~"5' in rules.read_text()
    assert 'le=~"5' not in before
