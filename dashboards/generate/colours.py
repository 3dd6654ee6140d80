"""What colours mean on every dashboard, and from which value on a number has which."""

from typing import Final

from dashboards.generate.model import Thresholds
from dashboards.generate.thresholds import read_threshold

GOOD, WARNING, BAD, NEUTRAL = "green", "yellow", "red", "text"
ABOVE_LIMIT: Final = "super-light-purple"
"""Shares above 100 %: a wrong fact, a mixture of experts or speculation, but not a success."""
PREFILL, DECODE, QUEUE, KV_CACHE = "blue", "purple", "yellow", "orange"
GREY: Final = "#6e7687"

UTILIZATION: Final[Thresholds] = ((None, NEUTRAL), (0.001, GOOD), (1.0, ABOVE_LIMIT))
"""Shares of what the hardware can do. No share is alarming in itself."""

DECODE_SHARE: Final[Thresholds] = (
    (None, NEUTRAL),
    (0.0, WARNING),
    (read_threshold("decode_ceiling_ratio"), GOOD),
    (1.0, ABOVE_LIMIT),
)
WAITING: Final[Thresholds] = ((None, NEUTRAL), (1, WARNING), (read_threshold("requests_waiting"), BAD))
INTER_TOKEN: Final[Thresholds] = ((None, GOOD), (read_threshold("inter_token_latency_seconds"), BAD))
FIRST_TOKEN: Final[Thresholds] = ((None, GOOD), (read_threshold("time_to_first_token_seconds"), BAD))

ZERO_OR_BAD: Final[Thresholds] = ((None, NEUTRAL), (0.0, GOOD), (0.5, BAD))
ZERO_OR_WARNING: Final[Thresholds] = ((None, NEUTRAL), (0.0, GOOD), (0.5, WARNING))
"""Counts that should stay at 0. Grafana colours a rounded count from the half on."""


def uncolour_missing(thresholds: Thresholds) -> Thresholds:
    """The same thresholds, with missing values left uncoloured."""
    return ((None, NEUTRAL), (0.0, thresholds[0][1]), *thresholds[1:])
