"""PromQL about objectives: the recordings of their alert rules, of the servers that the board SLO is about."""

from decimal import Decimal
from typing import Final

from alerts.generate.slo import BURNS, SLOW_WINDOWS, WINDOWS, Burn, Objective
from phasewatch.backends.vllm.metric_names import PREFIXES

BUDGET_DAYS: Final = 30
_DAY_SECONDS: Final = 86_400
_SECONDS: Final = {"m": 60, "h": 3600, "d": _DAY_SECONDS}

OF_SERVER: Final = 'job=~"$job", instance=~"$instance", model_name=~"$model_name", engine=~"$engine"'
BY: Final = "job, instance, model_name, engine"

SPACING: Final = "15s"
"""How often Prometheus scrapes vLLM itself, more rarely than PhaseWatch: alerts/prometheus.yml."""


def _seconds(window: str) -> int:
    return int(window[:-1]) * _SECONDS[window[-1]]


PER_FACTOR: Final = _seconds(BURNS[-1].long) / _DAY_SECONDS / BUDGET_DAYS
"""The part of the budget that the longest window spends at a burn rate of 1."""


def budget(objective: Objective) -> float:
    """The share that may be late."""
    return float(_budget(objective))


def _budget(objective: Objective) -> Decimal:
    return 1 - Decimal(str(objective.objective))


def share(objective: Objective, factor: Decimal) -> float:
    """The share in time at a burn rate."""
    return float(1 - factor * _budget(objective))


def decimals(objective: Objective) -> int:
    """How many a percentage needs, so that a hundredth of the budget is seen: two for 99 %, three for 99.9 %."""
    return -_budget(objective).adjusted()


def recorded(objective: Objective, what: str, window: str) -> str:
    """The name of a recording of the alert rules: `rate` of observations, or `slow_ratio` of them."""
    return f"phasewatch_slo:{objective.name}{'' if what == 'rate' else '_' + what}:rate{window}"


def _newest(objective: Objective, what: str, window: str) -> str:
    """A recording of the chosen servers; of windows that are computed every other minute the last one."""
    found = f"{recorded(objective, what, window)}{{{OF_SERVER}}}"
    return f"last_over_time({found}[5m])" if window in SLOW_WINDOWS else found


def rate(objective: Objective) -> str:
    """Observations per second of each server over the shortest window."""
    return f"sum by ({BY}) ({_newest(objective, 'rate', WINDOWS[0])})"


def slow(objective: Objective, window: str, long: str) -> str:
    """The share that was late in a window, of servers with enough observations in the long window of its tier.

    As in the alerts, enough is asked of each recording: one of a replica without traffic is left out. Those of one
    server count by their rates.
    """
    ratio, per_second = _newest(objective, "slow_ratio", window), _newest(objective, "rate", window)
    enough = f"{_newest(objective, 'rate', long)} * {_seconds(long)} >= {objective.minimum}"
    weight = f"({per_second} and {ratio} and {enough})"
    return f"(sum by ({BY}) ({ratio} * {weight})\n  / (sum by ({BY}) {weight} > 0))"


def told(objective: Objective, window: str) -> str:
    """The share that was late, of servers with enough observations to say so."""
    return slow(objective, window, window)


def burn_rate(objective: Objective, window: str, long: str) -> str:
    """How many times faster than it lasts the budget is spent, where the long window of its tier says anything."""
    return f"{slow(objective, window, long)} / {budget(objective):g}"


def fastest(objective: Objective, window: str) -> str:
    """The burn rate of the server that is worst, over a window of any tier."""
    long = {**{burn.short: burn.long for burn in BURNS}, **{burn.long: burn.long for burn in BURNS}}[window]
    return f"max({burn_rate(objective, window, long)})"


def spent(objective: Objective) -> str:
    """The part of the budget that the longest window has spent, were all days like these."""
    window = BURNS[-1].long
    return f"{told(objective, window)} / {budget(objective):g} * {PER_FACTOR:g}"


def worst(objective: Objective, burn: Burn) -> str:
    """A tier fires when both of its windows are above its factor, so the lower of the two counts; 0 in a silent short one."""
    long, short = burn_rate(objective, burn.long, burn.long), burn_rate(objective, burn.short, burn.long)
    return f"max(\n  {long} <= {short}\n  or {short}\n  or 0 * {long}\n)"


def buckets(objective: Objective) -> str:
    """The buckets of vLLM's own histogram by their edge, of all servers together."""
    # Inside one sum: a server has one of the names, and a fleet several.
    named = [f"{prefix}{histogram}_bucket" for histogram in objective.histograms for prefix in PREFIXES]
    rates = "\n  or ".join(f"rate({name}{{{OF_SERVER}}}[$__rate_interval])" for name in named)
    # Servers and versions of Prometheus write 5 or 5.0. A server may have both for a while, which only a new label can hold.
    edges = f'sum by (edge) (label_replace(\n  {rates},\n  "edge", "$1", "le", "(.+?)([.]0)?"))'
    return f'sum by (le) (label_replace({edges}, "le", "$1", "edge", "(.+)"))'
