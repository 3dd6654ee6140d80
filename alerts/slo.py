"""Writes rules/phasewatch-slo.yml from objectives.yml: alerts on error budgets that are spent too fast.

Windows and factors are those of the Site Reliability Workbook, chapter 5, "Alerting on SLOs", as kubernetes-mixin has
them: a factor of 1 spends exactly the budget of 30 days in 30 days. The short window ends the alert soon after the
trouble ends.
"""
# ruff: noqa: INP001  # a script beside the files it writes, no package

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.config.yaml_file import describe_error, read_mapping

FOLDER: Final = Path(__file__).parent
OBJECTIVES: Final = FOLDER / "objectives.yml"
RULES: Final = FOLDER / "rules" / "phasewatch-slo.yml"
RUNBOOKS: Final = "https://github.com/phasewatch/phasewatch/blob/main/docs/runbooks/"

PREFIXES: Final = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
"""How a vLLM's names begin once they are in Prometheus: 2.x stores an underscore for the colon, Ray adds its own."""

_SHORT_EDGES: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
EDGES: Final = {
    "time_to_first_token_seconds": (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
        *(160, 640, 2560),
    ),
    "inter_token_latency_seconds": _SHORT_EDGES,
    "time_per_output_token_seconds": _SHORT_EDGES,
}
"""Upper edges of vLLM's buckets, 0.8 to 0.32 (its v1/metrics/buckets.py, and the recorded pages)."""


@dataclass(frozen=True, slots=True)
class Burn:
    """One tier of alerts: both windows spend the budget `factor` times as fast as it lasts."""

    factor: Decimal
    long: str
    short: str
    duration: str
    severity: str


BURNS: Final = (
    Burn(Decimal("14.4"), "1h", "5m", "2m", "critical"),
    Burn(Decimal(6), "6h", "30m", "15m", "critical"),
    Burn(Decimal(3), "1d", "2h", "1h", "warning"),
    Burn(Decimal(1), "3d", "6h", "3h", "warning"),
)
WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
SLOW_WINDOWS: Final = frozenset({"1d", "3d"})
"""Windows that cost much to read and change slowly, so they are computed more rarely."""


def _words(value: str) -> str:
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", value):
        raise ValueError(f"expected lower-case words joined by _, found {value!r}")
    return value


def _histogram(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", value) or value.startswith("vllm"):
        raise ValueError(f"expected a name without vllm: and _bucket, such as {next(iter(EDGES))}, found {value!r}")
    return value


def _title(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z ]*", value):
        raise ValueError(f"expected lower-case words, found {value!r}")
    return value


class Objective(BaseModel):
    """One entry of objectives.yml, which explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, AfterValidator(_words)]
    title: Annotated[str, AfterValidator(_title)]
    histograms: Annotated[list[Annotated[str, AfterValidator(_histogram)]], Field(min_length=1)]
    seconds: Annotated[float, Field(gt=0)]
    # The largest factor must be possible: 14.4 x 7 % is more than everything.
    objective: Annotated[float, Field(ge=0.94, le=0.9999)]
    minimum: Annotated[int, Field(ge=1)]
    custom_edges: bool = False

    @property
    def alert(self) -> str:
        """The name of its alerts, which is that of its runbook too."""
        return f"LLM{self.name.title().replace('_', '')}BudgetBurn"


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    objectives: Annotated[list[Objective], Field(min_length=1)]


def read_objectives(path: Path) -> list[Objective]:
    """The objectives of a file.

    Raises:
        ConfigError: the file cannot be read or something in it is wrong; every problem is told.
    """
    raw, problems = read_mapping(path)
    try:
        objectives = _Schema.model_validate(raw).objectives
    except ValidationError as error:
        found = [describe_error(one, _Schema, {"objectives": Objective}, frozenset()) for one in error.errors()]
        raise ConfigError([*problems, *found]) from error
    problems += _misfits(objectives)
    if problems:
        raise ConfigError(problems)
    return objectives


def _misfits(objectives: Sequence[Objective]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, objective in enumerate(objectives):
        path = f"objectives[{index}]"
        if objective.name in names:
            yield Problem(f"{path}.name", f"{objective.name} is there twice; give each its own name")
        names.add(objective.name)
        for histogram in () if objective.custom_edges else objective.histograms:
            edges = EDGES.get(histogram)
            if edges is None:
                yield Problem(f"{path}.histograms", f"expected one of {', '.join(EDGES)}, found {histogram}")
            elif objective.seconds not in edges:
                told = ", ".join(f"{edge:g}" for edge in edges)
                yield Problem(f"{path}.seconds", f"expected an edge of {histogram} ({told}), or custom_edges: true")


def rules_of(objectives: Sequence[Objective]) -> str:
    """The text of a rule file."""
    groups = (group for objective in objectives for group in _groups(objective))
    return "# Written by `make alerts` from objectives.yml. Change that file instead.\ngroups:\n" + "\n".join(groups)


def _groups(objective: Objective) -> Iterator[str]:
    name = f"phasewatch-slo-{objective.name.replace('_', '-')}"
    fast = [window for window in WINDOWS if window not in SLOW_WINDOWS]
    slow = [window for window in WINDOWS if window in SLOW_WINDOWS]
    alerts = "".join(_alert(objective, burn) for burn in BURNS)
    yield f"  - name: {name}-days\n    interval: 2m\n    rules:\n" + "".join(_recordings(objective, w) for w in slow)
    yield f"  - name: {name}\n    rules:\n" + "".join(_recordings(objective, w) for w in fast) + alerts


def _recordings(objective: Objective, window: str) -> str:
    total = _rate(objective, "count", "", window)
    good = _rate(objective, "bucket", f'{{le=~"{_edge(objective.seconds)}"}}', window)
    return f"""\
      - record: {_recorded(objective, "rate", window)}
        expr: |2
{total}
      - record: {_recorded(objective, "slow_ratio", window)}
        expr: |2
            1
          -
            (
{_deeper(good)}
            )
          /
            ({_recorded(objective, "rate", window)} > 0)
"""


def _rate(objective: Objective, suffix: str, labels: str, window: str) -> str:
    """Observations per second, under whichever of its names a server has them.

    One selector with a pattern for the name would fail for as long as its window holds two of them, as after an update
    of Prometheus or vLLM: `rate` drops the name, and two series of the same labels are an error.
    """
    names = [f"{prefix}{histogram}_{suffix}" for histogram in objective.histograms for prefix in PREFIXES]
    return "\n          or\n".join(f"            sum without (le) (rate({name}{labels}[{window}]))" for name in names)


def _deeper(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.splitlines())


def _recorded(objective: Objective, what: str, window: str) -> str:
    return f"phasewatch_slo:{objective.name}_{what}:rate{window}".replace("_rate:rate", ":rate")


def _edge(seconds: float) -> str:
    """A pattern for the label `le`: servers and versions of Prometheus write 5 or 5.0."""
    whole = f"{seconds:g}"
    return f"{whole}([.]0)?" if seconds.is_integer() else whole.replace(".", "[.]")


def _alert(objective: Objective, burn: Burn) -> str:
    budget = 1 - Decimal(str(objective.objective))
    percent = f"{100 * objective.objective:g}"
    limit = f"{burn.factor} * {budget}"
    return f"""
      - alert: {objective.alert}
        expr: |2
            {_recorded(objective, "slow_ratio", burn.long)} > {limit}
          and
            {_recorded(objective, "slow_ratio", burn.short)} > {limit}
          and
            {_recorded(objective, "rate", burn.long)} * {_seconds(burn.long)} >= {objective.minimum}
        for: {burn.duration}
        labels:
          severity: {burn.severity}
          component: phasewatch
          long: {burn.long}
          short: {burn.short}
        annotations:
          summary: Too many {objective.title} are late, and the budget of 30 days is spent {burn.factor} times too fast.
          description: >-
            {{{{ $value | humanizePercentage }}}} of the {objective.title} of {{{{ $labels.model_name }}}} on
            {{{{ or $labels.target $labels.instance }}}}{{{{ with $labels.engine }}}} (engine {{{{ . }}}}){{{{ end }}}}
            took more than {objective.seconds:g} s in the last {burn.long}; the objective is {percent} % that take no
            longer. {_REMEDIES.get(objective.name, _LOOK)}
          runbook_url: {RUNBOOKS}{objective.alert}.md
          dashboard: {_DASHBOARD}
"""


_REMEDIES: Final = {
    "time_to_first_token": """\
Look at the queue before blaming the model: if
            llm_queue_time_mean_seconds is most of it, the state says what requests wait for. Prefill: shorten prompts,
            keep prefix caching on, raise --max-num-batched-tokens, use faster devices.""",
    "inter_token_latency": """\
High p99 with a good mean: prompts of others stall
            the steps; lower --max-num-batched-tokens. Many streams or long contexts: lower --max-num-seqs, quantise the
            KV cache, add replicas.""",
}
_LOOK: Final = "Look at llm_saturation_state."
_DASHBOARD: Final = "/d/phasewatch-slo?" + "&".join(
    f"var-{name}={{{{ $labels.{name} | urlquery }}}}" for name in ("job", "instance", "model_name", "engine")
)


def _seconds(window: str) -> int:
    return int(window[:-1]) * {"m": 60, "h": 3600, "d": 86400}[window[-1]]


def main() -> int:
    """Write the rules. Problems go to standard error, and the exit code is 1."""
    try:
        text = rules_of(read_objectives(OBJECTIVES))
    except ConfigError as error:
        sys.stderr.writelines(f"{one}\n" for one in error.problems)
        return 1
    RULES.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
