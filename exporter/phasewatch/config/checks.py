"""What is wrong or worth a line in a configuration beyond single keys: names, contradictions, keys without use."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Final

from phasewatch.base import units
from phasewatch.base.errors import Problem
from phasewatch.config.schema import (
    DEFAULT_INTERVAL,
    DEFAULT_WINDOW,
    LONGEST,
    OLLAMA_INTERVAL,
    FileSchema,
    TargetSchema,
)

_UNUSED_KEYS: Final = {
    "vllm": {"probe": "accepted, but not used: a vllm target is never sent a prompt"},
    "ollama": {
        "server": "accepted, but not used: an ollama target has no such settings",
        "saturation": "accepted, but not used: Ollama does not tell what waits",
        "window": "accepted, but not used: an ollama target is measured by probes",
    },
}


_TOLD_BY_OLLAMA: Final = ("path", "weights", "weights_read", "kv_cache_bytes_per_token", "active_parameters")


def find_repeated_names(targets: object) -> Iterator[Problem]:
    """Looks at the raw list, so that a repeated name is reported together with mistakes elsewhere."""
    first_use: dict[str, int] = {}
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        name = target.get("name") if isinstance(target, dict) else None
        if not isinstance(name, str):
            continue
        if name in first_use:
            yield Problem(f"targets[{index}].name", f"{name!r} is taken by targets[{first_use[name]}]")
        first_use.setdefault(name, index)


def find_contradictions(raw: dict[Any, Any]) -> Iterator[Problem]:
    """Keys that are right alone and wrong together. Looks at the raw keys, to be told with all other mistakes; what is
    wrong alone is passed over here.
    """
    targets = raw.get("targets")
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        if not isinstance(target, dict):
            continue
        yield from _contradictions_of_ollama(target, f"targets[{index}]")
        interval = _seconds(_either(target, raw, "interval"), DEFAULT_INTERVAL)
        window = _seconds(_either(target, raw, "window"), DEFAULT_WINDOW)
        if window < interval and target.get("backend") != "ollama":
            given = "found" if _either(target, raw, "window") is not None else "but the default is"
            yield Problem(
                f"targets[{index}].window",
                f"expected at least the interval of {units.human_duration(interval)}, "
                f"{given} {units.human_duration(window)}: one window must hold two scrapes",
            )
        if target.get("tls_config") and str(target.get("url")).lower().startswith("http:"):
            yield Problem(f"targets[{index}].tls_config", "expected an https url with it")


def _contradictions_of_ollama(target: dict[Any, Any], path: str) -> Iterator[Problem]:
    probe, model = target.get("probe"), target.get("model")
    models = probe.get("models") if isinstance(probe, dict) else None
    first_use: dict[str, int] = {}
    for index, entry in enumerate(models if isinstance(models, list) else ()):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in first_use:
            yield Problem(f"{path}.probe.models[{index}].name", f"{name!r} is taken by models[{first_use[name]}]")
        elif isinstance(name, str):
            first_use[name] = index
    if target.get("backend") == "ollama":
        for key in model if isinstance(model, dict) else ():
            if key in _TOLD_BY_OLLAMA:
                yield Problem(f"{path}.model.{key}", "an ollama target tells this itself, for each of its models")


def _either(target: dict[Any, Any], raw: dict[Any, Any], key: str) -> object:
    """What a target says, or else the file; null says nothing."""
    own = target.get(key)
    return raw.get(key) if own is None else own


def _seconds(value: object, default: float) -> float:
    """The seconds of a key; the default where it is not given, or wrong and told as such elsewhere."""
    with contextlib.suppress(ValueError):
        seconds = default if value is None else units.duration(value)
        if 0 < seconds <= LONGEST:
            return seconds
    return default


def find_notes(file: FileSchema, base: Path) -> Iterator[Problem]:
    """What is no mistake, but worth a line.

    Args:
        file: the configuration.
        base: where relative paths start.
    """
    for index, target in enumerate(file.targets):
        path = f"targets[{index}]"
        for key, note in _UNUSED_KEYS[target.backend].items():
            if getattr(target, key) is not None:
                yield Problem(f"{path}.{key}", note)
        yield from _probe_notes(target, path)
        yield from _device_notes(target, path)
        if target.model is not None and target.model.path is not None:
            yield from _unusable_folder(f"{path}.model.path", base / target.model.path)
        for section in ("authorization", "tls_config"):
            for key, value in getattr(target, section) or ():
                if isinstance(value, Path):
                    yield from _unreadable(f"targets[{index}].{section}.{key}", base / value)


def _probe_notes(target: TargetSchema, path: str) -> Iterator[Problem]:
    if target.backend == "ollama" and target.interval is not None and target.interval < OLLAMA_INTERVAL:
        shortest = units.human_duration(OLLAMA_INTERVAL)
        yield Problem(f"{path}.interval", f"less than {shortest}: each look at an Ollama holds up its scheduler")
    if target.probe is not None and target.probe.load and not target.probe.models:
        yield Problem(f"{path}.probe.load", "loads nothing by itself: name the models it is meant for in probe.models")


def _device_notes(target: TargetSchema, path: str) -> Iterator[Problem]:
    """A name that means nothing is a note, because a server without a ceiling is watched all the same."""
    told = target.device
    if told is None or told.name is None or told.memory_bandwidth is not None:
        return
    from phasewatch.hardware.wording import describe_unknown_device  # noqa: PLC0415  # reads the table, which most files do not need

    wrong = describe_unknown_device(told.name, told.memory)
    if wrong is not None:
        yield Problem(f"{path}.device.name", wrong)


def _unusable_folder(path: str, folder: Path) -> Iterator[Problem]:
    """A folder may be mounted later, as above."""
    try:
        mode = folder.stat().st_mode
        if not S_ISDIR(mode):
            yield Problem(path, "expected a folder with the files of a model")
        elif not (folder / "config.json").exists():
            yield Problem(path, "the folder has no config.json: is it that of a model?")
    except OSError as error:
        yield Problem(path, f"cannot be read now: {error.strerror}")


def _unreadable(path: str, file: Path) -> Iterator[Problem]:
    """A secret may be mounted later, so this is a note; it gives the system's word and never the value."""
    try:
        if not file.exists() or file.is_file():  # opening a pipe would wait for its other end
            file.open("rb").close()
    except OSError as error:
        yield Problem(path, f"cannot be read now: {error.strerror}")
