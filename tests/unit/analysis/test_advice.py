"""Advice: every state has some, and it names flags and metrics that exist."""

import re

import pytest

from phasewatch.analysis.advice import ADVICE, ASLEEP, COMPLAINTS, OLLAMA_ADVICE, Advice, choose_advice
from phasewatch.analysis.saturation import SaturationState
from phasewatch.metrics.collector import TABLE
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from tests.support.advice import CALM, VLLM_FLAGS
from tests.support.paths import RECORDINGS, ROOT
from tests.support.targets import new_target

ALL = [*ADVICE.values(), ASLEEP, *COMPLAINTS.values(), *OLLAMA_ADVICE.values()]


def join_texts(advice: Advice) -> str:
    return " ".join((advice.title, advice.meaning, *advice.change, *advice.avoid))


def test_every_state_has_advice_and_the_calm_ones_have_nothing_to_change() -> None:
    assert set(ADVICE) == set(SaturationState)
    assert {state for state, advice in ADVICE.items() if not advice.change} == CALM


def test_every_limiting_state_has_something_to_avoid() -> None:
    assert all(advice.avoid for state, advice in ADVICE.items() if state not in CALM)


def test_flags_and_metrics_in_the_advice_exist() -> None:
    for advice in ALL:
        assert set(re.findall(r"--[a-z][a-z-]+", join_texts(advice))) <= VLLM_FLAGS, advice
        assert set(re.findall(r"llm_\w+", join_texts(advice))) <= {metric.name for metric in TABLE}, advice


def test_a_sleeping_engine_gets_the_advice_on_sleep() -> None:
    assert choose_advice(SaturationState.STUCK, asleep=True) is ASLEEP
    assert choose_advice(SaturationState.STUCK, asleep=False) is ADVICE[SaturationState.STUCK]


DOC = (ROOT / "docs" / "saturation.md").read_text(encoding="utf-8")


def test_the_saturation_page_quotes_all_advice() -> None:
    for advice in ALL:
        assert advice.title in DOC, advice
        assert advice.meaning in DOC, advice
        assert all(f"- {line}\n" in DOC for line in (*advice.change, *advice.avoid)), advice


def test_the_saturation_page_has_one_section_for_each_state() -> None:
    assert set(re.findall(r"^### `(\w+)`$", DOC, re.MULTILINE)) == {state.value for state in SaturationState}


EXAMPLE = re.compile(
    r"### `(\w+)`\n(?:(?!###).)*?"
    r"- Example: `([a-z-]+)`, second (\d+): (\d+) running, (\d+) waiting, KV cache at (\d\.\d\d)",
    re.DOTALL,
)


def test_every_documented_example_matches_its_recording() -> None:
    for example in EXAMPLE.findall(DOC):
        state, name, second, running, waiting, usage = example
        recording = RecordingReader(RECORDINGS / f"{name}.jsonl.xz")
        target = new_target("recording", "vllm", "http://recording.invalid")
        (engine,) = next(snapshot for time, snapshot in replay(recording, target) if time >= float(second)).engines
        load = engine.load
        assert (engine.state, load.requests_running, load.requests_waiting) == (
            state,
            float(running),
            float(waiting),
        ), example
        assert load.kv_cache_usage_ratio == pytest.approx(float(usage), abs=0.005), example
