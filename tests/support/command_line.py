"""The commands and flags of the program, as its help shows them."""

import os
import re
import subprocess
import sys
from functools import cache
from typing import Final

from phasewatch.cli.flags import name_environment_variable

COMMANDS: Final = ("serve", "check", "record", "replay", "devices", "demo", "assets")

_FLAG: Final = re.compile(
    r"\((?:(?P<required>required)|default (?P<default>\S+)|none by default|off); "
    r"environment (?P<variable>\w+)(?:=true)?\)"
)


@cache
def help_text(command: str | None) -> str:
    """The help of a command, or of the program as a whole, 100 columns wide."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHASEWATCH_")}
    words = [sys.executable, "-m", "phasewatch", *([command] if command else []), "--help"]
    environment |= {"COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


def flags_of(command: str) -> dict[str, tuple[str, str]]:
    """The flags of a command with their environment variables and defaults; `required` where there must be one."""
    text = help_text(command)
    names = re.findall(r"^  (--[\w.-]+)", text, re.MULTILINE)
    entries = list(_FLAG.finditer(" ".join(text.split())))
    assert [name_environment_variable(name) for name in names] == [entry["variable"] for entry in entries]
    return {
        name: (entry["variable"], entry["required"] or entry["default"] or "")
        for name, entry in zip(names, entries, strict=True)
    }
