"""The dashboards and alert rules that PhaseWatch ships: where they are, and writing them out."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from phasewatch.base.errors import AssetError

SHIPPED: Final = (
    "alerts/__init__.py",
    "alerts/alertmanager.yml",
    "alerts/alerts/*.yml",
    "alerts/generate/*.py",
    "alerts/objectives.yml",
    "alerts/prometheus.yml",
    "alerts/recording.yml",
    "alerts/rules/phasewatch-*.yml",
    "alerts/rules/*.example",
    "alerts/templates/phasewatch.tmpl",
    "alerts/thresholds.yml",
    "dashboards/json/*.json",
    "dashboards/grafana.ini",
    "dashboards/provisioning/*/*.yml",
)
"""Patterns of what an operator needs, below `folder()`; pyproject.toml puts the same files into the wheel."""


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """What an export did.

    Attributes:
        written: files that were not there before, or differed.
        unchanged: files that were there as they are shipped.
    """

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]


def find_folder() -> Path:
    """The folder with `alerts` and `dashboards`: inside an installed package, else that of the checkout.

    Raises:
        AssetError: there is none.
    """
    package = Path(str(resources.files("phasewatch")))
    root = next((place for place in (package / "assets", package.parents[1]) if (place / "alerts").is_dir()), None)
    if root is None:
        raise AssetError(
            f"the dashboards and alert rules were not found in {package} nor in a checkout around it; install "
            "PhaseWatch from its wheel, or run it in a checkout of its source"
        )
    return root


def list_paths() -> list[Path]:
    """The shipped files, relative to `folder()`.

    Raises:
        AssetError: there are none.
    """
    root = find_folder()
    return sorted(path.relative_to(root) for pattern in SHIPPED for path in root.glob(pattern))


def export(destination: Path, *, force: bool) -> ExportOutcome:
    """Write the shipped files into a folder, which is made if need be.

    Args:
        destination: the folder.
        force: whether to overwrite files that differ from the shipped ones.

    Returns:
        What was written.

    Raises:
        AssetError: there is nothing to write, a link leads out of the folder or a file differs and `force` is not given
            (then nothing is written), or a file cannot be written.
    """
    root, shipped = find_folder(), list_paths()
    try:
        astray = [path for path in shipped if not _is_within(destination, path)]
        if astray:
            raise AssetError(_explain_links(destination, astray))
        there = [path for path in shipped if (destination / path).exists()]
        unchanged = [path for path in there if (destination / path).read_bytes() == (root / path).read_bytes()]
        differing = [path for path in there if path not in unchanged]
        if differing and not force:
            raise AssetError(_explain_refusal(destination, differing))
        written = [path for path in shipped if path not in unchanged]
        for path in written:
            _write(destination / path, (root / path).read_bytes())
    except OSError as error:
        raise AssetError(f"{error.filename or destination}: cannot be written: {error.strerror or error}") from error
    return ExportOutcome(tuple(written), tuple(unchanged))


def _is_within(destination: Path, path: Path) -> bool:
    real = Path(os.path.realpath(destination / path))  # Path.resolve raises on a link to itself
    return real.is_relative_to(os.path.realpath(destination))


def _explain_links(destination: Path, astray: list[Path]) -> str:
    files = "".join(f"\n  {destination / path}" for path in astray)
    return (
        f"nothing was written, since symbolic links lead out of {destination} on the way to these files:{files}\n"
        "remove the links, or export into another folder"
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: one that is there stays as it is until the new one is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file:
            file.write(content)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise AssetError(f"{path}: cannot be written: {error.strerror or error}") from error


def _explain_refusal(destination: Path, differing: list[Path]) -> str:
    files = "".join(f"\n  {destination / path}" for path in differing)
    return (
        f"nothing was written, since these files are there and differ from the shipped ones:{files}\n"
        "export into another folder and compare, or give --force to overwrite them"
    )


def describe_export(destination: Path, outcome: ExportOutcome) -> Iterator[str]:
    """What an export did and what to do next, line by line."""
    for path in outcome.written:
        yield f"{destination / path}"
    yield f"written: {len(outcome.written)} file(s); unchanged: {len(outcome.unchanged)}"
    yield ""
    yield f"Prometheus    copy {destination / 'alerts'}/rules beside your configuration and name rules/*.yml under"
    yield "              rule_files; or start from prometheus.yml there, which also scrapes PhaseWatch, and set the"
    yield "              addresses: phasewatch:10061 and alertmanager:9093 are those of docker-compose.yml"
    yield f"Alertmanager  {destination / 'alerts'}/alertmanager.yml with templates/ beside it; set the receivers"
    dashboards = destination / "dashboards"
    yield f"Grafana       {dashboards}/json/*.json, by Dashboards, New, Import; or with provisioning/, where"
    yield "              datasources/phasewatch.yml has the address prometheus:9090: set yours"
