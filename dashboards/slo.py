"""SLO: how fast the budgets of the objectives are spent, from vLLM's own histograms.

Everything about the objectives is read from alerts/objectives.yml, and windows and factors are those of the alerts.
"""

from collections.abc import Mapping
from typing import Final

from alerts.generate.slo import BURNS, OBJECTIVES, WINDOWS, Burn, Objective, read_objectives
from dashboards.common import BAD, CARE, GOOD, NEUTRAL, board
from dashboards.panels import (
    Board,
    Column,
    Heatmap,
    Lines,
    Override,
    Panel,
    Query,
    Section,
    Steps,
    Table,
    Tile,
    Variable,
    Words,
)
from dashboards.sloqueries import (
    BUDGET_DAYS,
    PER_FACTOR,
    SPACING,
    buckets,
    burn_rate,
    decimals,
    fastest,
    rate,
    recorded,
    share,
    spent,
    told,
    worst,
)

_SERVER: Final = "{{instance}} {{model_name}} {{engine}}"

_SHOWN: Final = tuple(dict.fromkeys(burn.long for burn in (BURNS[0], BURNS[1], BURNS[-1])))
"""The windows over which the share in time is told."""

_SILENT: Final = "vLLM itself is not scraped, or has too little traffic"
_UNSCRAPED: Final = (
    "Prometheus does not scrape vLLM itself, or there is too little traffic: docs/alerts.md, Install and Objectives"
)


def slo() -> Board:
    """The board of the objectives."""
    objectives = read_objectives(OBJECTIVES)
    first = recorded(objectives[0], "rate", "5m")
    return board(
        "phasewatch-slo",
        "Do answers come in time, and how fast is the budget for late ones spent?",
        *(Section(_heading(objective), _now(objective)) for objective in objectives),
        Section("Burn rates over time", tuple(_burns(objective) for objective in objectives)),
        Section("Traffic and latencies", tuple(panel for objective in objectives for panel in _observed(objective))),
        Section("What this means", (_explained(),), closed=True),
        variables=(
            Variable("job", "Job", first),
            Variable("instance", "Instance", f'{first}{{job=~"$job"}}'),
            Variable("model_name", "Model", f'{first}{{job=~"$job", instance=~"$instance"}}'),
            Variable(
                "engine",
                "Engine",
                f'{first}{{job=~"$job", instance=~"$instance", model_name=~"$model_name"}}',
                everything=".*",
            ),
        ),
    )


def _title(objective: Objective) -> str:
    return objective.title.capitalize()


def _heading(objective: Objective) -> str:
    return f"{_title(objective)}: {100 * objective.objective:g} % within {objective.seconds:g} s"


_PAGING: Final = float(min(burn.factor for burn in BURNS if burn.severity == "critical"))
_FASTEST: Final = max(burn.factor for burn in BURNS)
_SPENT: Final[Steps] = ((None, NEUTRAL), (0.0, GOOD), (PER_FACTOR, CARE), (_PAGING * PER_FACTOR, BAD))


def _kept(objective: Objective) -> Steps:
    return (
        (None, NEUTRAL),
        (0.0, BAD),
        (share(objective, _FASTEST), CARE),
        (objective.objective, GOOD),
    )


def _colour(burn: Burn) -> str:
    return BAD if burn.severity == "critical" else CARE


def _above(burn: Burn) -> Steps:
    return ((None, NEUTRAL), (float(burn.factor), _colour(burn)))


def _absolute(steps: Steps) -> Mapping[str, object]:
    """Thresholds as Grafana has them in an override."""
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _factors() -> Steps:
    return (
        (None, NEUTRAL),
        *((float(burn.factor), _colour(burn)) for burn in sorted(BURNS, key=lambda burn: burn.factor)),
    )


def _now(objective: Objective) -> tuple[Panel, ...]:
    kept = _kept(objective)
    title = _title(objective)
    return (
        Tile(
            title=f"{title} in time",
            description=(
                f"Share of the {objective.title} that took no longer than {objective.seconds:g} s, of the server that is worst, over "
                f"three windows. Green from {100 * objective.objective:g} % on, the objective; yellow below; red where the budget is spent "
                f"{_FASTEST} times too fast. A server with fewer than {objective.minimum} in a window is left out of it. Low in the "
                "shortest window alone: something is wrong now, see the board Saturation. Low in the longest: the server is too "
                "small for what is asked of it, or the objective too strict."
            ),
            queries=tuple(Query(f"1 - max({told(objective, window)})", f"last {window}") for window in _SHOWN),
            width=8,
            height=4,
            unit="percentunit",
            decimals=decimals(objective),
            steps=kept,
            empty=_SILENT,
            named=True,
        ),
        Tile(
            title=f"{title}: burn rates",
            description=(
                "How many times faster than it lasts the budget of 30 days is spent, of the server that is worst; 1 spends it in 30 "
                "days exactly. One number for each alert: the lower of its two windows, since both have to be above its factor: "
                + ", ".join(f"{burn.factor} over {burn.long} and {burn.short}" for burn in BURNS)
                + ". Red pages when it lasts, yellow becomes a ticket."
            ),
            queries=tuple(
                Query(worst(objective, burn), f"{burn.long}, {burn.short}", name=f"tier{burn.long}") for burn in BURNS
            ),
            width=9,
            height=4,
            unit="suffix: x",
            decimals=1,
            empty=_SILENT,
            named=True,
            overrides=tuple(
                Override({"thresholds": _absolute(_above(burn))}, query=f"tier{burn.long}") for burn in BURNS
            ),
        ),
        Tile(
            title=f"{title}: budget, {BURNS[-1].long}",
            description=(
                f"The part of the budget of 30 days that the last {BURNS[-1].long} have used, of the server that is worst, were the "
                f"traffic of all days alike. Up to {100 * PER_FACTOR:g} % it lasts; from there on it ends before the month does, red from "
                f"the pace on that pages, {_PAGING:g} times too fast; at 100 % it is gone. While little is left, change nothing but "
                "what makes the server faster."
            ),
            queries=(Query(f"max({spent(objective)})"),),
            width=7,
            height=4,
            unit="percentunit",
            decimals=1,
            steps=_SPENT,
            empty=_SILENT,
        ),
        _servers(objective),
    )


def _servers(objective: Objective) -> Table:
    tiers = [
        (f"tier{index}{window}", window, burn) for index, burn in enumerate(BURNS) for window in (burn.long, burn.short)
    ]
    in_time = tuple(
        Column(
            f"good{window}",
            f"in time, {window}",
            unit="percentunit",
            decimals=decimals(objective),
            width=100,
            steps=_kept(objective),
        )
        for window in _SHOWN
    )
    burning = tuple(
        Column(
            name,
            f"{window} / {burn.factor}",
            decimals=1,
            width=80,
            steps=_above(burn),
        )
        for name, window, burn in tiers
    )
    return Table(
        title=f"{_title(objective)} by server",
        description=(
            "A row for each engine of each server. In time: green at the objective or above, yellow below, red "
            f"where the budget is spent {_FASTEST} times too fast. Replicas behind one address count by their traffic. Then burn rates by pairs of windows, each "
            "with the factor from which on it is coloured, such as 1h / 14.4; an alert fires when both of a pair are coloured for long "
            "enough, red pages and yellow is a ticket. A pair is empty while its long window has too few observations. Spent: the "
            "part of the budget of 30 days."
        ),
        queries=(
            Query(rate(objective), name="rate"),
            *(Query(f"1 - {told(objective, window)}", name=f"good{window}") for window in _SHOWN),
            *(Query(burn_rate(objective, window, burn.long), name=name) for name, window, burn in tiers),
            Query(spent(objective), name="spent"),
        ),
        columns=(
            Column("instance", "Instance"),
            Column("model_name", "Model"),
            Column("engine", "Engine", width=65),
            Column("rate", "per second", decimals=2, width=90),
            *in_time,
            *burning,
            Column("spent", f"spent, {BURNS[-1].long}", unit="percentunit", decimals=1, width=90, steps=_SPENT),
        ),
        width=24,
        height=5,
        empty=_UNSCRAPED,
    )


def _burns(objective: Objective) -> Lines:
    return Lines(
        title=f"Burn rate of {objective.title}",
        description=(
            "How many times faster than it lasts the budget is spent, by window, of the server that is worst. Dashed are the factors "
            "of the alerts: "
            + ", ".join(f"{burn.factor} ({burn.long} and {burn.short})" for burn in BURNS)
            + ". Below 1 the "
            "budget lasts. Short windows jump where there is little traffic; no alert looks at one of them alone. As in the alerts, a "
            f"server with fewer than {objective.minimum} {objective.title} in the long window is left out."
        ),
        queries=tuple(Query(fastest(objective, window), window) for window in WINDOWS),
        width=12,
        height=9,
        unit="suffix: x",
        minimum=0,
        steps=_factors(),
        marked=True,
        empty=_UNSCRAPED,
        overrides=(Override({"custom.fillOpacity": 0}, pattern=".+"),),
    )


def _observed(objective: Objective) -> tuple[Panel, ...]:
    return (
        Heatmap(
            title=f"How long {objective.title} took",
            description=(
                f"Each column is a moment, each cell one bucket of vLLM's histogram; the brighter, the more. What lies above "
                f"{objective.seconds:g} s is late. Two bands apart are two kinds of requests, or stalls: see the state on the board "
                "Saturation at that time."
            ),
            queries=(Query(buckets(objective), spacing=SPACING),),
            width=16,
            height=9,
            unit="s",
            empty=_UNSCRAPED,
        ),
        Lines(
            title=f"{_title(objective)} per second",
            description=(
                f"What the shares are made of: {objective.title} of each engine per second, over five minutes. Where this is near 0 a "
                f"share says little; an alert asks for {objective.minimum} in its long window."
            ),
            queries=(Query(rate(objective), _SERVER),),
            width=8,
            height=9,
            minimum=0,
            empty=_UNSCRAPED,
        ),
    )


def _explained() -> Words:
    tiers = "\n".join(f"| {burn.factor} | {burn.long} | {burn.short} | {burn.severity} |" for burn in BURNS)
    return Words(
        title="Budgets and burn rates",
        description="What the numbers of this board mean.",
        queries=(),
        width=24,
        height=9,
        text=(
            f"An objective says which share should be in time, over {BUDGET_DAYS} days. What may be late is the budget. The burn "
            "rate is the share that was late / the share that may be: at 1 the budget lasts exactly. An alert fires when both "
            "windows of a line are above its factor.\n\n"
            f"| factor | long window | short window | severity |\n|---|---|---|---|\n{tiers}\n\n"
            "The numbers come from vLLM's own histograms, so Prometheus has to scrape vLLM itself, and the rules of the pack must "
            "be loaded (docs/alerts.md, Install). Objectives are changed in alerts/objectives.yml; then `make alerts dashboards`."
        ),
    )
