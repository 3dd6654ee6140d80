"""What the boards share: selectors, variables, links, and the meaning of colours."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from dashboards.generate.model import Board, Mark, Override, Section, Steps, Variable

_THRESHOLDS: Final = Path(__file__).parents[2] / "alerts" / "rules" / "phasewatch-thresholds.yml"

OF_EXPORTER: Final = 'job=~"$job", instance=~"$instance"'
OF_TARGET: Final = f'{OF_EXPORTER}, target=~"$target"'
OF_MODEL: Final = f'{OF_TARGET}, model_name=~"$model_name"'
OF_ENGINE: Final = f'{OF_MODEL}, engine=~"$engine"'

TARGET_NAME: Final = "{{target}}"
MODEL_NAME: Final = "{{target}} {{model_name}}"
ENGINE_NAME: Final = "{{target}} {{model_name}} {{engine}}"

GOOD, CARE, BAD, FINDING, NEUTRAL = "green", "yellow", "red", "super-light-purple", "text"
PREFILL, DECODE, QUEUE, CACHE = "blue", "purple", "yellow", "orange"
"""The colours of the two phases, of what waits and of the KV cache, on every board."""


def _selected(name: str, scope: str, by: str, labels: Mapping[str, str]) -> str:
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return f"max by ({by}) ({name}{{{scope}{more}}})"


def of_target(name: str, **labels: str) -> str:
    """A metric about targets, once for each, however many exporters look at it."""
    return _selected(name, OF_TARGET, "target", labels)


def of_model(name: str, **labels: str) -> str:
    """A metric about models, once for each."""
    return _selected(name, OF_MODEL, "target, model_name", labels)


def of_engine(name: str, **labels: str) -> str:
    """A metric about engines, once for each; of an Ollama, which has no engines, about its models."""
    return _selected(name, OF_ENGINE, "target, model_name, engine", labels)


def utilization(name: str) -> str:
    """MBU or MFU of each engine as PhaseWatch counts it; as vLLM does where PhaseWatch cannot."""
    return f"({of_engine(name, source='derived')}\n  or {of_engine(name, source='engine')})"


def threshold(name: str) -> float:
    """The default of a threshold of the alerts, so that colours and alerts agree."""
    groups: list[dict[str, Any]] = yaml.safe_load(_THRESHOLDS.read_text(encoding="utf-8"))["groups"]
    exprs = [
        rule["expr"] for group in groups for rule in group["rules"] if rule["record"] == f"phasewatch_threshold:{name}"
    ]
    found = re.fullmatch(r"vector\((.+)\)", exprs[0])
    assert found is not None, f"{name} is no plain number"  # noqa: S101  # a mistake of ours in a file of ours
    return float(found[1])


def shades(query: str, colour: str, **custom: Any) -> Override:
    """All that a query returns in shades of one colour, and Grafana's `custom` properties of how it is drawn."""
    drawn = {f"custom.{name}": value for name, value in custom.items()}
    return Override({"color": {"mode": "shades", "fixedColor": colour}, **drawn}, query=query)


def limit(query: str, *, dash: int = 10) -> Override:
    """All that a query returns as dashed lines without a colour: what the others are measured by."""
    return Override(
        {
            "color": {"mode": "fixed", "fixedColor": NEUTRAL},
            "custom.lineStyle": {"fill": "dash", "dash": [dash, 8]},
            "custom.fillOpacity": 0,
        },
        query=query,
    )


def reaching(value: float) -> Override:
    """An axis that reaches up to a value at least, so that a low line is seen to be low."""
    return Override({"custom.axisSoftMax": value}, pattern=".*")


UNFILLED: Final = Override({"custom.fillOpacity": 0}, pattern=".*")
"""For panels of so many lines, or of such an axis, that the space below them means nothing."""

UTILIZATION: Final[Steps] = ((None, NEUTRAL), (0.001, GOOD), (1.0, FINDING))
"""Shares of what the hardware can do: nothing to be alarmed about; above 1 is a finding."""

DECODE_SHARE: Final[Steps] = ((None, NEUTRAL), (0.0, CARE), (threshold("decode_ceiling_ratio"), GOOD), (1.0, FINDING))
WAITING: Final[Steps] = ((None, NEUTRAL), (1, CARE), (threshold("requests_waiting"), BAD))


def quiet(steps: Steps) -> Steps:
    """The same, but what is not there has no colour."""
    return ((None, NEUTRAL), (0.0, steps[0][1]), *steps[1:])


INTER_TOKEN: Final[Steps] = ((None, GOOD), (threshold("inter_token_latency_seconds"), BAD))
FIRST_TOKEN: Final[Steps] = ((None, GOOD), (threshold("time_to_first_token_seconds"), BAD))

JOB: Final = Variable("job", "Job", "phasewatch_build_info")
INSTANCE: Final = Variable("instance", "Instance", 'phasewatch_build_info{job=~"$job"}')
TARGET: Final = Variable("target", "Target", f"llm_target_up{{{OF_EXPORTER}}}")
MODEL: Final = Variable("model_name", "Model", f'{{__name__=~"llm_requests_running|llm_model_loaded", {OF_TARGET}}}')
ENGINE: Final = Variable("engine", "Engine", f"llm_requests_running{{{OF_MODEL}}}", everything=".*")
"""All means those without engines, too."""

VARIABLES: Final = (JOB, INSTANCE, TARGET, MODEL, ENGINE)

TITLES: Final = {
    "phasewatch-overview": "Overview",
    "phasewatch-phases": "Phases",
    "phasewatch-saturation": "Saturation",
    "phasewatch-ollama": "Ollama",
    "phasewatch-slo": "SLO",
    "phasewatch-exporter": "Exporter",
}
"""Addresses for ever: alerts link to them."""

OBJECTIVES: Final = "phasewatch-slo"
"""Job and instance on this board are vLLM's own, so links from and to it leave them out."""


def _links(uid: str, variables: tuple[Variable, ...]) -> tuple[tuple[str, str], ...]:
    """To the other boards, with the time and the choices of this one."""
    return tuple((title, _address(uid, other, variables)) for other, title in TITLES.items() if other != uid)


def _address(here: str, there: str, variables: tuple[Variable, ...]) -> str:
    kept = ["datasource"] + [
        variable.name
        for variable in variables
        if OBJECTIVES not in {here, there} or variable.name in {"model_name", "engine"}
    ]
    return f"/d/{there}?" + "&".join(f"${{{name}:queryparam}}" for name in kept)


def _alerts(severity: str, scope: str) -> str:
    return f'max by (alertname) (ALERTS{{alertname=~"LLM.+", alertstate="firing", severity="{severity}"{scope}}})'


def _marks(variables: Sequence[Variable]) -> tuple[Mark, ...]:
    """Firing alerts in all charts; tickets on demand, since many at once would hide what they lie over."""
    scope = ', target=~"$target|"' if TARGET in variables else ""
    return (
        Mark("Pages", _alerts("critical", scope), BAD, shown=True),
        Mark("Tickets", _alerts("warning", scope), CARE, shown=False),
    )


def board(uid: str, description: str, *sections: Section, variables: tuple[Variable, ...] = VARIABLES) -> Board:
    """A board of the pack."""
    title = f"PhaseWatch / {TITLES[uid]}"
    return Board(uid, title, description, variables, sections, _links(uid, variables), _marks(variables))
