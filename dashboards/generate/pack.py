"""What all dashboards share around their panels: addresses, variables, links and annotations."""

from collections.abc import Sequence
from typing import Final

from dashboards.generate.colours import BAD, WARNING
from dashboards.generate.model import Annotation, Dashboard, Row, Variable
from dashboards.generate.queries import EXPORTER_MATCHERS, MODEL_MATCHERS, NAMES_OF_MODEL_METRICS, TARGET_MATCHERS

OVERVIEW: Final = "phasewatch-overview"
PHASES: Final = "phasewatch-phases"
SATURATION: Final = "phasewatch-saturation"
OLLAMA: Final = "phasewatch-ollama"
SLO: Final = "phasewatch-slo"
EXPORTER: Final = "phasewatch-exporter"
"""Permanent: alerts and bookmarks link to them."""

TITLES: Final = {
    OVERVIEW: "Overview",
    PHASES: "Phases",
    SATURATION: "Saturation",
    OLLAMA: "Ollama",
    SLO: "SLO",
    EXPORTER: "Exporter",
}

JOB: Final = Variable("job", "Job", "phasewatch_build_info")
INSTANCE: Final = Variable("instance", "Instance", 'phasewatch_build_info{job=~"$job"}')
TARGET: Final = Variable("target", "Target", f"llm_target_up{{{EXPORTER_MATCHERS}}}")
MODEL: Final = Variable("model_name", "Model", f"{{{NAMES_OF_MODEL_METRICS}, {TARGET_MATCHERS}}}")
# All includes series without the label `engine`.
ENGINE: Final = Variable("engine", "Engine", f"llm_requests_running{{{MODEL_MATCHERS}}}", all_value=".*")

VARIABLES: Final = (JOB, INSTANCE, TARGET, MODEL, ENGINE)


def build_dashboard(uid: str, description: str, *rows: Row, variables: tuple[Variable, ...] = VARIABLES) -> Dashboard:
    """A dashboard of the pack with its title, its links to the others, and firing alerts as annotations."""
    return Dashboard(
        uid=uid,
        title=f"PhaseWatch / {TITLES[uid]}",
        description=description,
        variables=variables,
        rows=rows,
        links=tuple((title, _link_url(uid, other, variables)) for other, title in TITLES.items() if other != uid),
        annotations=_build_annotations(variables),
    )


def _link_url(source: str, destination: str, variables: tuple[Variable, ...]) -> str:
    """Address of another dashboard that keeps the choices of this one."""
    # Job and instance are vLLM's own on the SLO dashboard, and PhaseWatch's on the others.
    names = ["datasource"] + [
        variable.name
        for variable in variables
        if SLO not in {source, destination} or variable.name in {"model_name", "engine"}
    ]
    return f"/d/{destination}?" + "&".join(f"${{{name}:queryparam}}" for name in names)


def _build_annotations(variables: Sequence[Variable]) -> tuple[Annotation, ...]:
    """Firing alerts. Tickets are off when a dashboard opens, since many at once hide the chart."""
    matchers = ', target=~"$target|"' if TARGET in variables else ""
    return (
        Annotation("Pages", _select_alerts("critical", matchers), BAD, enabled=True),
        Annotation("Tickets", _select_alerts("warning", matchers), WARNING, enabled=False),
    )


def _select_alerts(severity: str, matchers: str) -> str:
    return f'max by (alertname) (ALERTS{{alertname=~"LLM.+", alertstate="firing", severity="{severity}"{matchers}}})'
