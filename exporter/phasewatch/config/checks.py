"""Checks across keys: repeated names and contradictions, which are errors, and notes, for example about unused keys."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from phasewatch.base import units
from phasewatch.base.errors import Problem
from phasewatch.config.backend_rules import BackendRules, Rules
from phasewatch.config.schema import FileSchema, TargetSchema
from phasewatch.config.values import MAX_DURATION


def find_repeated_names(targets: object) -> Iterator[Problem]:
    """Names used by two targets. Works on the raw list, so that they are reported together with all other mistakes."""
    first_use: dict[str, int] = {}
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        name = target.get("name") if isinstance(target, dict) else None
        if not isinstance(name, str):
            continue
        if name in first_use:
            yield Problem(f"targets[{index}].name", f"{name!r} is taken by targets[{first_use[name]}]")
        first_use.setdefault(name, index)


def find_contradictions(raw: dict[Any, Any], rules: Rules) -> Iterator[Problem]:
    """Keys that are valid alone but not together. Works on the raw keys, so that contradictions are reported with all
    other mistakes; keys that are invalid alone are ignored here.
    """
    targets = raw.get("targets")
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        if not isinstance(target, dict):
            continue
        rule = _find_rule(target, rules)
        yield from _find_probe_contradictions(target, f"targets[{index}]")
        yield from _find_refused_keys(target, f"targets[{index}]", rule)
        if not rule.any_window:
            yield from _find_short_window(target, raw, f"targets[{index}]")
        if target.get("tls_config") and str(target.get("url")).lower().startswith("http:"):
            yield Problem(f"targets[{index}].tls_config", "expected an https url with it")


def _find_rule(target: dict[Any, Any], rules: Rules) -> BackendRules:
    """The rules for a target; empty ones if its backend is invalid."""
    name = target.get("backend")
    rule = rules.get(name) if isinstance(name, str) else None
    return rule or BackendRules("")


def _find_short_window(target: dict[Any, Any], raw: dict[Any, Any], path: str) -> Iterator[Problem]:
    interval = _get_seconds(_choose_value(target, raw, "interval"), "interval")
    window = _get_seconds(_choose_value(target, raw, "window"), "window")
    if window < interval:
        origin = "found" if _choose_value(target, raw, "window") is not None else "but the default is"
        yield Problem(
            f"{path}.window",
            f"expected at least the interval of {units.format_duration(interval)}, "
            f"{origin} {units.format_duration(window)}: one window must hold two scrapes",
        )


def _find_probe_contradictions(target: dict[Any, Any], path: str) -> Iterator[Problem]:
    probe = target.get("probe")
    models = probe.get("models") if isinstance(probe, dict) else None
    first_use: dict[str, int] = {}
    for index, entry in enumerate(models if isinstance(models, list) else ()):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in first_use:
            yield Problem(f"{path}.probe.models[{index}].name", f"{name!r} is taken by models[{first_use[name]}]")
        elif isinstance(name, str):
            first_use[name] = index


def _find_refused_keys(target: dict[Any, Any], path: str, rule: BackendRules) -> Iterator[Problem]:
    model = target.get("model")
    for key in model if isinstance(model, dict) else ():
        if key in rule.refused_keys:
            yield Problem(f"{path}.model.{key}", rule.refused_keys[key])


def _choose_value(target: dict[Any, Any], raw: dict[Any, Any], key: str) -> object:
    """The target's value of a key, or else the file's. null counts as not given."""
    value = target.get(key)
    return raw.get(key) if value is None else value


def _get_seconds(value: object, key: str) -> float:
    """A duration in seconds; the key's default if it is not given, or invalid, which is reported elsewhere."""
    default: float = FileSchema.model_fields[key].get_default()
    with contextlib.suppress(ValueError):
        seconds = default if value is None else units.parse_duration(value)
        if 0 < seconds <= MAX_DURATION:
            return seconds
    return default


def find_notes(file: FileSchema, rules: Rules, base: Path) -> Iterator[Problem]:
    """Notes: what is valid, but probably not intended.

    Args:
        file: the configuration.
        rules: rules of each kind of server.
        base: folder that relative paths start from.
    """
    for index, target in enumerate(file.targets):
        path = f"targets[{index}]"
        for key, note in rules[target.backend].unused_keys.items():
            if key in target.model_fields_set and getattr(target, key) is not None:
                yield Problem(f"{path}.{key}", note)
        yield from _find_probe_notes(target, path, rules[target.backend])
        yield from _find_device_notes(target, path)
        if target.model is not None and target.model.path is not None:
            yield from _check_folder(f"{path}.model.path", base / target.model.path)
        for section in ("authorization", "tls_config"):
            for key, value in getattr(target, section) or ():
                if isinstance(value, Path):
                    yield from _check_readable(f"targets[{index}].{section}.{key}", base / value)


def _find_probe_notes(target: TargetSchema, path: str, rule: BackendRules) -> Iterator[Problem]:
    if target.interval is not None and target.interval < rule.least_interval:
        least = units.format_duration(rule.least_interval)
        yield Problem(f"{path}.interval", f"less than {least}: {rule.interval_note}")
    if target.probe is not None and target.probe.load and not target.probe.models:
        yield Problem(f"{path}.probe.load", "loads nothing by itself: name the models it is meant for in probe.models")


def _find_device_notes(target: TargetSchema, path: str) -> Iterator[Problem]:
    """An unknown device is a note, not an error: without a ceiling the server can still be watched."""
    device = target.device
    if device is None or device.name is None or device.memory_bandwidth is not None:
        return
    from phasewatch.hardware.wording import describe_unknown_device  # noqa: PLC0415  # loads the table of devices, which most files do not need

    note = describe_unknown_device(device.name, device.memory)
    if note is not None:
        yield Problem(f"{path}.device.name", note)


def _check_folder(path: str, folder: Path) -> Iterator[Problem]:
    """A note, not an error: the folder may be mounted later."""
    try:
        mode = folder.stat().st_mode
        if not S_ISDIR(mode):
            yield Problem(path, "expected a folder with the files of a model")
        elif not (folder / "config.json").exists():
            yield Problem(path, "the folder has no config.json: is it that of a model?")
    except OSError as error:
        yield Problem(path, f"cannot be read now: {error.strerror}")


def _check_readable(path: str, file: Path) -> Iterator[Problem]:
    """A note, not an error: the file may be mounted later. It has the operating system's message, never the content."""
    try:
        if not file.exists() or file.is_file():  # opening a pipe would block until its other end is opened
            file.open("rb").close()
    except OSError as error:
        yield Problem(path, f"cannot be read now: {error.strerror}")
