"""The dashboards, one package each: `BUILDERS` is the only list of them."""

from collections.abc import Callable
from typing import Final

from dashboards.generate.boards.exporter.board import build_exporter
from dashboards.generate.boards.ollama.board import build_ollama
from dashboards.generate.boards.overview.board import build_overview
from dashboards.generate.boards.phases.board import build_phases
from dashboards.generate.boards.saturation.board import build_saturation
from dashboards.generate.boards.slo.board import build_slo
from dashboards.generate.model import Dashboard

BUILDERS: Final[tuple[Callable[[], Dashboard], ...]] = (
    build_overview,
    build_phases,
    build_saturation,
    build_ollama,
    build_slo,
    build_exporter,
)
