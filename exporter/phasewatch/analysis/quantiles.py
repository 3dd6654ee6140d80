"""Quantiles of a cumulative histogram: those of Prometheus' `histogram_quantile`, except in the first bucket.

Inside the histogram the value is interpolated linearly between the bounds of the bucket that holds the rank. In the
first bucket Prometheus interpolates from 0, which invents a value: if a server decodes at 4 ms and the first bucket
ends at 10 ms (vLLM 0.8 to 0.32), all observations are in it. There the upper bound is returned instead ("at most"). In
the last bucket, which has no upper bound, both return the lower bound ("at least").
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Quantile:
    """One quantile and the bounds of the bucket that holds it. `upper_bound` is None in the last bucket."""

    value: float
    lower_bound: float
    upper_bound: float | None


def compute_quantile(quantile: float, upper_bounds: Sequence[float], cumulative: Sequence[float]) -> Quantile | None:
    """One quantile of a cumulative histogram.

    Args:
        quantile: its order, above 0, at most 1.
        upper_bounds: upper bounds of the buckets in ascending order, the last one infinite.
        cumulative: number of observations up to each bound.

    Returns:
        The quantile; None for a histogram without observations or without a finite bound.
    """
    if len(upper_bounds) < 2 or upper_bounds[-1] != inf or cumulative[-1] <= 0:  # noqa: PLR2004  # one finite bound and +Inf
        return None
    rank = quantile * cumulative[-1]
    index = bisect.bisect_left(cumulative, rank)
    if index >= len(upper_bounds) - 1:
        return Quantile(upper_bounds[-2], upper_bounds[-2], None)
    upper_bound = upper_bounds[index]
    if index == 0:
        return Quantile(upper_bound, 0.0, upper_bound)
    lower_bound = upper_bounds[index - 1]
    below = cumulative[index - 1]
    share = (rank - below) / (cumulative[index] - below)
    return Quantile(lower_bound + (upper_bound - lower_bound) * share, lower_bound, upper_bound)
