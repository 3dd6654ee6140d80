"""Distribution of a quantity over the window, from a histogram of the server: mean, quantiles, and its own totals."""

from dataclasses import dataclass
from typing import Final

from phasewatch.analysis.quantiles import QUANTILES, Quantile, compute_quantile
from phasewatch.analysis.samples import Histogram


@dataclass(frozen=True, slots=True)
class Distribution:
    """One distributed quantity of one engine, in the unit of its histogram.

    Attributes:
        mean: mean over the window; None without observations.
        quantiles: quantiles over the window with their order (0 to 1); empty without observations.
        sum: sum of all observations since the server started; None where it is not known, or wrong.
        count: number of all observations since the server started.
    """

    mean: float | None = None
    quantiles: tuple[tuple[float, Quantile], ...] = ()
    sum: float | None = None
    count: float | None = None


UNOBSERVED: Final = Distribution()
"""A quantity of which nothing is known."""


def compute_distribution(
    growth: Histogram | None, newest: Histogram | None, *, sum_is_known: bool = True
) -> Distribution:
    """The distribution of the observations in a window.

    Args:
        growth: what was added to the histogram in the window; None where that is not known.
        newest: the histogram on the newest page; None if the page does not have it.
        sum_is_known: whether the sum on the newest page is free of impossible observations. A negative one never is.
    """
    total = newest.sum if newest is not None and sum_is_known and newest.sum >= 0 else None
    count = newest.count if newest is not None else None
    if growth is None or growth.count <= 0:
        return Distribution(sum=total, count=count)
    quantiles = ((order, compute_quantile(order, growth.upper_bounds, growth.cumulative)) for order in QUANTILES)
    return Distribution(
        mean=growth.sum / growth.count,
        quantiles=tuple((order, quantile) for order, quantile in quantiles if quantile is not None),
        sum=total,
        count=count,
    )
