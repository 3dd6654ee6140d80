"""A model's folder on this machine: a path, or an id that is looked up in the local cache of the Hugging Face hub."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_ID: Final = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
"""An id on the hub: a name, or an organisation and a name."""

_REVISION: Final = re.compile(r"[0-9a-f]{1,64}")


def find_in_hub_cache(root: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of a model, without asking any network; None if it is not on this machine.

    Args:
        root: an absolute path or a hub id, as `root` of vLLM's /v1/models tells it. Relative paths are relative to
            another program's folder and lead nowhere.
        environment: variables that say where the cache is.
    """
    if root.startswith("/"):
        return Path(root) if _is_folder(Path(root)) else None
    if not _ID.fullmatch(root) or ".." in root or "--" in root:
        return None
    name = f"models--{root.replace('/', '--')}"
    for cache in _caches(environment):
        snapshot = _snapshot(cache / name)
        if snapshot is not None:
            return snapshot
    return None


def _caches(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where the cache may be, in the order of huggingface_hub; the server may have been told another place than we."""
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ):
        if environment.get(variable):
            yield Path(environment[variable], below)


def _snapshot(model: Path) -> Path | None:
    try:
        with (model / "refs" / "main").open(encoding="ascii") as file:
            revision = file.read(100).strip()
    except (OSError, ValueError):
        return None
    snapshot = model / "snapshots" / revision
    return snapshot if _REVISION.fullmatch(revision) and _is_folder(snapshot) else None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
