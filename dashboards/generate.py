"""Writes the JSON of every board beside this module: `make dashboards`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dashboards.exporter import exporter
from dashboards.grafana import rendered
from dashboards.ollama import ollama
from dashboards.overview import overview
from dashboards.panels import Board
from dashboards.phases import phases
from dashboards.saturation import saturation
from dashboards.slo import slo

FOLDER: Final = Path(__file__).parent
BOARDS: Final[tuple[Callable[[], Board], ...]] = (overview, phases, saturation, ollama, slo, exporter)


def files() -> Mapping[Path, str]:
    """The content of each file, by its path."""
    built = [board() for board in BOARDS]
    return {FOLDER / f"{board.uid}.json": rendered(board) for board in built}


def main() -> None:
    """Write them all."""
    for path, content in files().items():
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
