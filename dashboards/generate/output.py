"""The generated files: one JSON file for each dashboard, in dashboards/json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dashboards.generate.boards import BUILDERS
from dashboards.generate.grafana import render_dashboard

FOLDER: Final = Path(__file__).parents[1] / "json"


def render_files() -> Mapping[Path, str]:
    """The content of each file by its path."""
    dashboards = [build() for build in BUILDERS]
    return {FOLDER / f"{dashboard.uid}.json": render_dashboard(dashboard) for dashboard in dashboards}


def write_files() -> None:
    """Write every file."""
    for path, content in render_files().items():
        path.write_text(content, encoding="utf-8")
