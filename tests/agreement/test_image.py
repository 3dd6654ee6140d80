"""The Dockerfile: linted, its commands understood by the program, its context complete."""

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from phasewatch.cli.arguments import create_parser
from tests.support.compose_file import Stack
from tests.support.paths import ROOT

STACK: Final = Stack(ROOT)


def test_the_linter_finds_nothing_but_mistakes_that_are_added() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    for change, complaint in (("", ""), ("RUN cd /tmp", "DL3003"), ("FROM python", "DL3006")):
        text = f"{STACK.text('Dockerfile')}{change}\n"
        checked = subprocess.run([linter, "--no-color", "-"], input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode == 0) is not bool(change), checked.stdout
        assert complaint in checked.stdout, change


def test_the_image_runs_the_program_without_a_shell() -> None:
    entry, command = json.loads(STACK.instruction("ENTRYPOINT")), json.loads(STACK.instruction("CMD"))
    assert entry == ["/venv/bin/phasewatch"]
    assert create_parser().parse_args(command).command == "serve"


def test_the_example_with_the_network_of_the_host_listens_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHASEWATCH_WEB_LISTEN_ADDRESS", f":{STACK.port}")  # as the image has it
    text = re.sub(r" \\\n#\s+", " ", STACK.text("Dockerfile"))
    (command,) = re.findall(r"^#   docker run .*--network host.*", text, re.MULTILINE)
    words = command.partition(f"phasewatch/phasewatch:{STACK.version} ")[2].split()
    assert create_parser().parse_args(words).web_listen_address == ("127.0.0.1", int(STACK.port))


def test_variables_set_in_the_image_are_valid_flags_of_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = dict(re.findall(r"(PHASEWATCH_\w+)=(\S+)", STACK.instruction("ENV")))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert list(variables) == ["PHASEWATCH_WEB_LISTEN_ADDRESS"]
    assert create_parser().parse_args(["serve"]).web_listen_address == ("", int(STACK.port))


def test_the_build_context_has_what_is_copied_and_nothing_private() -> None:
    assert STACK.copied
    for name in STACK.copied:
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
