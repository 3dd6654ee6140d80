"""Quantiles: Prometheus' own inside the histogram, honest at its ends."""

import json
import subprocess
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.quantiles import QUANTILES, compute_quantile
from tests.support.processes import needs

EDGES = (0.01, 0.1, 1.0, inf)


def test_a_quantile_in_the_first_bucket_is_its_upper_edge() -> None:
    found = compute_quantile(0.99, EDGES, (100, 100, 100, 100))
    assert found is not None
    assert (found.value, found.lower_bound, found.upper_bound) == (0.01, 0, 0.01)


def test_a_quantile_in_the_last_bucket_is_its_lower_edge_and_has_no_upper_one() -> None:
    found = compute_quantile(0.99, EDGES, (0, 0, 1, 100))
    assert found is not None
    assert (found.value, found.lower_bound, found.upper_bound) == (1.0, 1.0, None)


def test_a_quantile_inside_is_interpolated_between_the_edges_of_its_bucket() -> None:
    found = compute_quantile(0.5, EDGES, (10, 30, 40, 40))
    assert found is not None
    assert (found.lower_bound, found.upper_bound) == (0.01, 0.1)
    assert found.value == pytest.approx(0.01 + 0.09 * (20 - 10) / 20, rel=1e-12)


@pytest.mark.parametrize(
    ("edges", "cumulative"), [((), ()), ((inf,), (5,)), (EDGES, (0, 0, 0, 0)), ((0.01, 0.1), (1, 2))]
)
def test_a_histogram_that_tells_nothing_has_no_quantile(
    edges: tuple[float, ...], cumulative: tuple[float, ...]
) -> None:
    assert compute_quantile(0.5, edges, cumulative) is None


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any), st.sampled_from(QUANTILES))
def test_a_quantile_lies_between_the_edges_of_its_bucket(counts: list[int], order: float) -> None:
    cumulative = [float(sum(counts[: index + 1])) for index in range(4)]
    found = compute_quantile(order, EDGES, cumulative)
    assert found is not None
    assert found.lower_bound <= found.value <= (inf if found.upper_bound is None else found.upper_bound)


COUNTS = [(3, 40, 7, 0), (0, 0, 50, 1), (0, 5, 5, 90), (1, 1, 1, 1), (0, 1, 0, 0), (7, 900, 33, 2)]


@needs("promtool")
def test_inside_the_histogram_every_quantile_is_the_one_that_prometheus_computes(tmp_path: Path) -> None:
    series: list[dict[str, object]] = []
    checks: list[dict[str, object]] = []
    for number, counts in enumerate(COUNTS):
        cumulative = [float(sum(counts[: index + 1])) for index in range(4)]
        for edge, value in zip(EDGES, cumulative, strict=True):
            le = "+Inf" if edge == inf else str(edge)
            series.append({"series": f'x_bucket{{n="{number}",le="{le}"}}', "values": str(value)})
        for order in QUANTILES:
            found = compute_quantile(order, EDGES, cumulative)
            assert found is not None
            if found.lower_bound > 0:
                theirs = f'histogram_quantile({order}, x_bucket{{n="{number}"}})'
                expected = [{"labels": f'{{n="{number}"}}', "value": 1}]
                expression = f"abs({theirs} - {found.value!r}) < bool 1e-9"
                checks.append({"expr": expression, "eval_time": "0m", "exp_samples": expected})
    assert len(checks) > 15
    test = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}]}
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    subprocess.run(["promtool", "test", "rules", file], check=True, capture_output=True, timeout=60)
