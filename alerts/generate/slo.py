"""objectives.yml as rules/phasewatch-slo.yml: alerts on error budgets that are spent too fast.

Windows and factors are those of the Site Reliability Workbook, chapter 5, "Alerting on SLOs", as kubernetes-mixin has
them: a factor of 1 spends exactly the budget of 30 days in 30 days. The short window ends the alert soon after the
trouble ends.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from alerts.generate.links import build_dashboard_path, build_runbook_url
from alerts.generate.source import read_source
from phasewatch.analysis.advice.remedy import Cause, list_words
from phasewatch.backends.vllm.buckets import TIME_PER_TOKEN, TIME_TO_FIRST_TOKEN
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN, SLOW_STREAM
from phasewatch.backends.vllm.metric_names import PREFIXES
from phasewatch.base.errors import ConfigError, Problem

OBJECTIVES: Final = Path(__file__).parents[1] / "objectives.yml"

BOUNDS: Final[Mapping[str, tuple[float, ...]]] = {
    "time_to_first_token_seconds": TIME_TO_FIRST_TOKEN,
    "inter_token_latency_seconds": TIME_PER_TOKEN,
    "time_per_output_token_seconds": TIME_PER_TOKEN,
}
"""Upper bounds of the buckets of each histogram that an objective may be about."""


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


def _check_words(value: str) -> str:
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", value):
        raise ValueError(f"expected lower-case words joined by _, found {value!r}")
    return value


def _check_histogram(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", value) or value.startswith("vllm"):
        raise ValueError(f"expected a name without vllm: and _bucket, such as {next(iter(BOUNDS))}, found {value!r}")
    return value


def _check_title(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z ]*", value):
        raise ValueError(f"expected lower-case words, found {value!r}")
    return value


class Objective(BaseModel):
    """One entry of objectives.yml, which explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, AfterValidator(_check_words)]
    title: Annotated[str, AfterValidator(_check_title)]
    histograms: Annotated[list[Annotated[str, AfterValidator(_check_histogram)]], Field(min_length=1)]
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
        ConfigError: the file cannot be read or something in it is wrong; carries every problem.
    """
    content, problems = read_source(path, _Schema, {"objectives": Objective})
    problems += _find_misfits(content.objectives)
    if problems:
        raise ConfigError(problems)
    return content.objectives


def _find_misfits(objectives: Sequence[Objective]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, objective in enumerate(objectives):
        path = f"objectives[{index}]"
        if objective.name in names:
            yield Problem(f"{path}.name", f"{objective.name} is there twice; give each its own name")
        names.add(objective.name)
        for histogram in () if objective.custom_edges else objective.histograms:
            bounds = BOUNDS.get(histogram)
            if bounds is None:
                yield Problem(f"{path}.histograms", f"expected one of {', '.join(BOUNDS)}, found {histogram}")
            elif objective.seconds not in bounds:
                listed = ", ".join(f"{bound:g}" for bound in bounds)
                yield Problem(f"{path}.seconds", f"expected an edge of {histogram} ({listed}), or custom_edges: true")


_HEAD: Final = """\
# Written by `make alerts` from objectives.yml. Change that file instead.
groups:
"""


def render_rules(objectives: Iterable[Objective]) -> str:
    """The text of a rule file."""
    return _HEAD + "\n".join(group for objective in objectives for group in _render_groups(objective))


def _render_groups(objective: Objective) -> Iterator[str]:
    name = f"phasewatch-slo-{objective.name.replace('_', '-')}"
    fast = [window for window in WINDOWS if window not in SLOW_WINDOWS]
    slow = [window for window in WINDOWS if window in SLOW_WINDOWS]
    days = "".join(_render_recordings(objective, window) for window in slow)
    hours = "".join(_render_recordings(objective, window) for window in fast)
    alerts = "".join(_render_alert(objective, burn) for burn in BURNS)
    yield f"  - name: {name}-days\n    interval: 2m\n    rules:\n{days}"
    yield f"  - name: {name}\n    rules:\n{hours}{alerts}"


def _render_recordings(objective: Objective, window: str) -> str:
    total = _render_rate(objective, "count", "", window)
    good = _render_rate(objective, "bucket", f'{{le=~"{_match_bound(objective.seconds)}"}}', window)
    return f"""\
      - record: {name_recording(objective, "rate", window)}
        expr: |2
{total}
      - record: {name_recording(objective, "slow_ratio", window)}
        expr: |2
            1
          -
            (
{textwrap.indent(good, "    ")}
            )
          /
            ({name_recording(objective, "rate", window)} > 0)
"""


def _render_rate(objective: Objective, suffix: str, labels: str, window: str) -> str:
    """Observations per second, under whichever of its names a server has them.

    One selector with a pattern for the name would fail for as long as its window holds two of them, as after an update
    of Prometheus or vLLM: `rate` drops the name, and two series of the same labels are an error.
    """
    names = [f"{prefix}{histogram}_{suffix}" for histogram in objective.histograms for prefix in PREFIXES]
    return "\n          or\n".join(f"            sum without (le) (rate({name}{labels}[{window}]))" for name in names)


def name_recording(objective: Objective, kind: str, window: str) -> str:
    """The name of a recording: `rate` of observations per second, or `slow_ratio` of them."""
    return f"phasewatch_slo:{objective.name}{'' if kind == 'rate' else '_' + kind}:rate{window}"


def _match_bound(seconds: float) -> str:
    """A pattern for the label `le`: servers and versions of Prometheus write 5 or 5.0."""
    whole = f"{seconds:g}"
    return f"{whole}([.]0)?" if seconds.is_integer() else whole.replace(".", "[.]")


def _render_alert(objective: Objective, burn: Burn) -> str:
    budget = 1 - Decimal(str(objective.objective))
    limit = f"{burn.factor} * {budget}"
    return f"""
      - alert: {objective.alert}
        expr: |2
            {name_recording(objective, "slow_ratio", burn.long)} > {limit}
          and
            {name_recording(objective, "slow_ratio", burn.short)} > {limit}
          and
            {name_recording(objective, "rate", burn.long)} * {count_seconds(burn.long)} >= {objective.minimum}
        for: {burn.duration}
        labels:
          severity: {burn.severity}
          component: phasewatch
          long: {burn.long}
          short: {burn.short}
        annotations:
          summary: Too many {objective.title} are late, and the budget of 30 days is spent {burn.factor} times too fast.
          description: >-
{_render_description(objective, burn)}
          runbook_url: {build_runbook_url(objective.alert)}
          dashboard: {build_dashboard_path("slo")}
"""


def _render_description(objective: Objective, burn: Burn) -> str:
    text = (
        f"{{{{ $value | humanizePercentage }}}} of the {objective.title} of {{{{ $labels.model_name }}}} on "
        "{{ or $labels.target $labels.instance }}{{ with $labels.engine }} (engine {{ . }}){{ end }} "
        f"took more than {objective.seconds:g} s in the last {burn.long}; the objective is "
        f"{100 * objective.objective:g} % that take no longer. {_REMEDIES.get(objective.name, _LOOK)}"
    )
    indent = " " * 12
    return textwrap.fill(text, 120, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


_REMEDIES: Final[Mapping[str, str]] = {
    # What its meaning says after the first sentence: to look at the queue.
    "time_to_first_token": " ".join(
        (
            SLOW_FIRST_TOKEN.meaning.partition(". ")[2],
            *list_words(tuple(remedy for remedy in SLOW_FIRST_TOKEN.change if remedy.cause is Cause.PREFILL)[:1]),
        )
    ),
    "inter_token_latency": " ".join(
        list_words(
            tuple(
                remedy
                for remedy in SLOW_STREAM.change
                if remedy.at_once or remedy.cause in {Cause.SHARED_STEPS, Cause.MANY_STREAMS}
            )
        )
    ),
}
_LOOK: Final = "Look at llm_saturation_state."


def count_seconds(window: str) -> int:
    """Seconds in a window such as `5m`."""
    return int(window[:-1]) * {"m": 60, "h": 3600, "d": 86400}[window[-1]]
