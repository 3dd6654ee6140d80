"""SLO: the budget of one objective, as numbers and by server."""

from typing import Final

from alerts.generate.slo import BURNS, Objective
from dashboards.generate.boards.slo.queries import (
    BUDGET_SHARE_OF_LONGEST_WINDOW,
    NO_TRAFFIC,
    NOT_SCRAPED,
    count_decimals,
    format_title,
    query_budget_spent,
    query_burn_rate,
    query_rate,
    query_slow_share,
    query_tier,
)
from dashboards.generate.boards.slo.thresholds import (
    BUDGET_SPENT,
    FASTEST_FACTOR,
    PAGING_FACTOR,
    build_burn_thresholds,
    build_share_thresholds,
    to_property,
)
from dashboards.generate.model import TIMES, Column, Override, Panel, Query, Stat, Table

_SHARE_WINDOWS: Final = tuple(dict.fromkeys(burn.long for burn in (BURNS[0], BURNS[1], BURNS[-1])))
"""Windows over which the share in time is shown."""


def build_budget(objective: Objective) -> tuple[Panel, ...]:
    """Share in time, burn rates and budget of one objective."""
    title = format_title(objective)
    return (
        Stat(
            title=f"{title} in time",
            description=(
                f"Share of the {objective.title} that took no longer than {objective.seconds:g} s, of the server that is worst, over "
                f"three windows. Green from {100 * objective.objective:g} % on, the objective; yellow below; red where the budget is spent "
                f"{FASTEST_FACTOR} times too fast. A server with fewer than {objective.minimum} in a window is left out of it. Low in the "
                "shortest window alone: something is wrong now, see the board Saturation. Low in the longest: the server is too "
                "small for what is asked of it, or the objective too strict."
            ),
            queries=tuple(
                Query(f"1 - max({query_slow_share(objective, window, window)})", f"last {window}")
                for window in _SHARE_WINDOWS
            ),
            width=8,
            height=4,
            unit="percentunit",
            decimals=count_decimals(objective),
            thresholds=build_share_thresholds(objective),
            no_value=NO_TRAFFIC,
            show_names=True,
        ),
        Stat(
            title=f"{title}: burn rates",
            description=(
                "How many times faster than it lasts the budget of 30 days is spent, of the server that is worst; 1 spends it in 30 "
                "days exactly. One number for each alert: the lower of its two windows, since both have to be above its factor: "
                + ", ".join(f"{burn.factor} over {burn.long} and {burn.short}" for burn in BURNS)
                + ". Red pages when it lasts, yellow becomes a ticket."
            ),
            queries=tuple(
                Query(query_tier(objective, burn), f"{burn.long}, {burn.short}", ref_id=f"tier{burn.long}")
                for burn in BURNS
            ),
            width=9,
            height=4,
            unit=TIMES,
            decimals=1,
            no_value=NO_TRAFFIC,
            show_names=True,
            overrides=tuple(
                Override({"thresholds": to_property(build_burn_thresholds(burn))}, by_query=f"tier{burn.long}")
                for burn in BURNS
            ),
        ),
        Stat(
            title=f"{title}: budget, {BURNS[-1].long}",
            description=(
                f"The part of the budget of 30 days that the last {BURNS[-1].long} have used, of the server that is worst, were the "
                f"traffic of all days alike. Up to {100 * BUDGET_SHARE_OF_LONGEST_WINDOW:g} % it lasts; from there on it ends before the month does, red from "
                f"the pace on that pages, {PAGING_FACTOR:g} times too fast; at 100 % it is gone. While little is left, change nothing but "
                "what makes the server faster."
            ),
            queries=(Query(f"max({query_budget_spent(objective)})"),),
            width=7,
            height=4,
            unit="percentunit",
            decimals=1,
            thresholds=BUDGET_SPENT,
            no_value=NO_TRAFFIC,
        ),
        _build_servers(objective),
    )


def _build_servers(objective: Objective) -> Table:
    tiers = [
        (f"tier{index}{window}", window, burn) for index, burn in enumerate(BURNS) for window in (burn.long, burn.short)
    ]
    in_time = tuple(
        Column(
            f"good{window}",
            f"in time, {window}",
            unit="percentunit",
            decimals=count_decimals(objective),
            width=100,
            thresholds=build_share_thresholds(objective),
        )
        for window in _SHARE_WINDOWS
    )
    burning = tuple(
        Column(name, f"{window} / {burn.factor}", decimals=1, width=80, thresholds=build_burn_thresholds(burn))
        for name, window, burn in tiers
    )
    return Table(
        title=f"{format_title(objective)} by server",
        description=(
            "A row for each engine of each server. In time: green at the objective or above, yellow below, red "
            f"where the budget is spent {FASTEST_FACTOR} times too fast. Replicas behind one address count by their traffic. Then burn rates by pairs of windows, each "
            "with the factor from which on it is coloured, such as 1h / 14.4; an alert fires when both of a pair are coloured for long "
            "enough, red pages and yellow is a ticket. A pair is empty while its long window has too few observations. Spent: the "
            "part of the budget of 30 days."
        ),
        queries=(
            Query(query_rate(objective), ref_id="rate"),
            *(
                Query(f"1 - {query_slow_share(objective, window, window)}", ref_id=f"good{window}")
                for window in _SHARE_WINDOWS
            ),
            *(Query(query_burn_rate(objective, window, burn.long), ref_id=name) for name, window, burn in tiers),
            Query(query_budget_spent(objective), ref_id="spent"),
        ),
        columns=(
            Column("instance", "Instance"),
            Column("model_name", "Model"),
            Column("engine", "Engine", width=65),
            Column("rate", "per second", decimals=2, width=90),
            *in_time,
            *burning,
            Column(
                "spent", f"spent, {BURNS[-1].long}", unit="percentunit", decimals=1, width=90, thresholds=BUDGET_SPENT
            ),
        ),
        width=24,
        height=5,
        no_value=NOT_SCRAPED,
    )
