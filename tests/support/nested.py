"""Nested mappings and lists, as JSON and YAML have them."""

from collections.abc import Iterator
from typing import Any


def key_paths(value: Any, path: str = "") -> Iterator[str]:
    """The path of every key: `targets`, `targets[].name`."""
    if isinstance(value, dict):
        for name, child in value.items():
            child_path = f"{path}.{name}" if path else name
            yield child_path
            yield from key_paths(child, child_path)
    elif isinstance(value, list):
        for item in value:
            yield from key_paths(item, f"{path}[]")
