"""The program's YAML files: strict reading, and every mistake as `path.to.key: what is expected there`."""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.base.units import describe_value

_NAMED: Final = re.compile(r" '(?:[*&]?\w+|!\S*|tag:\S*)'")
"""Aliases and tags as PyYAML names them in its messages. An unquoted password that begins with * or ! would be one."""

_MAX_BYTES: Final = 1_000_000


def read_mapping(path: Path) -> tuple[dict[Any, Any], list[Problem]]:
    """The keys of a file, and a problem for each key that is given twice.

    Raises:
        ConfigError: the file cannot be read or is not a YAML mapping.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1).decode()
    except OSError as error:
        raise ConfigError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(str(path), f"is not UTF-8 text: {error.reason} at byte {error.start}")]) from error
    if len(text) > _MAX_BYTES:
        raise ConfigError([Problem(str(path), f"is larger than {_MAX_BYTES // 1_000_000} MB: is it the right file?")])
    return parse_mapping(text, str(path))


def parse_mapping(text: str, source: str) -> tuple[dict[Any, Any], list[Problem]]:
    """The keys of a text, and a problem for each key that is given twice.

    Raises:
        ConfigError: the text is not a YAML mapping.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        raw = yaml.safe_load(text)
    except Exception as error:  # PyYAML passes on whatever its constructors raise, for example for a date or a tag
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise ConfigError([Problem(where, f"no valid YAML: {_NAMED.sub('', str(reason))}")]) from error
    if not isinstance(raw, dict):
        raise ConfigError([Problem(source, "expected a mapping of keys")])
    return raw, list(_find_duplicate_keys(node, "", set()))


def _find_duplicate_keys(node: yaml.Node | None, path: str, seen: set[int]) -> Iterator[Problem]:
    """Keys that are given twice, from the node tree: PyYAML itself silently keeps the last of two equal keys."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _find_duplicate_keys(item, f"{path}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            here = f"{path}.{_format_key(name)}" if path else _format_key(name)
            if name in lines:
                yield Problem(here, f"given twice, in line {lines[name]} and line {line}; keep one")
            lines[name] = line
            yield from _find_duplicate_keys(value, here, seen)


_MAPPING: Final = "expected a mapping of keys{actual}"
_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "missing; this key is required",
    "value_error": "{error}",
    "literal_error": "expected {expected}{actual}",
    "too_short": "expected at least one entry",
    "greater_than_equal": "expected {ge} or more{actual}",
    "greater_than": "expected more than {gt:g}{actual}",
    "less_than_equal": "expected {le:g} or less{actual}",
    "float_type": "expected a number{actual}",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "list_type": "expected a list{actual}",
    "int_type": "expected a whole number{actual}",
    "bool_type": "expected true or false{actual}",
    "string_type": "expected text{actual}",
    "path_type": "expected text{actual}",
}
"""Message for each type of pydantic's errors, to be formatted with the error's context."""


def describe_error(
    details: ErrorDetails, root: type[BaseModel], sections: Mapping[str, type[BaseModel]], secret: frozenset[str]
) -> Problem:
    """One error of pydantic as a problem with the program's own message.

    Args:
        details: the error.
        root: the schema of the file.
        sections: the schema of each section, by key.
        secret: keys whose values, and those below them, are never repeated in the message.
    """
    location = details["loc"]
    if details["type"] == "invalid_key":  # a key that is not text, for example a number
        location = (*location[:-1], str(location[-1]))
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{_format_key(part)}" for part in location).lstrip(".")
    if details["type"] in {"extra_forbidden", "invalid_key"}:
        schema = next((sections[str(part)] for part in reversed(location[:-1]) if part in sections), root)
        return Problem(path, _describe_unknown_key(str(location[-1]), schema))
    actual = "" if secret.intersection(location) else f", found {describe_value(details['input'])}"
    template = _MESSAGES.get(details["type"], details["msg"].replace("{", "{{").replace("}", "}}"))
    return Problem(path, template.format(actual=actual, **details.get("ctx", {})))


def _format_key(name: str) -> str:
    """A key on one line. A bcrypt hash in it (`alice:$2y$...` without a space after the colon) is left out."""
    user, bcrypt_prefix, _ = name.partition("$2")
    text = f"{user}..." if bcrypt_prefix else name
    return text if text.isprintable() else repr(text)[1:-1]


def _describe_unknown_key(name: str, schema: type[BaseModel]) -> str:
    keys = sorted(schema.model_fields)
    close = difflib.get_close_matches(name, keys, n=1)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known here: {', '.join(keys)}"
