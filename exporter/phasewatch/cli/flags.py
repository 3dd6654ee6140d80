"""Flags that can also be given in the environment, and the forms that their values take."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from phasewatch.base import units
from phasewatch.base.log import FORMATS, LEVELS

_HIGHEST_PORT: Final = 65535


def environment_name(flag: str) -> str:
    """The environment variable that stands for a flag."""
    return "PHASEWATCH_" + flag.lstrip("-").upper().replace(".", "_").replace("-", "_")


def _attribute(flag: str) -> str:
    return flag.lstrip("-").replace(".", "_").replace("-", "_")


def flag(
    parser: argparse.ArgumentParser,
    name: str,
    text: str,
    *,
    metavar: str,
    type: Callable[[str], Any] = str,  # noqa: A002  # argparse's own word
    default: str | None = None,
    required: bool = False,
) -> None:
    """Add a flag with a value.

    Args:
        parser: of the command.
        name: with its dashes.
        text: what it is, for --help.
        metavar: stands for the value in --help.
        type: turns the text into a value, or raises argparse.ArgumentTypeError.
        default: as it would be typed.
        required: whether there must be a value, from the flag or the environment.
    """
    variable = environment_name(name)
    told = os.environ.get(variable) or default
    shown = "required" if required else f"default {default}" if default else "none by default"
    parser.add_argument(
        name,
        dest=_attribute(name),
        metavar=metavar,
        type=type,
        default=told,
        required=required and told is None,
        help=f"{text} ({shown}; environment {variable})",
    )


def switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add a flag that is on or off."""
    variable = environment_name(name)
    parser.add_argument(
        name,
        dest=_attribute(name),
        action=_Switch,
        nargs=0,
        type=_truth,
        default=os.environ.get(variable) or False,
        help=f"{text} (off; environment {variable}=true)",
    )


class _Switch(argparse.Action):
    """Like `store_true`, but with a type, which argparse applies to a default from the environment."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, _values: Any, _option: str | None = None) -> None:
        setattr(namespace, self.dest, True)


def _truth(value: str) -> bool:
    if value.lower() not in {"0", "1", "false", "true"}:
        raise argparse.ArgumentTypeError(f"expected true or false, found {value!r}")
    return value.lower() in {"1", "true"}


def word(*allowed: str) -> Callable[[str], str]:
    """A type rather than `choices`: argparse does not check a default, and ours may come from the environment."""

    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise argparse.ArgumentTypeError(f"expected {', '.join(allowed[:-1])} or {allowed[-1]}, found {value!r}")
        return value.lower()

    return check


log_level = word(*LEVELS)
log_format = word(*FORMATS)
replay_format = word("json", "openmetrics")


def duration(value: str) -> float:
    """Seconds in a duration above 0."""
    try:
        seconds = units.parse_duration(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds <= 0:
        raise argparse.ArgumentTypeError("expected a duration above 0")
    return seconds


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type for whole numbers between two, both included."""

    def check(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, found {value!r}")
        return int(value)

    return check


def size(value: str) -> float:
    """Bytes of a size."""
    try:
        return units.parse_size(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def address(value: str) -> tuple[str, int]:
    """Host (empty for all addresses) and port."""
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    valid_host = ":" in host[1:-1] if bracketed else ":" not in host
    if not colon or not valid_host or not _is_port(port):
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, [::1]:PORT or :PORT, found {value!r}")
    return host.strip("[]"), int(port)


def _is_port(text: str) -> bool:
    short = len(text) <= len(str(_HIGHEST_PORT))  # Python refuses to read numbers of thousands of digits
    return text.isascii() and text.isdigit() and short and int(text) <= _HIGHEST_PORT


def recording_path(value: str) -> Path:
    """A path whose ending tells the compression."""
    if not value.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        raise argparse.ArgumentTypeError(
            f"expected a name that ends in .jsonl, .jsonl.gz or .jsonl.xz, found {value!r}"
        )
    return Path(value)
