"""Advice: every state has its words, and the words name flags and metrics that exist."""

import re

import pytest

from phasewatch.analysis.advice import ADVICE, ASLEEP, COMPLAINTS, OLLAMA, Advice, choose_advice
from phasewatch.analysis.saturation import SaturationState
from phasewatch.metrics.collector import TABLE
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from tests.support.advice import CALM, VLLM_FLAGS
from tests.support.paths import RECORDINGS, ROOT
from tests.support.targets import new_target

ALL = [*ADVICE.values(), ASLEEP, *COMPLAINTS.values(), *OLLAMA.values()]


def words(advice: Advice) -> str:
    return " ".join((advice.title, advice.meaning, *advice.change, *advice.avoid))


def test_every_state_has_advice_and_the_calm_ones_have_nothing_to_change() -> None:
    assert set(ADVICE) == set(SaturationState)
    assert {state for state, advice in ADVICE.items() if not advice.change} == CALM


def test_every_condition_that_hurts_says_what_not_to_do() -> None:
    assert all(advice.avoid for state, advice in ADVICE.items() if state not in CALM)


@pytest.mark.parametrize("advice", ALL, ids=lambda advice: advice.title)
def test_flags_and_metrics_in_the_words_exist(advice: Advice) -> None:
    assert set(re.findall(r"--[a-z][a-z-]+", words(advice))) <= VLLM_FLAGS
    assert set(re.findall(r"llm_\w+", words(advice))) <= {metric.name for metric in TABLE}


def test_a_sleeping_engine_is_named_as_what_it_is() -> None:
    assert choose_advice(SaturationState.STUCK, asleep=True) is ASLEEP
    assert choose_advice(SaturationState.STUCK, asleep=False) is ADVICE[SaturationState.STUCK]


DOC = (ROOT / "docs" / "saturation.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("advice", ALL, ids=lambda advice: advice.title)
def test_the_page_about_saturation_takes_its_words_from_the_table(advice: Advice) -> None:
    assert advice.title in DOC
    assert advice.meaning in DOC
    assert all(f"- {line}\n" in DOC for line in (*advice.change, *advice.avoid))


def test_every_state_has_a_section_and_nothing_else_has() -> None:
    assert set(re.findall(r"^### `(\w+)`$", DOC, re.MULTILINE)) == {state.value for state in SaturationState}


EXAMPLE = re.compile(
    r"### `(\w+)`\n(?:(?!###).)*?"
    r"- Example: `([a-z-]+)`, second (\d+): (\d+) running, (\d+) waiting, KV cache at (\d\.\d\d)",
    re.DOTALL,
)


@pytest.mark.parametrize("example", EXAMPLE.findall(DOC), ids=lambda example: example[0])
def test_every_example_is_what_the_recording_shows(example: tuple[str, ...]) -> None:
    state, name, second, running, waiting, usage = example
    recording = RecordingReader(RECORDINGS / f"{name}.jsonl.xz")
    target = new_target("recording", "vllm", "http://recording.invalid")
    (engine,) = next(shown for time, shown in replay(recording, target) if time >= float(second)).engines
    load = engine.load
    assert (engine.state, load.requests_running, load.requests_waiting) == (state, float(running), float(waiting))
    assert load.kv_cache_usage_ratio == pytest.approx(float(usage), abs=0.005)
