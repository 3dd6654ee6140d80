"""SLO: from which share, burn rate and budget on a number has which colour."""

from collections.abc import Mapping
from typing import Any, Final

from alerts.generate.slo import BURNS, Burn, Objective
from dashboards.generate.boards.slo.queries import BUDGET_SHARE_OF_LONGEST_WINDOW, compute_share_in_time
from dashboards.generate.colours import BAD, GOOD, NEUTRAL, WARNING
from dashboards.generate.model import Thresholds

PAGING_FACTOR: Final = float(min(burn.factor for burn in BURNS if burn.severity == "critical"))
FASTEST_FACTOR: Final = max(burn.factor for burn in BURNS)
BUDGET_SPENT: Final[Thresholds] = (
    (None, NEUTRAL),
    (0.0, GOOD),
    (BUDGET_SHARE_OF_LONGEST_WINDOW, WARNING),
    (PAGING_FACTOR * BUDGET_SHARE_OF_LONGEST_WINDOW, BAD),
)


def build_share_thresholds(objective: Objective) -> Thresholds:
    """Colours of the share in time."""
    return (
        (None, NEUTRAL),
        (0.0, BAD),
        (compute_share_in_time(objective, FASTEST_FACTOR), WARNING),
        (objective.objective, GOOD),
    )


def build_burn_thresholds(burn: Burn) -> Thresholds:
    """Colours of the burn rate of one tier."""
    return ((None, NEUTRAL), (float(burn.factor), _get_colour(burn)))


def build_factor_thresholds() -> Thresholds:
    """Colours of a burn rate, with the factors of all tiers."""
    return (
        (None, NEUTRAL),
        *((float(burn.factor), _get_colour(burn)) for burn in sorted(BURNS, key=lambda burn: burn.factor)),
    )


def to_property(thresholds: Thresholds) -> Mapping[str, Any]:
    """Thresholds as the value of an override's property."""
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in thresholds]}


def _get_colour(burn: Burn) -> str:
    return BAD if burn.severity == "critical" else WARNING
