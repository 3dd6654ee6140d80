"""Find a model's folder on this machine by its path, or by its id in the local cache of the Hugging Face hub."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_HUB_ID: Final = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
"""Id of a model on the hub: a name, or an organisation and a name."""

_REVISION: Final = re.compile(r"[0-9a-f]{1,64}")


def find_in_hub_cache(root: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of a model, without any network access; None if it is not on this machine.

    Args:
        root: an absolute path or a hub id, as in `root` of vLLM's /v1/models. Relative paths are relative to the
            server's working directory and not found.
        environment: variables that locate the cache.
    """
    if root.startswith("/"):
        return Path(root) if _is_folder(Path(root)) else None
    if not _HUB_ID.fullmatch(root) or ".." in root or "--" in root:
        return None
    name = f"models--{root.replace('/', '--')}"
    for cache in _list_caches(environment):
        snapshot = _find_snapshot(cache / name)
        if snapshot is not None:
            return snapshot
    return None


def _list_caches(environment: Mapping[str, str]) -> Iterator[Path]:
    """Possible locations of the cache in the order of huggingface_hub; the server may use another than this process."""
    for variable, subfolder in (
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ):
        if environment.get(variable):
            yield Path(environment[variable], subfolder)


def _find_snapshot(model: Path) -> Path | None:
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
