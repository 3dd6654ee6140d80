"""The Dockerfile: linted, its command understood by the program, its health check run, its context complete."""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from phasewatch.cli.arguments import create_parser
from tests.support.compose_file import Stack
from tests.support.fakes import Exporter, FakeVllm
from tests.support.paths import ROOT

STACK: Final = Stack(ROOT)
CHECK: Final = json.loads(STACK.instruction("HEALTHCHECK").partition("CMD ")[2])
COPIED: Final = [
    word for name, rest in STACK.docker if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
]


@pytest.mark.parametrize(("change", "complaint"), [("", ""), ("RUN cd /tmp", "DL3003"), ("FROM python", "DL3006")])
def test_the_linter_is_content_and_would_not_be_with_a_mistake(change: str, complaint: str) -> None:
    text = f"{STACK.text('Dockerfile')}{change}\n"
    linter = Path(sys.executable).parent / "hadolint"
    checked = subprocess.run([linter, "--no-color", "-"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode == 0) is not bool(change), checked.stdout
    assert complaint in checked.stdout


def test_what_runs_is_the_program_without_a_shell() -> None:
    entry, command = json.loads(STACK.instruction("ENTRYPOINT")), json.loads(STACK.instruction("CMD"))
    assert entry == ["/venv/bin/phasewatch"]
    assert create_parser().parse_args(command).command == "serve"


def test_the_example_with_the_network_of_the_host_listens_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHASEWATCH_WEB_LISTEN_ADDRESS", f":{STACK.port}")  # as the image has it
    text = re.sub(r" \\\n#\s+", " ", STACK.text("Dockerfile"))
    (command,) = re.findall(r"^#   docker run .*--network host.*", text, re.MULTILINE)
    words = command.partition(f"phasewatch/phasewatch:{STACK.version} ")[2].split()
    assert create_parser().parse_args(words).web_listen_address == ("127.0.0.1", int(STACK.port))


def test_what_is_set_in_the_image_is_a_flag_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = dict(re.findall(r"(PHASEWATCH_\w+)=(\S+)", STACK.instruction("ENV")))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert list(variables) == ["PHASEWATCH_WEB_LISTEN_ADDRESS"]
    assert create_parser().parse_args(["serve"]).web_listen_address == ("", int(STACK.port))


def test_the_health_check_succeeds_where_the_exporter_serves_and_fails_where_it_does_not(tmp_path: Path) -> None:
    file = tmp_path / "phasewatch.yml"
    with FakeVllm() as server:
        file.write_text(f"targets:\n- {{name: chat, backend: vllm, url: '{server.url}'}}\n")
        with Exporter("--config.file", str(file)) as exporter:
            port = exporter.url.rpartition(":")[2]
            assert health(port).returncode == 0
    assert health(port).returncode == 1


def health(port: str) -> "subprocess.CompletedProcess[bytes]":
    """The health check of the image, asking another port; a shell is not there to help it."""
    python, *words = CHECK
    assert python == "/venv/bin/python"
    told = [word.replace(f":{STACK.port}/", f":{port}/") for word in words]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run([sys.executable, *told], env=environment, capture_output=True, check=False)


def test_the_build_sees_what_it_copies_and_nothing_that_is_private() -> None:
    assert COPIED
    for name in COPIED:
        assert (ROOT / name).exists(), name
        assert sent(name), name
    for name in (
        "alerts/rules/site.yml",
        "alerts/templates/site.tmpl",
        "deploy/compose/site/alertmanager.yml",
        "deploy/compose/secrets/slack",
        ".env",
        ".git/config",
        "phasewatch.yml",
    ):
        assert not sent(name), name


def sent(path: str) -> bool:
    """Whether .dockerignore lets a path through: the last line that matches it, or a folder above it, decides."""
    outcome = True
    for line in STACK.text(".dockerignore").splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            above = [path, *map(str, Path(path).parents)]
            if any(fnmatch.fnmatch(one, pattern) for one in above):
                outcome = line.startswith("!")
    return outcome


def test_what_is_copied_is_enough_for_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    words = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, source)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.glob("*.whl")] == [f"phasewatch-{STACK.version}-py3-none-any.whl"]
