"""Advice: every state has some, it names flags and metrics that exist, and no two pieces contradict each other."""

import re
from collections.abc import Iterator
from itertools import permutations

import pytest

from phasewatch.analysis.advice.handbook import STATE_TITLES, choose_advice, list_complaints
from phasewatch.analysis.advice.remedy import (
    AIMS,
    CACHE_MEMORY,
    CACHE_QUANTISATION,
    OPPOSITES,
    PREFILL_COMPUTE,
    PREFIX_SHARING,
    WEIGHT_QUANTISATION,
    Advice,
    Remedy,
    find_flags,
    list_words,
)
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends import BACKENDS
from phasewatch.backends.llamacpp.advice import LLAMACPP_HANDBOOK
from phasewatch.backends.ollama.advice import FINDINGS
from phasewatch.backends.vllm.handbook import VLLM_HANDBOOK
from phasewatch.backends.vllm.state_advice import ADVICE, ASLEEP, RELEASES
from phasewatch.metrics.collector import TABLE
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from tests.support.advice import CALM, FLAGS, SETTINGS, VLLM_FLAGS
from tests.support.paths import RECORDINGS, ROOT
from tests.support.targets import new_target

OF_VLLM = [*ADVICE.values(), ASLEEP, *list_complaints(VLLM_HANDBOOK).values()]
HANDBOOKS = {**{backend.name: backend.handbook for backend in BACKENDS}, "llamacpp": LLAMACPP_HANDBOOK}
BY_SERVER = {
    name: [
        *handbook.states.values(),
        *([handbook.asleep] if handbook.asleep else []),
        *list_complaints(handbook).values(),
        *(FINDINGS.values() if name == "ollama" else ()),
    ]
    for name, handbook in HANDBOOKS.items()
}
"""All advice for each kind of server."""
ALL = list(dict.fromkeys(advice for advices in BY_SERVER.values() for advice in advices))


def list_all_words(advice: Advice) -> tuple[str, ...]:
    return (*list_words(advice.change), *list_words(advice.avoid))


def join_texts(advice: Advice) -> str:
    return " ".join((advice.title, advice.meaning, *list_all_words(advice)))


def test_every_state_has_advice_and_the_calm_ones_have_nothing_to_change() -> None:
    assert set(ADVICE) == set(SaturationState)
    for name, handbook in HANDBOOKS.items():
        assert {state for state, advice in handbook.states.items() if not advice.change} == CALM, name


def test_a_state_has_the_same_title_for_every_kind_of_server() -> None:
    for name, handbook in HANDBOOKS.items():
        assert all(advice.title == STATE_TITLES[state] for state, advice in handbook.states.items()), name
    assert set(STATE_TITLES) == set(SaturationState)


def test_every_limiting_state_has_something_to_avoid() -> None:
    for name, handbook in HANDBOOKS.items():
        assert all(advice.avoid for state, advice in handbook.states.items() if state not in CALM), name


def test_what_helps_at_once_comes_first_and_needs_no_restart() -> None:
    for advice in ALL:
        if advice.change:
            first, *others = advice.change
            assert first.at_once, advice
            assert not first.restart, advice
            assert not any(remedy.at_once for remedy in others), advice


def test_whatever_changes_a_flag_needs_a_restart() -> None:
    for advice in ALL:
        for remedy in advice.change:
            if ((remedy.raises | remedy.lowers) - AIMS) | (find_flags(remedy.text) - {"--max-num-active-seqs"}):
                assert remedy.restart, remedy


def test_flags_and_metrics_in_the_advice_exist() -> None:
    for name, advices in BY_SERVER.items():
        for advice in advices:
            assert find_flags(join_texts(advice)) <= FLAGS[name], advice
    for advice in ALL:
        assert set(re.findall(r"llm_\w+", join_texts(advice))) <= {metric.name for metric in TABLE}, advice
    assert RELEASES.first.keys() <= VLLM_FLAGS


def test_a_remedy_knows_the_releases_of_the_flags_that_it_names() -> None:
    for advice in OF_VLLM:
        for remedy in (*advice.change, *advice.avoid):
            assert (remedy.releases is RELEASES) == bool(find_flags(remedy.text) & RELEASES.first.keys()), remedy


def test_a_remedy_declares_what_its_words_raise_and_lower() -> None:
    for advice in ALL:
        for remedy in (*advice.change, *advice.avoid):
            for verb, declared in (("raise", remedy.raises), ("lower", remedy.lowers)):
                said = set(re.findall(rf"\b{verb} ((?:--)?[\w-]+)", remedy.text, re.IGNORECASE))
                assert {word for word in said if word.startswith(("--", "OLLAMA_"))} <= declared, remedy
                assert all(name in remedy.text for name in declared - AIMS), remedy
            assert remedy.raises | remedy.lowers <= set.union(*FLAGS.values()) | SETTINGS | AIMS, remedy


def test_a_remedy_declares_what_its_words_do_to_memory_and_quantisation() -> None:
    signs = {
        CACHE_MEMORY: r"more memory\b(?! bandwidth)|memory of the KV cache",
        CACHE_QUANTISATION: r"--kv-cache-dtype|--cache-type|quantise the KV cache",
        WEIGHT_QUANTISATION: r"quantise (the )?weights|quantised (weights|model)",
        PREFIX_SHARING: r"prefix caching|prompt cache",
        PREFILL_COMPUTE: r"faster devices",
    }
    assert signs.keys() == AIMS
    for advice in (advice for name, advices in BY_SERVER.items() for advice in advices if name != "ollama"):
        for remedy in (*advice.change, *advice.avoid):
            said = {aim for aim, sign in signs.items() if re.search(sign, remedy.text)}
            assert said == (remedy.raises | remedy.lowers) & AIMS, remedy


GOALS = ("to shorten the queue", "for the first token")
"""Goals that a warning names. Another remedy may ask for the same for another goal."""


def pulls(advice: Advice) -> Iterator[tuple[str, bool, Remedy]]:
    """What an advice says about each flag: whether it should go up. What it warns of counts as the opposite."""
    for remedies, warned in ((advice.change, False), (advice.avoid, True)):
        for remedy in remedies:
            for names, up in ((remedy.raises, True), (remedy.lowers, False)):
                yield from ((name, up != warned, remedy) for name in names)


def list_deciding(remedy: Remedy, opposite: Remedy, around: Advice) -> list[str]:
    """The conditions that a remedy names in its words and that fail where the opposite one is given; or the goal for
    which a warning says that something does not help.
    """
    fail = {OPPOSITES[condition] for condition in (*opposite.conditions, *around.holds)}
    (words,) = list_words((remedy,))
    decided = [condition for condition in remedy.conditions if condition in fail and condition in words]
    return decided + ([goal for goal in GOALS if goal in words] if words.casefold().find("do not ") >= 0 else [])


def test_no_two_remedies_pull_a_flag_in_both_directions_without_saying_what_decides() -> None:
    """Two states may have alerts at the same time, and each may stand beside each complaint."""
    compared = 0
    pairs = (pair for advices in BY_SERVER.values() for pair in permutations(advices, 2))
    for one, other in pairs:
        for name, up, remedy in pulls(one):
            for same, down, opposite in pulls(other):
                if name != same or not up or down:
                    continue
                compared += 1
                assert list_deciding(remedy, opposite, other) or list_deciding(opposite, remedy, one), (
                    remedy,
                    opposite,
                )
    assert compared > 5


def test_no_advice_contradicts_itself() -> None:
    for advice in ALL:
        for (name, up, one), (same, down, other) in permutations(pulls(advice), 2):
            # One warning may say to leave something as it is, neither higher nor lower.
            assert name != same or up == down or one is other, (one, other)


def test_a_sleeping_engine_gets_the_advice_on_sleep() -> None:
    assert choose_advice(VLLM_HANDBOOK, SaturationState.STUCK, asleep=True) is ASLEEP
    assert choose_advice(VLLM_HANDBOOK, SaturationState.STUCK, asleep=False) is ADVICE[SaturationState.STUCK]


DOC = (ROOT / "docs" / "saturation.md").read_text(encoding="utf-8")


def test_the_saturation_page_quotes_all_advice() -> None:
    for advice in ALL:
        assert advice.title in DOC, advice
        assert advice.meaning in DOC, advice
        assert all(f"- {line}\n" in DOC for line in list_all_words(advice)), advice


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
