"""Handwritten alerts: their links and the words of advice are filled in, and neither is typed."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.generate import slo
from alerts.generate.alerts import SUBJECTS, render_rules
from alerts.generate.links import build_dashboard_path, build_runbook_url
from phasewatch.analysis.advice.remedy import Advice, list_words
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends import list_handbooks
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN, SLOW_STREAM
from phasewatch.backends.vllm.state_advice import ADVICE
from phasewatch.base.errors import ConfigError
from tests.support.paths import ALERTS
from tests.support.rule_files import alerts

SOURCE: Final = """\
# For editors alone.
groups:
  - name: one
    rules:
      # Why it is so.
      - alert: LLMOne
        expr: x > 1
        annotations:
          summary: One.
          description: >-
            It is so. ${advice.preempting.change[0:2]}
            ${advice.slow_stream.avoid[0]}
          dashboard: phases
"""


def step(advice: Advice, index: int = 0) -> str:
    return list_words(advice.change)[index]


def test_the_sources_are_all_in_the_rule_file() -> None:
    assert {path.name for path in (ALERTS / "alerts").iterdir()} == {f"{subject}.yml" for subject in SUBJECTS}


def test_links_and_words_are_filled_in_and_comments_are_kept() -> None:
    text = render_rules({"one": SOURCE})
    ((rule,),) = (group["rules"] for group in yaml.safe_load(text)["groups"])
    assert rule == {
        "alert": "LLMOne",
        "expr": "x > 1",
        "annotations": {
            "summary": "One.",
            "description": " ".join(
                (
                    "It is so.",
                    step(ADVICE[SaturationState.PREEMPTING]),
                    step(ADVICE[SaturationState.PREEMPTING], 1),
                    list_words(SLOW_STREAM.avoid)[0],
                )
            ),
            "runbook_url": build_runbook_url("LLMOne"),
            "dashboard": build_dashboard_path("phases"),
        },
    }
    assert "# Why it is so." in text
    assert "# For editors alone." not in text


def test_words_about_a_state_are_chosen_by_the_kind_of_server_and_those_of_vllm_are_for_the_rest() -> None:
    source = SOURCE.replace("advice.preempting", "advice.stuck")
    ((rule,),) = (group["rules"] for group in yaml.safe_load(render_rules({"one": source}))["groups"])
    words = {
        name: " ".join(list_words(handbook.states[SaturationState.STUCK].change)[:2])
        for name, handbook in list_handbooks().items()
    }
    vllm = words.pop("vllm")
    others = "else ".join(f'if eq $labels.backend "{name}" }}}}{text}{{{{ ' for name, text in words.items())
    assert f"It is so. {{{{ {others}else }}}}{vllm}{{{{ end }}}} " in " ".join(
        rule["annotations"]["description"].split()
    )
    assert {"ollama", "llamacpp"} <= words.keys()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("dashboard: phases", "dashboard: phase", "expected one of overview, phases, "),
        ("          dashboard: phases\n", "", "expected one line with `dashboard: BOARD`, found 0"),
        ("advice.preempting", "advice.preempt", "no advice is called ${advice.preempt.change[0:2]}"),
        ("change[0:2]", "change[9]", "no advice is called ${advice.preempting.change[9]}"),
        ("change[0:2]", "change[9:11]", "no advice is called ${advice.preempting.change[9:11]}"),
        ("change[0:2]", "meaning", "no advice is called ${advice.preempting.meaning}"),
        ("change[0:2]", "change", "no advice is called ${advice.preempting.change}"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_alert_that_names_it(old: str, new: str, problem: str) -> None:
    assert old in SOURCE
    with pytest.raises(ConfigError) as caught:
        render_rules({"one": SOURCE.replace(old, new)})
    assert str(caught.value).startswith(f"alerts/one.yml: LLMOne: {problem}")


def test_every_alert_with_a_mistake_is_reported() -> None:
    source = SOURCE.replace("dashboard: phases", "dashboard: phase")
    with pytest.raises(ConfigError) as caught:
        render_rules({"one": source, "two": source.replace("LLMOne", "LLMTwo")})
    assert [problem.path for problem in caught.value.problems] == ["alerts/one.yml: LLMOne", "alerts/two.yml: LLMTwo"]


def sources() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in (ALERTS / "alerts").iterdir()}


def test_no_link_is_typed() -> None:
    for name, text in sources().items():
        assert not re.search(r"https?:|/d/|runbook_url|var-|urlquery", text), name


def test_no_word_of_advice_is_typed() -> None:
    for name, text in {**sources(), "slo.py": Path(slo.__file__).read_text(encoding="utf-8")}.items():
        words = " ".join(text.split())
        of_states = (advice for handbook in list_handbooks().values() for advice in handbook.states.values())
        for advice in (*of_states, SLOW_FIRST_TOKEN, SLOW_STREAM, *FINDINGS.values()):
            for sentence in (*list_words(advice.change), *list_words(advice.avoid)):
                assert sentence not in words, name


def advised_steps() -> Iterator[tuple[str, str]]:
    """Alerts, and what their description has to say."""
    states = {
        "LLMKvCacheFull": SaturationState.KV_CACHE_FULL,
        "LLMPreempting": SaturationState.PREEMPTING,
        "LLMConcurrencyLimited": SaturationState.CONCURRENCY_LIMITED,
        "LLMPrefillLimited": SaturationState.PREFILL_LIMITED,
        "LLMRequestsDeferred": SaturationState.DEFERRED,
        "LLMEngineStuck": SaturationState.STUCK,
        "LLMShedding": SaturationState.SHEDDING,
    }
    for alert, state in states.items():
        yield alert, step(ADVICE[state])
        yield alert, step(ADVICE[state], 1)
    for alert in ("LLMWaitingQueueGrowing", "LLMTimeToFirstTokenHighQueue"):
        for advice in ADVICE.values():
            for remedy in list_words(advice.change)[:2]:
                yield alert, remedy
    yield "LLMEngineStuck", step(ADVICE[SaturationState.STUCK], 2)
    yield "LLMTokenStall", step(ADVICE[SaturationState.STUCK], 2)
    for cause in list_words(ADVICE[SaturationState.DEFERRED].change)[:6]:
        yield "LLMRequestsDeferred", cause
    for remedy in list_words(SLOW_FIRST_TOKEN.change)[2:4]:
        yield "LLMTimeToFirstTokenHighPrefill", remedy
    yield "LLMTimeToFirstTokenBudgetBurn", step(SLOW_FIRST_TOKEN, 2)
    # Each stands behind its cause.
    for remedy in list_words(tuple(replace(remedy, cause=None) for remedy in SLOW_STREAM.change))[:6]:
        yield "LLMInterTokenLatencyHigh", remedy
    for remedy in list_words(SLOW_STREAM.change)[:3]:
        yield "LLMInterTokenLatencyBudgetBurn", remedy
    for remedy in list_words(FINDINGS["partial_offload"].change)[:2]:
        yield "LLMModelPartlyOnCpu", remedy


def test_a_choice_by_state_has_each_state_that_needs_a_change_with_what_helps_at_once_first() -> None:
    (rule,) = (rule for rule in alerts() if rule["alert"] == "LLMWaitingQueueGrowing")
    text = " ".join(rule["annotations"]["description"].split())
    for state, advice in ADVICE.items():
        words = f'if eq .Labels.state "{state}" }}}}{advice.title}. {step(advice) if advice.change else ""}'
        assert (words in text) == bool(advice.change), state


@pytest.mark.parametrize(("alert", "words"), list(advised_steps()))
def test_the_words_of_an_alert_are_those_of_advice(alert: str, words: str) -> None:
    descriptions = [" ".join(rule["annotations"]["description"].split()) for rule in alerts() if rule["alert"] == alert]
    assert descriptions
    assert all(words in description for description in descriptions)
