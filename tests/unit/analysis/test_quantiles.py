"""Quantiles: those of Prometheus, except in the first bucket."""

import json
import subprocess
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.quantiles import QUANTILES, compute_quantile
from tests.support.processes import needs

UPPER_BOUNDS = (0.01, 0.1, 1.0, inf)


def test_a_quantile_in_the_first_bucket_is_its_upper_bound() -> None:
    quantile = compute_quantile(0.99, UPPER_BOUNDS, (100, 100, 100, 100))
    assert quantile is not None
    assert (quantile.value, quantile.lower_bound, quantile.upper_bound) == (0.01, 0, 0.01)


def test_a_quantile_in_the_last_bucket_is_its_lower_bound_and_has_no_upper_one() -> None:
    quantile = compute_quantile(0.99, UPPER_BOUNDS, (0, 0, 1, 100))
    assert quantile is not None
    assert (quantile.value, quantile.lower_bound, quantile.upper_bound) == (1.0, 1.0, None)


def test_a_quantile_in_between_is_interpolated_between_the_bounds_of_its_bucket() -> None:
    quantile = compute_quantile(0.5, UPPER_BOUNDS, (10, 30, 40, 40))
    assert quantile is not None
    assert (quantile.lower_bound, quantile.upper_bound) == (0.01, 0.1)
    assert quantile.value == pytest.approx(0.01 + 0.09 * (20 - 10) / 20, rel=1e-12)


def test_a_histogram_without_observations_or_bounds_has_no_quantile() -> None:
    rows: list[tuple[tuple[float, ...], tuple[float, ...]]] = [
        ((), ()),
        ((inf,), (5,)),
        (UPPER_BOUNDS, (0, 0, 0, 0)),
        ((0.01, 0.1), (1, 2)),
    ]
    for upper_bounds, cumulative in rows:
        assert compute_quantile(0.5, upper_bounds, cumulative) is None, upper_bounds


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any), st.sampled_from(QUANTILES))
def test_a_quantile_lies_between_the_bounds_of_its_bucket(counts: list[int], order: float) -> None:
    cumulative = [float(sum(counts[: index + 1])) for index in range(4)]
    quantile = compute_quantile(order, UPPER_BOUNDS, cumulative)
    assert quantile is not None
    assert quantile.lower_bound <= quantile.value <= (inf if quantile.upper_bound is None else quantile.upper_bound)


COUNTS = [(3, 40, 7, 0), (0, 0, 50, 1), (0, 5, 5, 90), (1, 1, 1, 1), (0, 1, 0, 0), (7, 900, 33, 2)]


@needs("promtool")
def test_quantiles_outside_the_first_bucket_are_those_of_prometheus(tmp_path: Path) -> None:
    series: list[dict[str, object]] = []
    checks: list[dict[str, object]] = []
    for number, counts in enumerate(COUNTS):
        cumulative = [float(sum(counts[: index + 1])) for index in range(4)]
        for bound, value in zip(UPPER_BOUNDS, cumulative, strict=True):
            le = "+Inf" if bound == inf else str(bound)
            series.append({"series": f'x_bucket{{n="{number}",le="{le}"}}', "values": str(value)})
        for order in QUANTILES:
            quantile = compute_quantile(order, UPPER_BOUNDS, cumulative)
            assert quantile is not None
            if quantile.lower_bound > 0:
                theirs = f'histogram_quantile({order}, x_bucket{{n="{number}"}})'
                expected = [{"labels": f'{{n="{number}"}}', "value": 1}]
                expression = f"abs({theirs} - {quantile.value!r}) < bool 1e-9"
                checks.append({"expr": expression, "eval_time": "0m", "exp_samples": expected})
    assert len(checks) > 15
    test = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}]}
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    subprocess.run(["promtool", "test", "rules", file], check=True, capture_output=True, timeout=60)
