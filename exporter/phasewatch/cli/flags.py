"""Flags that can also be set in the environment, and the parsers of their values."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from phasewatch.base import units
from phasewatch.base.log import FORMATS, LEVELS

_HIGHEST_PORT: Final = 65535


def name_environment_variable(flag: str) -> str:
    """Name the environment variable of a flag."""
    return "PHASEWATCH_" + flag.lstrip("-").upper().replace(".", "_").replace("-", "_")


def _name_attribute(flag: str) -> str:
    return flag.lstrip("-").replace(".", "_").replace("-", "_")


def add_flag(
    parser: argparse.ArgumentParser,
    name: str,
    text: str,
    *,
    metavar: str,
    type: Callable[[str], Any] = str,  # noqa: A002  # the name that argparse uses
    default: str | None = None,
    required: bool = False,
) -> None:
    """Add a flag with a value.

    Args:
        parser: parser of the command.
        name: name of the flag, with its dashes.
        text: description for --help.
        metavar: placeholder for the value in --help.
        type: parses the text of a value; raises argparse.ArgumentTypeError if it is not valid.
        default: text of the default value.
        required: whether the flag or the environment must give a value.
    """
    variable = name_environment_variable(name)
    text_default = os.environ.get(variable) or default
    note = "required" if required else f"default {default}" if default else "none by default"
    parser.add_argument(
        name,
        dest=_name_attribute(name),
        metavar=metavar,
        type=type,
        default=text_default,
        required=required and text_default is None,
        help=f"{text} ({note}; environment {variable})",
    )


def add_switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add a flag without a value, off by default.

    Args:
        parser: parser of the command.
        name: name of the flag, with its dashes.
        text: description for --help.
    """
    variable = name_environment_variable(name)
    parser.add_argument(
        name,
        dest=_name_attribute(name),
        action=_Switch,
        nargs=0,
        type=_parse_truth,
        default=os.environ.get(variable) or False,
        help=f"{text} (off; environment {variable}=true)",
    )


class _Switch(argparse.Action):
    """`store_true` with a type: argparse applies it to a default from the environment."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, _values: Any, _option: str | None = None) -> None:
        setattr(namespace, self.dest, True)


def _parse_truth(value: str) -> bool:
    if value.lower() not in {"0", "1", "false", "true"}:
        raise argparse.ArgumentTypeError(f"expected true or false, found {value!r}")
    return value.lower() in {"1", "true"}


def create_choice_parser(*allowed: str) -> Callable[[str], str]:
    """Create a parser of fixed words. `choices` would not do: argparse does not check defaults from the environment."""

    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise argparse.ArgumentTypeError(f"expected {', '.join(allowed[:-1])} or {allowed[-1]}, found {value!r}")
        return value.lower()

    return check


parse_log_level = create_choice_parser(*LEVELS)
parse_log_format = create_choice_parser(*FORMATS)
parse_replay_format = create_choice_parser("json", "openmetrics")


def parse_duration(value: str) -> float:
    """Parse a duration above 0, in seconds."""
    try:
        seconds = units.parse_duration(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds <= 0:
        raise argparse.ArgumentTypeError("expected a duration above 0")
    return seconds


def create_whole_number_parser(least: int, most: int) -> Callable[[str], int]:
    """Create a parser of whole numbers between two bounds, both included."""

    def check(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, found {value!r}")
        return int(value)

    return check


def parse_size(value: str) -> float:
    """Parse a size, in bytes."""
    try:
        return units.parse_size(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_address(value: str) -> tuple[str, int]:
    """Parse a listen address: host, empty for all addresses, and port."""
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    valid_host = ":" in host[1:-1] if bracketed else ":" not in host
    if not colon or not valid_host or not _is_port(port):
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, [::1]:PORT or :PORT, found {value!r}")
    return host.strip("[]"), int(port)


def _is_port(text: str) -> bool:
    is_short = len(text) <= len(str(_HIGHEST_PORT))  # int() raises on thousands of digits
    return text.isascii() and text.isdigit() and is_short and int(text) <= _HIGHEST_PORT


def parse_recording_path(value: str) -> Path:
    """Parse the path of a recording, whose suffix determines the compression."""
    if not value.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        raise argparse.ArgumentTypeError(
            f"expected a name that ends in .jsonl, .jsonl.gz or .jsonl.xz, found {value!r}"
        )
    return Path(value)
