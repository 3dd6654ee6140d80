"""The dashboards and alert rules that PhaseWatch ships: finding them and exporting them."""

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
"""Patterns of the files for operators, below `find_folder()`; pyproject.toml puts the same files into the wheel."""


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """Result of an export.

    Attributes:
        written: files that did not exist or differed.
        unchanged: files that already matched the shipped ones.
    """

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]


def find_folder() -> Path:
    """Find the folder with `alerts` and `dashboards`: in an installed package, otherwise in the checkout.

    Raises:
        AssetError: there is no such folder.
    """
    package = Path(str(resources.files("phasewatch")))
    root = next(
        (candidate for candidate in (package / "assets", package.parents[1]) if (candidate / "alerts").is_dir()), None
    )
    if root is None:
        raise AssetError(
            f"the dashboards and alert rules were not found in {package} nor in a checkout around it; install "
            "PhaseWatch from its wheel, or run it in a checkout of its source"
        )
    return root


def list_paths() -> list[Path]:
    """List the shipped files, relative to `find_folder()`.

    Raises:
        AssetError: there is no such folder.
    """
    root = find_folder()
    return sorted(path.relative_to(root) for pattern in SHIPPED for path in root.glob(pattern))


def export(destination: Path, *, force: bool) -> ExportOutcome:
    """Write the shipped files into a folder, which is created if necessary.

    Args:
        destination: the folder.
        force: whether to overwrite files that differ from the shipped ones.

    Returns:
        The files written and left unchanged.

    Raises:
        AssetError: the shipped files do not exist; a link leads out of the folder, or a file differs and `force` is not
            given (then nothing is written); or a file cannot be written.
    """
    root, shipped = find_folder(), list_paths()
    try:
        outside = [path for path in shipped if not _is_within(destination, path)]
        if outside:
            raise AssetError(_explain_links(destination, outside))
        existing = [path for path in shipped if (destination / path).exists()]
        unchanged = [path for path in existing if (destination / path).read_bytes() == (root / path).read_bytes()]
        differing = [path for path in existing if path not in unchanged]
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


def _explain_links(destination: Path, outside: list[Path]) -> str:
    files = "".join(f"\n  {destination / path}" for path in outside)
    return (
        f"nothing was written, since symbolic links lead out of {destination} on the way to these files:{files}\n"
        "remove the links, or export into another folder"
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically: an existing one is replaced once the new one is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise AssetError(f"{path}: cannot be written: {error.strerror or error}") from error


def _explain_refusal(destination: Path, differing: list[Path]) -> str:
    files = "".join(f"\n  {destination / path}" for path in differing)
    return (
        f"nothing was written, since these files are there and differ from the shipped ones:{files}\n"
        "export into another folder and compare, or give --force to overwrite them"
    )


def describe_export(destination: Path, outcome: ExportOutcome) -> Iterator[str]:
    """Describe the result of an export and the next steps, line by line."""
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
