"""Objectives: decided by the quantiles that the alerts compare, and only where those can decide."""

from typing import Final

import pytest

from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.objectives import P50_OUTPUTS, P99_OUTPUTS, Objective, Verdict, judge_objectives
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.quantiles import Quantile
from phasewatch.config.settings import ObjectiveSettings

SETTINGS: Final = ObjectiveSettings(0.3, 2.5, None)
BUSY: Final = Phases(decode_throughput_tokens_per_second=40.0, tokens_per_step=1.0)
FIRST: Final = Quantile(0.01, 0.0, 0.01)
LAST: Final = Quantile(80.0, 80.0, None)


def judge(
    p99: Quantile | None, p50: Quantile | None = None, phases: Phases = BUSY, objective: float = 0.3
) -> bool | None:
    quantiles = tuple((order, quantile) for order, quantile in ((0.5, p50), (0.99, p99)) if quantile is not None)
    latencies = Latencies(inter_token=Distribution(0.05, quantiles))
    settings = ObjectiveSettings(objective, 2.5, None)
    verdict = judge_objectives(latencies, phases, settings).get(Objective.INTER_TOKEN_LATENCY)
    return None if verdict is None else verdict.met


def test_without_traffic_nothing_is_decided() -> None:
    assert judge_objectives(Latencies(), Phases(), SETTINGS) == {}
    assert judge_objectives(Latencies(), Phases(decode_throughput_tokens_per_second=0.0), SETTINGS) == {}


def test_a_quantile_is_held_against_its_objective() -> None:
    for quantile, met in (
        (Quantile(0.29, 0.2, 0.3), True),
        (Quantile(0.3, 0.2, 0.3), True),
        (Quantile(0.31, 0.3, 0.4), False),
    ):
        assert judge(quantile) is met, quantile


def test_between_two_edges_the_interpolated_value_decides() -> None:
    assert judge(Quantile(0.34, 0.3, 0.4), objective=0.35) is True
    assert judge(Quantile(0.36, 0.3, 0.4), objective=0.35) is False


def test_the_first_bucket_meets_what_is_beyond_it_and_decides_nothing_within() -> None:
    assert judge(FIRST) is True
    assert judge(FIRST, objective=0.01) is True
    assert judge(FIRST, objective=0.005) is None


def test_the_last_bucket_misses_what_is_before_it_and_decides_nothing_beyond() -> None:
    assert judge(LAST) is False
    assert judge(LAST, objective=100.0) is None


def test_of_few_outputs_the_median_decides_and_of_fewer_nothing() -> None:
    slow, fast = Quantile(0.9, 0.75, 1.0), Quantile(0.05, 0.025, 0.05)
    for outputs, p99, p50, met in (
        (P99_OUTPUTS, slow, fast, False),
        (P99_OUTPUTS - 1, slow, fast, True),
        (P50_OUTPUTS, slow, slow, False),
        (P50_OUTPUTS - 1, slow, slow, None),
    ):
        phases = Phases(decode_throughput_tokens_per_second=3 * outputs / 60, tokens_per_step=3.0)
        assert judge(p99, p50, phases) is met, (outputs, p50)


def test_a_slow_median_misses_the_objective_whatever_the_99th_percentile_can_say() -> None:
    assert judge(FIRST, Quantile(0.9, 0.75, 1.0), objective=0.005) is False


def test_the_first_token_is_judged_by_its_95th_percentile() -> None:
    for p95, met in ((Quantile(2.4, 1.0, 2.5), True), (Quantile(2.6, 2.5, 5.0), False)):
        latencies = Latencies(time_to_first_token=Distribution(1.0, ((0.95, p95), (0.99, LAST))))
        assert judge_objectives(latencies, Phases(), SETTINGS) == {
            Objective.TIME_TO_FIRST_TOKEN: Verdict(met, p95.value, 2.5, 0.95)
        }


@pytest.mark.parametrize(("speed", "met"), [(20.0, True), (19.9, False)])
def test_the_speed_of_a_stream_is_judged_where_an_objective_is_set(speed: float, met: bool) -> None:
    phases = Phases(decode_tokens_per_second=speed)
    assert judge_objectives(Latencies(), phases, ObjectiveSettings(0.3, 2.5, 20.0)) == {
        Objective.DECODE_TOKENS_PER_SECOND: Verdict(met, speed, 20.0)
    }
    assert judge_objectives(Latencies(), phases, SETTINGS) == {}
