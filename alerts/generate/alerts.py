"""The handwritten alerts as rules/phasewatch-alerts.yml.

A source in alerts/alerts is a rule file of Prometheus whose text is kept as it is, with its comments, except for:

- `dashboard: BOARD`, which becomes the annotations `runbook_url` and `dashboard` (links.build_dashboard_path);
- `${advice.NAME.change[0]}`, or `[0:2]` for several, which becomes words of the handbooks, so that alerts, runbooks and
  pages advise the same. NAME is a state, a complaint or a finding about Ollama; the field is `change` or `avoid`, or
  `remedy` for a change whose cause the text has named already. The words about a state are chosen by `$labels.backend`,
  with vLLM's for the rest; complaints are about latencies, which only a vLLM reports.
- `${advice.of_state}`, which begins a choice by `.Labels.state` between the states that need a change, each with its
  title and first remedies, by `$labels.backend` too. The source goes on with `{{ else }}` and `{{ end }}`.

Every alert has a severity (critical pages somebody now, warning is a ticket, info is neither), a row in docs/alerts.md
and a page in docs/runbooks.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from alerts.generate.links import build_dashboard_path, build_runbook_url
from phasewatch.analysis.advice.handbook import list_complaints
from phasewatch.analysis.advice.remedy import Advice, Remedy, list_words
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends import list_handbooks
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.backends.vllm import VLLM
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
_WORDS: Final = re.compile(r"advice\.(\w+)\.(change|avoid|remedy)\[(\d+)(?::(\d+))?\]")

_DEFAULT: Final = VLLM.handbook
_OTHERS: Final = {name: handbook for name, handbook in list_handbooks().items() if name != VLLM.name}
_COMPLAINTS: Final[Mapping[str, Advice]] = {**list_complaints(_DEFAULT), **FINDINGS}


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
    """The words of a placeholder.

    Raises:
        ValueError: it does not exist.
    """
    if placeholder == "advice.of_state":
        return _choose_by_state()
    parts = _WORDS.fullmatch(placeholder)
    if parts is not None:
        name, field, first = parts[1], parts[2], int(parts[3])
        last = first + 1 if parts[4] is None else int(parts[4])
        if name in _COMPLAINTS:
            words = _join_words(_COMPLAINTS[name], field, first, last)
        else:
            words = _choose_by_backend(name, field, first, last)
        if words:
            return words
    raise ValueError(f"no advice is called ${{{placeholder}}}; expected one such as ${{advice.stuck.change[0]}}")


def _join_words(advice: Advice, field: str, first: int, last: int) -> str:
    """Some sentences of an advice; empty if vLLM's advice, which the sources are written for, has no such ones."""
    sentences = list_words(_select_remedies(advice, field))
    return " ".join(sentences[first:last])


def _select_remedies(advice: Advice, field: str) -> tuple[Remedy, ...]:
    if field == "remedy":
        return tuple(replace(remedy, cause=None) for remedy in advice.change)
    return advice.change if field == "change" else advice.avoid


def _choose_by_backend(name: str, field: str, first: int, last: int) -> str:
    """Words about a state, as a choice by the kind of server if another than vLLM has words of its own."""
    advice = next((advice for state, advice in _DEFAULT.states.items() if state == name), None)
    words = "" if advice is None else _join_words(advice, field, first, last)
    others = {
        backend: _join_words(handbook.states[SaturationState(name)], field, first, last)
        for backend, handbook in _OTHERS.items()
        if words and name in handbook.states
    }
    choices = [f'if eq $labels.backend "{backend}" }}}}{text}' for backend, text in others.items()]
    return "{{ " + "{{ else ".join([*choices, f"}}}}{words}{{{{ end }}}}"]) if choices else words


def _choose_by_state() -> str:
    choices = [
        f"if {condition} }}}}{advice.title}. {' '.join(list_words(advice.change)[:_REMEDIES])}"
        for state in _DEFAULT.states
        for condition, advice in _list_conditions(state)
        if advice.change
    ]
    return "{{ " + "{{ else ".join(choices)


def _list_conditions(state: SaturationState) -> Iterator[tuple[str, Advice]]:
    """The conditions under which each advice on a state is given, vLLM's for all the rest last."""
    for backend, handbook in _OTHERS.items():
        if state in handbook.states:
            yield f'and (eq .Labels.state "{state}") (eq $labels.backend "{backend}")', handbook.states[state]
    yield f'eq .Labels.state "{state}"', _DEFAULT.states[state]
