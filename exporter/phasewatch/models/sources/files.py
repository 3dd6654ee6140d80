"""Files of a model's folder: found only where they may lie, and read no further than such a file can be long."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phasewatch.models.errors import ModelError

_MEGABYTE = 1_000_000


def resolve_links(path: Path) -> Path:
    """The path without symbolic links.

    Raises:
        ModelError: nothing is there, or links lead in a circle.
    """
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a circle, up to Python 3.12
        raise ModelError(f"{path}: cannot be read: {_reason(error)}") from error


def find_file(folder: Path, name: str) -> Path | None:
    """A file of a folder, symbolic links followed; None if there is none of that name.

    The hub's cache keeps files as links from a snapshot into the blobs of the same model. Links to anywhere else are
    not followed: what a folder says must not make this program read other files.

    Args:
        folder: resolved already.
        name: of the file, without a path.

    Raises:
        ModelError: it is no plain name, no regular file, or a link out of the folder or in a circle.
    """
    if not is_plain_name(name):
        raise ModelError(f"{folder}: {name[:100]!r} is no plain file name")
    path = folder / name
    if not path.is_symlink() and not _exists(path):
        return None
    real = resolve_links(path)
    home = folder.parent.parent if folder.parent.name == "snapshots" else folder
    if not real.is_relative_to(home):
        raise ModelError(f"{path}: is a link out of the model's folder; put the file itself there")
    if not real.is_file():
        raise ModelError(f"{path}: is no regular file")
    return real


def is_plain_name(name: str) -> bool:
    """Whether a name leads to no other folder."""
    return bool(name) and Path(name).name == name and name != ".." and "\0" not in name and "\\" not in name


def read_json_file(path: Path, most_bytes: int) -> Mapping[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelError: it cannot be read, is longer than `most_bytes`, or is no JSON object.
    """
    try:
        with path.open("rb") as file:
            text = file.read(most_bytes + 1)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {_reason(error)}") from error
    if len(text) > most_bytes:
        raise ModelError(f"{path}: is larger than {most_bytes // _MEGABYTE} MB: is it the right file?")
    return parse_json_object(text, str(path))


def parse_json_object(text: bytes, place: str) -> Mapping[str, Any]:
    """The JSON object in a text, without a key given twice.

    Raises:
        ModelError: it is none; the message begins with `place`.
    """
    try:
        document = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{place}: no valid JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise ModelError(f"{place}: expected a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"{key[:100]!r} is given twice")
        document[key] = value
    return document


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {_reason(error)}") from error
    return True


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
