"""Writes the JSON of every board: `make dashboards`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dashboards.generate.boards.exporter.board import exporter
from dashboards.generate.boards.ollama.board import ollama
from dashboards.generate.boards.overview.board import overview
from dashboards.generate.boards.phases.board import phases
from dashboards.generate.boards.saturation.board import saturation
from dashboards.generate.boards.slo.board import slo
from dashboards.generate.grafana import rendered
from dashboards.generate.model import Board

FOLDER: Final = Path(__file__).parents[1] / "json"
BOARDS: Final[tuple[Callable[[], Board], ...]] = (overview, phases, saturation, ollama, slo, exporter)


def files() -> Mapping[Path, str]:
    """The content of each file, by its path."""
    built = [board() for board in BOARDS]
    return {FOLDER / f"{board.uid}.json": rendered(board) for board in built}


def main() -> None:
    """Write them all."""
    for path, content in files().items():
        path.write_text(content, encoding="utf-8")
