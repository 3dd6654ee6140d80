"""Whether users are served within the objectives of a target, from the quantiles that its alerts compare.

A quantile decides where its bucket allows it. In the first bucket it is "at most" the upper edge, which decides nothing
about an objective inside that bucket; in the last one it is "at least" the lower edge, which decides nothing about an
objective beyond it. Between two edges the interpolated value decides, as it does for the alerts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.quantiles import Quantile
from phasewatch.base.optional import divide, multiply
from phasewatch.config.settings import ObjectiveSettings

P99_OUTPUTS: Final = 200.0
"""Outputs per minute from which the 99th percentile of inter-token latency decides."""

P50_OUTPUTS: Final = 30.0
"""Outputs per minute from which its median decides, which finds a server too slow to put out more."""


class Objective(StrEnum):
    """What an objective is about: the `objective` label of `llm_objective_met`."""

    INTER_TOKEN_LATENCY = "inter_token_latency"  # noqa: S105  # a label
    TIME_TO_FIRST_TOKEN = "time_to_first_token"  # noqa: S105  # a label
    DECODE_TOKENS_PER_SECOND = "decode_tokens_per_second"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an objective is met over the window.

    Attributes:
        met: whether it is.
        value: the figure that decided: seconds of a latency, or tokens per second of a stream.
        objective: what it is compared with, in the same unit.
        order: order of the quantile that decided (0 to 1); None for a mean.
    """

    met: bool
    value: float
    objective: float
    order: float | None = None


def judge_objectives(latencies: Latencies, phases: Phases, settings: ObjectiveSettings) -> Mapping[Objective, Verdict]:
    """The objectives that the window decides; without traffic none.

    Args:
        latencies: latencies over the window.
        phases: both phases over the window.
        settings: the objectives of the target.
    """
    verdicts = {
        Objective.INTER_TOKEN_LATENCY: _judge_inter_token(latencies.inter_token, phases, settings.inter_token_latency),
        Objective.TIME_TO_FIRST_TOKEN: _judge_quantile(
            latencies.time_to_first_token, 0.95, settings.time_to_first_token
        ),
        Objective.DECODE_TOKENS_PER_SECOND: _judge_speed(
            phases.decode_tokens_per_second, settings.decode_tokens_per_second
        ),
    }
    return {objective: verdict for objective, verdict in verdicts.items() if verdict is not None}


def _judge_inter_token(latency: Distribution, phases: Phases, objective: float) -> Verdict | None:
    """As the alert: the 99th percentile of many outputs, or the median of few, misses the objective."""
    outputs = multiply(60.0, divide(phases.decode_throughput_tokens_per_second, phases.tokens_per_step))
    orders = [order for order, least in ((0.99, P99_OUTPUTS), (0.5, P50_OUTPUTS)) if (outputs or 0.0) >= least]
    verdicts = [_judge_quantile(latency, order, objective) for order in orders]
    missed = (verdict for verdict in verdicts if verdict is not None and not verdict.met)
    return next(missed, verdicts[0] if verdicts else None)


def _judge_quantile(latency: Distribution, order: float, objective: float) -> Verdict | None:
    quantile = dict(latency.quantiles).get(order)
    if quantile is None or not _decides(quantile, objective):
        return None
    return Verdict(quantile.value <= objective, quantile.value, objective, order)


def _decides(quantile: Quantile, objective: float) -> bool:
    """Whether a quantile is on one side of an objective for certain, or interpolated between two edges."""
    if quantile.upper_bound is None:
        return quantile.lower_bound > objective
    return quantile.lower_bound > 0 or quantile.upper_bound <= objective


def _judge_speed(speed: float | None, objective: float | None) -> Verdict | None:
    return None if speed is None or objective is None else Verdict(speed >= objective, speed, objective)
