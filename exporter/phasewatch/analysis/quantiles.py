"""Quantiles of a cumulative histogram, as Prometheus' `compute_quantile` gives them, but honest at both ends.

Inside the histogram the value is interpolated linearly between the edges of the bucket that holds the rank. In the
first bucket Prometheus would interpolate from 0: a server that decodes at 4 ms has every observation below vLLM's first
edge of 10 ms and would be given a p99 that nobody measured. There the upper edge is given instead ("at most"). In the
last bucket, which has no upper edge, both give the lower edge ("at least").
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Quantile:
    """One quantile and the edges of the bucket that holds it. `upper` is None in the last bucket: it has none."""

    value: float
    lower: float
    upper: float | None


def compute_quantile(quantile: float, upper_bounds: Sequence[float], cumulative: Sequence[float]) -> Quantile | None:
    """One quantile of a cumulative histogram.

    Args:
        quantile: above 0, at most 1.
        upper_bounds: of the buckets, in ascending order, the last one infinite.
        cumulative: observations up to each bound.

    Returns:
        The quantile; None for a histogram without observations or without a finite bound.
    """
    if len(upper_bounds) < 2 or upper_bounds[-1] != inf or cumulative[-1] <= 0:  # noqa: PLR2004  # one finite bound and +Inf
        return None
    rank = quantile * cumulative[-1]
    index = bisect.bisect_left(cumulative, rank)
    if index >= len(upper_bounds) - 1:
        return Quantile(upper_bounds[-2], upper_bounds[-2], None)
    upper = upper_bounds[index]
    if index == 0:
        return Quantile(upper, 0.0, upper)
    lower = upper_bounds[index - 1]
    below = cumulative[index - 1]
    return Quantile(lower + (upper - lower) * ((rank - below) / (cumulative[index] - below)), lower, upper)
