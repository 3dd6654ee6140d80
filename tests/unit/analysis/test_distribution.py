"""A distribution: quantiles over the window, and the server's own totals, which outlast it."""

from math import inf

from phasewatch.analysis.distribution import UNOBSERVED, Distribution, compute_distribution
from phasewatch.analysis.quantiles import Quantile
from phasewatch.analysis.samples import Histogram

GROWTH = Histogram(6.0, 4, (1.0, 2.0, inf), (0, 4, 4))
NEWEST = Histogram(106.0, 44, (1.0, 2.0, inf), (40, 44, 44))


def test_quantiles_and_mean_are_of_the_window_and_sum_and_count_of_the_server() -> None:
    distribution = compute_distribution(GROWTH, NEWEST)
    assert (distribution.mean, distribution.sum, distribution.count) == (1.5, 106, 44)
    assert distribution.quantiles[0] == (0.5, Quantile(1.5, 1.0, 2.0))


def test_without_observations_in_the_window_only_the_totals_are_known() -> None:
    quiet = Histogram(0.0, 0, GROWTH.upper_bounds, (0, 0, 0))
    for growth in (quiet, None):
        assert compute_distribution(growth, NEWEST) == Distribution(sum=106, count=44), growth


def test_a_histogram_that_the_server_does_not_have_has_no_totals_either() -> None:
    assert compute_distribution(None, None) == UNOBSERVED


def test_a_sum_with_an_impossible_observation_is_unknown_and_the_count_is_not() -> None:
    assert compute_distribution(GROWTH, NEWEST, sum_is_known=False).sum is None
    negative = compute_distribution(None, Histogram(-1900.0, 5))
    assert (negative.sum, negative.count) == (None, 5)
