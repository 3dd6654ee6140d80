"""The handwritten alerts as rules/phasewatch-alerts.yml.

A source in alerts/alerts is a rule file of Prometheus whose text is kept as it is, with its comments, except for:

- `dashboard: BOARD`, which becomes the annotations `runbook_url` and `dashboard` (links.build_dashboard_path);
- `${advice.NAME.change[0]}`, which becomes the words of phasewatch.analysis.advice, so that alerts, runbooks and pages
  advise the same. NAME is a state, a complaint or a finding about Ollama; the field is `change` or `avoid`, or `remedy`
  for a change whose cause the text has named already.
- `${advice.of_state}`, which begins a choice by `.Labels.state` between the states that need a change, each with its
  title and first remedies. The source goes on with `{{ else }}` and `{{ end }}`.

Every alert has a severity (critical pages somebody now, warning is a ticket, info is neither), a row in docs/alerts.md
and a page in docs/runbooks.
"""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from alerts.generate.links import build_dashboard_path, build_runbook_url
from phasewatch.analysis.advice.handbook import list_complaints
from phasewatch.analysis.advice.remedy import Advice, Remedy, list_words
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.backends.vllm.handbook import VLLM_HANDBOOK
from phasewatch.base.errors import ConfigError, Problem

SUBJECTS: Final = ("latency", "queue", "decode", "ollama", "collection")
"""The sources, in the order of the rule file."""

_HEAD: Final = """\
# Written by `make alerts` from ../alerts/*.yml. Change those instead.
#
# critical pages somebody now, warning is a ticket, info is neither. docs/alerts.md has all alerts in one table, and
# docs/runbooks one page for each. Every number to compare with is a threshold (phasewatch-thresholds.yml), looked up
# for the target and model of the series, so a site never has to edit this file.
#
# A series that misses one scrape must not restart the wait of an alert, and an overloaded server times out: symptoms
# are read with a look-back of a minute. Where the wait is short, the look-back is half a minute and the wait is longer
# by as much, since what ends with a restart or a pause is still seen for that long.
groups:
"""

_WIDTH: Final = 120

_REMEDIES: Final = 2
"""Remedies of a state in an alert on another subject: the one that helps at once, and the one that lasts."""

_ALERT: Final = re.compile(r"^      - alert: (\w+)$", re.MULTILINE)
_BOARD: Final = re.compile(r"^( +)dashboard: (.+)$", re.MULTILINE)
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_WORDS: Final = re.compile(r"advice\.(\w+)\.(change|avoid|remedy)\[(\d+)\]")

_ADVICE: Final[Mapping[str, Advice]] = {
    **{state.value: advice for state, advice in VLLM_HANDBOOK.states.items()},
    **list_complaints(VLLM_HANDBOOK),
    **FINDINGS,
}


def render_rules(sources: Mapping[str, str]) -> str:
    """The text of a rule file.

    Args:
        sources: the text of each source, by its subject.

    Raises:
        ConfigError: a board or a placeholder does not exist, or an alert leads to no board; carries a problem of each
            such alert.
    """
    groups: list[str] = []
    problems: list[Problem] = []
    for subject, text in sources.items():
        # What stands above `groups:` is for those who edit the source.
        group, *parts = _ALERT.split(text.partition("groups:\n")[2])
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            try:
                group += f"      - alert: {name}{_render_body(name, body)}"
            except ValueError as error:
                problems.append(Problem(f"alerts/{subject}.yml: {name}", str(error)))
        groups.append(group)
    if problems:
        raise ConfigError(problems)
    return _HEAD + "\n".join(groups)


def _render_body(name: str, body: str) -> str:
    """What comes below the name of an alert, with its links and the words of advice.

    Raises:
        ValueError: a board or a placeholder does not exist, or the alert leads to no board.
    """

    def render_links(match: re.Match[str]) -> str:
        indent, hint = match.groups()
        return f"{indent}runbook_url: {build_runbook_url(name)}\n{indent}dashboard: {build_dashboard_path(hint)}"

    linked, boards = _BOARD.subn(render_links, body)
    if boards != 1:
        raise ValueError(f"expected one line with `dashboard: BOARD`, found {boards}")
    return "\n".join(_fill_placeholders(line) for line in linked.split("\n"))


def _fill_placeholders(line: str) -> str:
    """A line of a folded text with its placeholders replaced, as several lines if it becomes long."""
    filled, placeholders = _PLACEHOLDER.subn(lambda match: _find_words(match[1]), line)
    if not placeholders:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(filled, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _find_words(placeholder: str) -> str:
    if placeholder == "advice.of_state":
        return _choose_by_state()
    parts = _WORDS.fullmatch(placeholder)
    if parts is not None and parts[1] in _ADVICE:
        advice = _ADVICE[parts[1]]
        sentences = list_words(_select_remedies(advice, parts[2]))
        if int(parts[3]) < len(sentences):
            return sentences[int(parts[3])]
    raise ValueError(f"no advice is called ${{{placeholder}}}; expected one such as ${{advice.stuck.change[0]}}")


def _select_remedies(advice: Advice, field: str) -> tuple[Remedy, ...]:
    if field == "remedy":
        return tuple(replace(remedy, cause=None) for remedy in advice.change)
    return advice.change if field == "change" else advice.avoid


def _choose_by_state() -> str:
    choices = [
        f'if eq .Labels.state "{state}" }}}}{advice.title}. {" ".join(list_words(advice.change)[:_REMEDIES])}'
        for state, advice in VLLM_HANDBOOK.states.items()
        if advice.change
    ]
    return "{{ " + "{{ else ".join(choices)
