"""SLO: PromQL on the recordings of the objectives' alert rules, and texts that several parts of the dashboard share."""

from decimal import Decimal
from typing import Final

from alerts.generate.slo import BURNS, SLOW_WINDOWS, WINDOWS, Burn, Objective, count_seconds, name_recording
from dashboards.generate.model import RATE_INTERVAL
from dashboards.generate.queries import EXPORTER_MATCHERS
from phasewatch.backends.vllm.metric_names import PREFIXES

BUDGET_DAYS: Final = 30
_DAY_SECONDS: Final = 86_400

SERVER_MATCHERS: Final = f'{EXPORTER_MATCHERS}, model_name=~"$model_name", engine=~"$engine"'
"""Job and instance are those of vLLM itself."""
_BY_SERVER: Final = "job, instance, model_name, engine"
SERVER_LEGEND: Final = "{{instance}} {{model_name}} {{engine}}"

SCRAPE_INTERVAL: Final = "15s"
"""Of vLLM itself, which Prometheus scrapes less often than PhaseWatch: alerts/prometheus.yml."""

NO_TRAFFIC: Final = "vLLM itself is not scraped, or has too little traffic"
NOT_SCRAPED: Final = (
    "Prometheus does not scrape vLLM itself, or there is too little traffic: docs/alerts.md, Install and Objectives"
)


def format_title(objective: Objective) -> str:
    """What an objective is about, as the beginning of a title."""
    return objective.title.capitalize()


BUDGET_SHARE_OF_LONGEST_WINDOW: Final = count_seconds(BURNS[-1].long) / _DAY_SECONDS / BUDGET_DAYS
"""Share of the budget that the longest window spends at a burn rate of 1."""


def _compute_budget(objective: Objective) -> Decimal:
    """The share that may be late."""
    return 1 - Decimal(str(objective.objective))


def compute_share_in_time(objective: Objective, burn_rate: Decimal) -> float:
    """The share in time at a burn rate."""
    return float(1 - burn_rate * _compute_budget(objective))


def count_decimals(objective: Objective) -> int:
    """Decimal places that make 1 % of the error budget visible: 2 for 99 %, 3 for 99.9 %."""
    return -_compute_budget(objective).adjusted()


def _select_recording(objective: Objective, kind: str, window: str) -> str:
    """A recording of the chosen servers; recordings that are computed every other minute keep their last value."""
    selector = f"{name_recording(objective, kind, window)}{{{SERVER_MATCHERS}}}"
    return f"last_over_time({selector}[5m])" if window in SLOW_WINDOWS else selector


def query_rate(objective: Objective) -> str:
    """PromQL: observations per second of each server over the shortest window."""
    return f"sum by ({_BY_SERVER}) ({_select_recording(objective, 'rate', WINDOWS[0])})"


def query_slow_share(objective: Objective, window: str, long_window: str) -> str:
    """PromQL: share that was late in a window, of servers with enough observations in the long window of its tier.

    As in the alerts, each recording needs enough observations, so one of a replica without traffic is left out. The
    recordings of one server are weighted by their rates.
    """
    slow_ratio = _select_recording(objective, "slow_ratio", window)
    per_second = _select_recording(objective, "rate", window)
    observations = f"{_select_recording(objective, 'rate', long_window)} * {count_seconds(long_window)}"
    weight = f"({per_second} and {slow_ratio} and {observations} >= {objective.minimum})"
    return f"(sum by ({_BY_SERVER}) ({slow_ratio} * {weight})\n  / (sum by ({_BY_SERVER}) {weight} > 0))"


def query_burn_rate(objective: Objective, window: str, long_window: str) -> str:
    """PromQL: burn rate in a window, which is the share that was late / the share that may be.

    Only of servers with enough observations in the long window of its tier.
    """
    return f"{query_slow_share(objective, window, long_window)} / {float(_compute_budget(objective)):g}"


def query_fastest_burn_rate(objective: Objective, window: str) -> str:
    """PromQL: burn rate of the worst server over a window of any tier."""
    long_windows = {**{burn.short: burn.long for burn in BURNS}, **{burn.long: burn.long for burn in BURNS}}
    return f"max({query_burn_rate(objective, window, long_windows[window])})"


def query_budget_spent(objective: Objective) -> str:
    """PromQL: share of the budget that the longest window has spent, if all days were like these."""
    window = BURNS[-1].long
    return f"{query_burn_rate(objective, window, window)} * {BUDGET_SHARE_OF_LONGEST_WINDOW:g}"


def query_tier(objective: Objective, burn: Burn) -> str:
    """PromQL: the lower burn rate of a tier's two windows, of the worst server; 0 if the short window has no value.

    A tier fires when both of its windows are above its factor, so the lower one counts.
    """
    long = query_burn_rate(objective, burn.long, burn.long)
    short = query_burn_rate(objective, burn.short, burn.long)
    return f"max(\n  {long} <= {short}\n  or {short}\n  or 0 * {long}\n)"


def query_buckets(objective: Objective) -> str:
    """PromQL: buckets of vLLM's own histogram by upper bound, all servers together."""
    # Servers use one of several names, and a fleet may use all: they are joined before they are summed.
    names = [f"{prefix}{histogram}_bucket" for histogram in objective.histograms for prefix in PREFIXES]
    rates = "\n  or ".join(f"rate({name}{{{SERVER_MATCHERS}}}[{RATE_INTERVAL}])" for name in names)
    # Versions of vLLM and Prometheus write 5 or 5.0. One server may have both for a while, and relabelling `le` itself
    # would make them duplicates.
    bounds = f'sum by (edge) (label_replace(\n  {rates},\n  "edge", "$1", "le", "(.+?)([.]0)?"))'
    return f'sum by (le) (label_replace({bounds}, "le", "$1", "edge", "(.+)"))'
