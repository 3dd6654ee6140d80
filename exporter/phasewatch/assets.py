"""The dashboards and alert rules that PhaseWatch ships: where they are, and writing them out."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from phasewatch.errors import AssetError

SHIPPED: Final = (
    "alerts/alertmanager.yml",
    "alerts/objectives.yml",
    "alerts/prometheus.yml",
    "alerts/rules/phasewatch-*.yml",
    "alerts/rules/*.example",
    "alerts/slo.py",
    "alerts/templates/*.tmpl",
    "dashboards/*.json",
    "dashboards/grafana.ini",
    "dashboards/provisioning/*/*.yml",
)
"""Patterns of what an operator needs, below `folder()`; pyproject.toml puts the same files into the wheel."""


@dataclass(frozen=True, slots=True)
class Export:
    """What an export did.

    Attributes:
        written: files that were not there before, or differed.
        unchanged: files that were there as they are shipped.
    """

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]


def folder() -> Path:
    """The folder with `alerts` and `dashboards`: inside an installed package, else that of the checkout.

    Raises:
        AssetError: there is none.
    """
    package = Path(str(resources.files("phasewatch")))
    found = next((place for place in (package / "assets", package.parents[1]) if (place / "alerts").is_dir()), None)
    if found is None:
        raise AssetError(
            f"the dashboards and alert rules were not found in {package} nor in a checkout around it; install "
            "PhaseWatch from its wheel (pip install phasewatch), or run it in a checkout of its source"
        )
    return found


def paths() -> list[Path]:
    """The shipped files, relative to `folder()`.

    Raises:
        AssetError: there are none.
    """
    root = folder()
    return sorted(path.relative_to(root) for pattern in SHIPPED for path in root.glob(pattern))


def export(destination: Path, *, force: bool) -> Export:
    """Write the shipped files into a folder, which is made if need be.

    Args:
        destination: the folder.
        force: whether to overwrite files that differ from the shipped ones.

    Returns:
        What was written.

    Raises:
        AssetError: there is nothing to write, a file differs and `force` is not given (then nothing is written), or a
            file cannot be written.
    """
    root, shipped = folder(), paths()
    try:
        there = [path for path in shipped if (destination / path).exists()]
        unchanged = [path for path in there if (destination / path).read_bytes() == (root / path).read_bytes()]
        differing = [path for path in there if path not in unchanged]
        if differing and not force:
            raise AssetError(_refusal(destination, differing))
        written = [path for path in shipped if path not in unchanged]
        for path in written:
            (destination / path).parent.mkdir(parents=True, exist_ok=True)
            (destination / path).write_bytes((root / path).read_bytes())
    except OSError as error:
        raise AssetError(f"{error.filename or destination}: cannot be written: {error.strerror or error}") from error
    return Export(tuple(written), tuple(unchanged))


def _refusal(destination: Path, differing: list[Path]) -> str:
    files = "".join(f"\n  {destination / path}" for path in differing)
    return (
        f"nothing was written, since these files are there and differ from the shipped ones:{files}\n"
        "export into another folder and compare, or give --force to overwrite them"
    )


def told(destination: Path, outcome: Export) -> Iterator[str]:
    """What an export did and what to do next, line by line."""
    for path in outcome.written:
        yield f"{destination / path}"
    yield f"written: {len(outcome.written)} file(s); unchanged: {len(outcome.unchanged)}"
    yield ""
    yield f"Prometheus    copy {destination / 'alerts'}/rules beside your configuration and name rules/*.yml under"
    yield "              rule_files; or start from prometheus.yml there, which also scrapes PhaseWatch"
    yield f"Alertmanager  {destination / 'alerts'}/alertmanager.yml with templates/ beside it; set the receivers"
    yield f"Grafana       {destination / 'dashboards'}/*.json, by Dashboards, New, Import; or with provisioning/"
