"""SLO: assembles the dashboard, for the objectives in alerts/objectives.yml.

Windows and factors are those of the alerts.
"""

from alerts.generate.slo import BURNS, OBJECTIVES, WINDOWS, Objective, name_recording, read_objectives
from dashboards.generate.boards.slo.budget import build_budget
from dashboards.generate.boards.slo.history import build_burn_rates, build_latencies
from dashboards.generate.boards.slo.queries import BUDGET_DAYS, format_title
from dashboards.generate.model import Dashboard, Row, Text, Variable
from dashboards.generate.pack import SLO, build_dashboard
from dashboards.generate.queries import EXPORTER_MATCHERS


def build_slo() -> Dashboard:
    """How fast the error budget of each objective is spent."""
    objectives = read_objectives(OBJECTIVES)
    return build_dashboard(
        SLO,
        "Do answers come in time, and how fast is the budget for late ones spent?",
        *(Row(_format_heading(objective), build_budget(objective)) for objective in objectives),
        Row("Burn rates over time", tuple(build_burn_rates(objective) for objective in objectives)),
        Row("Traffic and latencies", tuple(panel for objective in objectives for panel in build_latencies(objective))),
        Row("What this means", (_build_explanation(),), collapsed=True),
        variables=_build_variables(objectives[0]),
    )


def _build_variables(objective: Objective) -> tuple[Variable, ...]:
    """Choices of vLLM servers, as Prometheus scrapes them itself."""
    series = name_recording(objective, "rate", WINDOWS[0])
    return (
        Variable("job", "Job", series),
        Variable("instance", "Instance", f'{series}{{job=~"$job"}}'),
        Variable("model_name", "Model", f"{series}{{{EXPORTER_MATCHERS}}}"),
        Variable("engine", "Engine", f'{series}{{{EXPORTER_MATCHERS}, model_name=~"$model_name"}}', all_value=".*"),
    )


def _format_heading(objective: Objective) -> str:
    return f"{format_title(objective)}: {100 * objective.objective:g} % within {objective.seconds:g} s"


def _build_explanation() -> Text:
    tiers = "\n".join(f"| {burn.factor} | {burn.long} | {burn.short} | {burn.severity} |" for burn in BURNS)
    return Text(
        title="Budgets and burn rates",
        description="What the numbers of this board mean.",
        width=24,
        height=9,
        content=(
            f"An objective says which share should be in time, over {BUDGET_DAYS} days. What may be late is the budget. The burn "
            "rate is the share that was late / the share that may be: at 1 the budget lasts exactly. An alert fires when both "
            "windows of a line are above its factor.\n\n"
            f"| factor | long window | short window | severity |\n|---|---|---|---|\n{tiers}\n\n"
            "The numbers come from vLLM's own histograms, so Prometheus has to scrape vLLM itself, and the rules of the pack must "
            "be loaded (docs/alerts.md, Install). Objectives are changed in alerts/objectives.yml; then `make alerts dashboards`."
        ),
    )
