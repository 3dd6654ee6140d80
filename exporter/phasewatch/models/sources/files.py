"""Safe access to files of a model's folder: links must not leave the folder, and sizes are bounded."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phasewatch.models.errors import ModelError

_MEGABYTE = 1_000_000


def resolve_links(path: Path) -> Path:
    """The path with symbolic links resolved.

    Raises:
        ModelError: it does not exist, or links form a loop.
    """
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop, up to Python 3.12
        raise ModelError(f"{path}: cannot be read: {_describe_error(error)}") from error


def find_file(folder: Path, name: str) -> Path | None:
    """The path of a file in a folder, with symbolic links resolved; None if the folder has no such file.

    The hub's cache stores files as links from a snapshot into the blobs of the same model. Links to any other place are
    refused: the content of a folder must not make this program read other files.

    Args:
        folder: path of the folder, with symbolic links resolved.
        name: file name without a path.

    Raises:
        ModelError: it is not a plain name, not a regular file, or a link that leaves the folder or forms a loop.
    """
    if not is_plain_name(name):
        raise ModelError(f"{folder}: {name[:100]!r} is no plain file name")
    path = folder / name
    if not path.is_symlink() and not _exists(path):
        return None
    real = resolve_links(path)
    allowed = folder.parent.parent if folder.parent.name == "snapshots" else folder
    if not real.is_relative_to(allowed):
        raise ModelError(f"{path}: is a link out of the model's folder; put the file itself there")
    if not real.is_file():
        raise ModelError(f"{path}: is no regular file")
    return real


def is_plain_name(name: str) -> bool:
    """Whether a name is a file name that does not lead to another folder."""
    return bool(name) and Path(name).name == name and name != ".." and "\0" not in name and "\\" not in name


def read_json_file(path: Path, max_bytes: int) -> Mapping[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelError: it cannot be read, is longer than `max_bytes`, or is not a JSON object.
    """
    try:
        with path.open("rb") as file:
            text = file.read(max_bytes + 1)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {_describe_error(error)}") from error
    if len(text) > max_bytes:
        raise ModelError(f"{path}: is larger than {max_bytes // _MEGABYTE} MB: is it the right file?")
    return parse_json_object(text, str(path))


def parse_json_object(text: bytes, place: str) -> Mapping[str, Any]:
    """The JSON object in a text; duplicate keys are an error.

    Raises:
        ModelError: it is not a JSON object; the message begins with `place`.
    """
    try:
        document = json.loads(text.decode(), object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{place}: no valid JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise ModelError(f"{place}: expected a JSON object")
    return document


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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
        raise ModelError(f"{path}: cannot be read: {_describe_error(error)}") from error
    return True


def _describe_error(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
