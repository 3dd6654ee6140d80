"""SLO: burn rates, latencies and traffic of one objective over time."""

from alerts.generate.slo import BURNS, WINDOWS, Objective
from dashboards.generate.boards.slo.queries import (
    NOT_SCRAPED,
    SCRAPE_INTERVAL,
    SERVER_LEGEND,
    format_title,
    query_buckets,
    query_fastest_burn_rate,
    query_rate,
)
from dashboards.generate.boards.slo.thresholds import build_factor_thresholds
from dashboards.generate.model import TIMES, Heatmap, Override, Panel, Query, TimeSeries


def build_burn_rates(objective: Objective) -> TimeSeries:
    """Burn rates of one objective over time, by window."""
    return TimeSeries(
        title=f"Burn rate of {objective.title}",
        description=(
            "How many times faster than it lasts the budget is spent, by window, of the server that is worst. Dashed are the factors "
            "of the alerts: "
            + ", ".join(f"{burn.factor} ({burn.long} and {burn.short})" for burn in BURNS)
            + ". Below 1 the "
            "budget lasts. Short windows jump where there is little traffic; no alert looks at one of them alone. As in the alerts, a "
            f"server with fewer than {objective.minimum} {objective.title} in the long window is left out."
        ),
        queries=tuple(Query(query_fastest_burn_rate(objective, window), window) for window in WINDOWS),
        width=12,
        height=9,
        unit=TIMES,
        minimum=0,
        thresholds=build_factor_thresholds(),
        show_thresholds=True,
        no_value=NOT_SCRAPED,
        overrides=(Override({"custom.fillOpacity": 0}, by_regexp=".+"),),
    )


def build_latencies(objective: Objective) -> tuple[Panel, ...]:
    """Distribution of the latency and number of observations over time."""
    return (
        Heatmap(
            title=f"How long {objective.title} took",
            description=(
                f"Each column is a moment, each cell one bucket of vLLM's histogram; the brighter, the more. What lies above "
                f"{objective.seconds:g} s is late. Two bands apart are two kinds of requests, or stalls: see the state on the board "
                "Saturation at that time."
            ),
            queries=(Query(query_buckets(objective), min_interval=SCRAPE_INTERVAL),),
            width=16,
            height=9,
            unit="s",
            no_value=NOT_SCRAPED,
        ),
        TimeSeries(
            title=f"{format_title(objective)} per second",
            description=(
                f"What the shares are made of: {objective.title} of each engine per second, over five minutes. Where this is near 0 a "
                f"share says little; an alert asks for {objective.minimum} in its long window."
            ),
            queries=(Query(query_rate(objective), SERVER_LEGEND),),
            width=8,
            height=9,
            minimum=0,
            no_value=NOT_SCRAPED,
        ),
    )
