"""Where the repository keeps what tests read."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "alerts"
DASHBOARDS: Final = ROOT / "dashboards"
DASHBOARDS_JSON: Final = DASHBOARDS / "json"
DATA: Final = ROOT / "tests" / "data"
RECORDINGS: Final = DATA / "recordings"
CASES: Final = DATA / "cases"
MODELS: Final = DATA / "models"
