"""Diagnoses: the state of an engine and what its users notice, with the cause and without contradictions."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations, product
from typing import Final

from phasewatch.analysis.advice.diagnosis import (
    LONG_CONTEXT,
    MANY_STREAMS,
    Diagnosis,
    Figures,
    diagnose,
    find_first_token_cause,
    find_token_cause,
)
from phasewatch.analysis.advice.remedy import Cause, Known, Remedy, list_words, pull_alike
from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.objectives import Objective, Verdict
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.quantiles import Quantile
from phasewatch.analysis.queue import Load
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN, SLOW_STREAM
from phasewatch.backends.vllm.handbook import VLLM_HANDBOOK
from phasewatch.backends.vllm.state_advice import ADVICE, ASLEEP

SLOW_TOKENS: Final = {Objective.INTER_TOKEN_LATENCY: Verdict(met=False, value=8.0, objective=0.3, order=0.99)}
SLOW_FIRST: Final = {Objective.TIME_TO_FIRST_TOKEN: Verdict(met=False, value=12.0, objective=2.5, order=0.95)}
SLOW_STREAMS: Final = {Objective.DECODE_TOKENS_PER_SECOND: Verdict(met=False, value=3.25, objective=20.0)}
FAST_TOKENS: Final = {Objective.INTER_TOKEN_LATENCY: Verdict(met=True, value=0.05, objective=0.3, order=0.99)}
NOTHING: Final = Figures({}, Latencies(), Phases(), Load())
PROMPTS: Final = Figures(
    SLOW_TOKENS,
    Latencies(inter_token=Distribution(0.2, ((0.99, Quantile(8.0, 7.5, 10.0)),))),
    Phases(prefill_throughput_tokens_per_second=20.0, decode_throughput_tokens_per_second=100.0, decode_streams=20.0),
    Load(),
)


def look(
    state: SaturationState, figures: Figures = NOTHING, *, asleep: bool = False, version: str | None = None
) -> Diagnosis:
    return diagnose(VLLM_HANDBOOK, state, figures, asleep=asleep, version=version)


def test_without_a_missed_objective_the_words_are_those_of_the_state() -> None:
    for state, objectives in product(SaturationState, ({}, FAST_TOKENS)):
        diagnosis = look(state, replace(NOTHING, objectives=objectives))
        assert (diagnosis.title, diagnosis.meaning) == (ADVICE[state].title, ADVICE[state].meaning), state
        assert not diagnosis.missed


def test_no_queue_beside_slow_tokens_names_symptom_cause_and_remedy() -> None:
    diagnosis = look(SaturationState.HEALTHY, PROMPTS)
    assert diagnosis.title == "No queue, but slow tokens"
    assert "p99 inter-token latency is 8 s; the objective is 300 ms." in diagnosis.meaning
    assert "Likely cause: prompts that are computed in the same steps." in diagnosis.meaning
    assert diagnosis.change[0].startswith("At once: ")
    assert any("lower --max-num-batched-tokens" in words for words in diagnosis.change)
    assert not any("--max-num-seqs" in words for words in diagnosis.change), "that is for another cause"
    assert diagnosis.missed


def test_a_slow_stream_is_a_symptom_of_its_own_objective() -> None:
    diagnosis = look(SaturationState.HEALTHY, replace(PROMPTS, objectives=SLOW_STREAMS))
    assert diagnosis.title == "No queue, but slow tokens"
    assert "A stream gets 3.2 tokens per second; the objective is 20." in diagnosis.meaning


def test_a_missed_objective_always_has_something_to_change() -> None:
    for objectives, queue in product((SLOW_TOKENS, SLOW_FIRST, SLOW_STREAMS), (None, 0.1, 9.0)):
        latencies = replace(PROMPTS.latencies, queue=Distribution(queue), prefill=Distribution(1.0))
        figures = replace(PROMPTS, objectives=objectives, latencies=latencies)
        assert look(SaturationState.HEALTHY, figures).change, (objectives, queue)


def test_a_slow_first_token_is_told_by_its_larger_part() -> None:
    for queue, prefill, cause in ((9.0, 1.0, Cause.QUEUE), (1.0, 9.0, Cause.PREFILL), (1.0, None, None)):
        latencies = Latencies(queue=Distribution(queue), prefill=Distribution(prefill))
        assert find_first_token_cause(latencies) is cause
    figures = Figures(SLOW_FIRST, Latencies(queue=Distribution(1.0), prefill=Distribution(9.0)), Phases(), Load())
    diagnosis = look(SaturationState.HEALTHY, figures)
    assert diagnosis.title == "No queue, but a slow first token"
    assert "Most of that is prefill." in diagnosis.meaning
    assert any(words.startswith("Prefill") for words in diagnosis.change)
    assert not any(words.startswith("Queue") for words in diagnosis.change)


def test_a_late_first_token_behind_a_queue_is_met_by_the_advice_on_the_state() -> None:
    figures = Figures(SLOW_FIRST, Latencies(queue=Distribution(9.0), prefill=Distribution(1.0)), Phases(), Load())
    diagnosis = look(SaturationState.KV_CACHE_FULL, figures, version="0.33.0")
    assert diagnosis.title == "KV cache full, a slow first token"
    assert diagnosis.change == look(SaturationState.KV_CACHE_FULL, version="0.33.0").change
    gone = look(SaturationState.HEALTHY, figures)
    assert gone.meaning.endswith("Most of that was time in a queue that has since drained: requests come in bursts.")
    assert gone.change == ("At once: send less, or add a replica.",)


def test_remedies_for_slow_tokens_go_before_those_for_the_queue_and_these_before_prefill() -> None:
    prompts = "Prompts in the same steps: "
    tokens = look(SaturationState.KV_CACHE_FULL, PROMPTS).change
    assert tokens[1].startswith(prompts)
    late = Figures(SLOW_FIRST, Latencies(queue=Distribution(1.0), prefill=Distribution(9.0)), Phases(), Load())
    change = look(SaturationState.KV_CACHE_FULL, late).change
    state = look(SaturationState.KV_CACHE_FULL).change
    assert change[: len(state)] == state
    assert change[len(state)].startswith("Prefill: ")


def test_both_symptoms_are_named() -> None:
    figures = replace(PROMPTS, objectives={**SLOW_TOKENS, **SLOW_FIRST})
    assert look(SaturationState.HEALTHY, figures).title == "No queue, but slow tokens and a slow first token"
    assert look(SaturationState.PREFILL_LIMITED, figures).title == (
        "Prefill limited, slow tokens and a slow first token"
    )


def test_the_cause_of_slow_tokens_is_the_first_that_shows() -> None:
    small = Phases(
        prefill_throughput_tokens_per_second=0.0, decode_throughput_tokens_per_second=50.0, decode_streams=1.0
    )
    large = replace(small, decode_streams=MANY_STREAMS)
    mixed = replace(large, prefill_throughput_tokens_per_second=60.0)
    rows = (
        (mixed, Load(preemptions_per_second=0.1, context_tokens=LONG_CONTEXT), Cause.PREEMPTIONS),
        (mixed, Load(preemptions_per_second=0.0, context_tokens=LONG_CONTEXT), Cause.SHARED_STEPS),
        (large, Load(context_tokens=LONG_CONTEXT), Cause.LONG_CONTEXTS),
        (large, Load(context_tokens=LONG_CONTEXT - 1), Cause.MANY_STREAMS),
        (small, Load(), Cause.FEW_STREAMS),
        (Phases(), Load(), Cause.FEW_STREAMS),
    )
    for phases, load, cause in rows:
        assert find_token_cause(Figures(SLOW_TOKENS, Latencies(), phases, load)) is cause, (phases, load)


def test_a_few_long_steps_are_blamed_on_prompts_only_if_there_are_any() -> None:
    assert find_token_cause(PROMPTS) is Cause.SHARED_STEPS
    without = replace(PROMPTS, phases=replace(PROMPTS.phases, prefill_throughput_tokens_per_second=0.0))
    assert find_token_cause(without) is Cause.MANY_STREAMS
    steady = replace(PROMPTS, latencies=Latencies(inter_token=Distribution(6.0, ((0.99, Quantile(8.0, 7.5, 10.0)),))))
    assert find_token_cause(steady) is Cause.MANY_STREAMS


def test_preemptions_bring_their_own_remedies() -> None:
    figures = replace(PROMPTS, load=Load(preemptions_per_second=0.2))
    change = look(SaturationState.HEALTHY, figures, version="0.32.0").change
    assert set(change) == set(list_words(ADVICE[SaturationState.PREEMPTING].change, Known("0.32.0")))


def test_no_diagnosis_raises_and_lowers_a_flag() -> None:
    """Whatever is missed: the faster token wins, so raising is left out while tokens are slow."""
    for state, slow, preemptions in product(
        SaturationState,
        (SLOW_TOKENS, SLOW_FIRST, {**SLOW_TOKENS, **SLOW_FIRST}, {**FAST_TOKENS, **SLOW_FIRST}),
        (0.0, 0.2),
    ):
        figures = replace(PROMPTS, objectives=slow, load=Load(preemptions_per_second=preemptions))
        diagnosis = look(state, figures)
        for flag in ("--max-num-batched-tokens", "--max-num-seqs"):
            raised = [words for words in diagnosis.change if f"raise {flag}" in words.lower()]
            lowered = [words for words in diagnosis.change if f"lower {flag}" in words.lower()]
            assert not (raised and lowered), (state, slow, preemptions)
            if Objective.INTER_TOKEN_LATENCY in slow and not slow[Objective.INTER_TOKEN_LATENCY].met:
                assert not raised, (state, flag)


FIGURES_BY_CAUSE: Final = {
    Cause.PREEMPTIONS: replace(PROMPTS, load=Load(preemptions_per_second=0.2)),
    Cause.SHARED_STEPS: PROMPTS,
    Cause.LONG_CONTEXTS: Figures({}, Latencies(), Phases(), Load(context_tokens=LONG_CONTEXT)),
    Cause.MANY_STREAMS: Figures({}, Latencies(), Phases(decode_streams=MANY_STREAMS), Load()),
    Cause.FEW_STREAMS: NOTHING,
}


def list_diagnoses() -> Iterator[tuple[str, Diagnosis]]:
    """Diagnoses of each state with each missed objective and each cause, by what they are of."""
    for state, slow, (cause, figures), prefill in product(
        SaturationState,
        (SLOW_TOKENS, SLOW_FIRST, {**SLOW_TOKENS, **SLOW_FIRST}, {**FAST_TOKENS, **SLOW_FIRST}),
        FIGURES_BY_CAUSE.items(),
        (None, 1.0, 9.0),
    ):
        latencies = replace(figures.latencies, queue=Distribution(5.0), prefill=Distribution(prefill))
        name = f"{state}, {sorted(slow)}, {cause}, prefill {prefill}"
        yield name, look(state, replace(figures, objectives=slow, latencies=latencies), version="0.33.0")


def find_remedies(words: tuple[str, ...], remedies: Iterable[Remedy]) -> list[Remedy]:
    """The remedies whose words are among some."""
    return [remedy for remedy in remedies if any(remedy.text[1:] in line for line in words)]


ADVISED: Final = [*ADVICE.values(), SLOW_STREAM, SLOW_FIRST_TOKEN]
CHANGES: Final = dict.fromkeys(remedy for advice in ADVISED for remedy in advice.change)
WARNINGS: Final = dict.fromkeys(remedy for advice in ADVISED for remedy in advice.avoid)


def test_every_cause_is_the_one_that_its_figures_show() -> None:
    assert {cause: find_token_cause(figures) for cause, figures in FIGURES_BY_CAUSE.items()} == {
        cause: cause for cause in FIGURES_BY_CAUSE
    }


def test_no_diagnosis_warns_of_what_it_asks_for() -> None:
    for name, diagnosis in list_diagnoses():
        asked = find_remedies(diagnosis.change, CHANGES)
        for warning, remedy in product(find_remedies(diagnosis.avoid, WARNINGS), asked):
            assert not pull_alike(warning, remedy), (name, warning.text, remedy.text)
        for one, other in permutations(asked, 2):
            assert not one.raises & other.lowers, (name, one.text, other.text)


def test_a_diagnosis_keeps_the_warnings_that_contradict_nothing() -> None:
    slow = replace(FIGURES_BY_CAUSE[Cause.MANY_STREAMS], objectives=SLOW_TOKENS)
    assert any("Do not quantise the KV cache" in words for words in look(SaturationState.PREFILL_LIMITED, slow).avoid)
    long = replace(FIGURES_BY_CAUSE[Cause.LONG_CONTEXTS], objectives=SLOW_TOKENS)
    assert not any("quantise" in words for words in look(SaturationState.PREFILL_LIMITED, long).avoid)


def test_no_diagnosis_gives_the_same_advice_twice() -> None:
    for name, diagnosis in list_diagnoses():
        of_state = next(advice for advice in ADVICE.values() if diagnosis.title.startswith(advice.title))
        for field in ("change", "avoid"):
            words = getattr(diagnosis, field)
            present = find_remedies(words, getattr(of_state, field))
            for complaint in (SLOW_STREAM, SLOW_FIRST_TOKEN):
                for remedy in find_remedies(words, getattr(complaint, field)):
                    assert not any(pull_alike(remedy, other) for other in present), (name, remedy.text)


def test_a_figure_is_shown_beside_its_objective() -> None:
    for value, objective, words in (
        (0.349, 0.3, "349 ms; the objective is 300 ms"),
        (0.9996, 0.3, "1 s; the objective is 300 ms"),
        (12.34, 2.5, "12.3 s; the objective is 2.5 s"),
        (150.4, 100.0, "150 s; the objective is 100 s"),
    ):
        verdict = Verdict(met=False, value=value, objective=objective, order=0.5)
        figures = replace(NOTHING, objectives={Objective.INTER_TOKEN_LATENCY: verdict})
        assert f"p50 inter-token latency is {words}." in look(SaturationState.HEALTHY, figures).meaning, value


def test_prompts_are_not_let_in_faster_while_tokens_are_slow() -> None:
    for state in (SaturationState.PREFILL_LIMITED, SaturationState.DEFERRED):
        for objectives, offered in ((SLOW_TOKENS, False), (FAST_TOKENS, True)):
            change = look(state, replace(PROMPTS, objectives=objectives), version="0.33.0").change
            assert any("--prefill-schedule-interval" in words for words in change) is offered, (state, objectives)


def test_raising_the_budget_of_a_step_is_offered_while_tokens_are_fast() -> None:
    figures = replace(PROMPTS, objectives={**FAST_TOKENS, **SLOW_FIRST})
    change = look(SaturationState.PREFILL_LIMITED, figures).change
    assert any(words.startswith("Raise --max-num-batched-tokens for more prompt tokens a step") for words in change)


def test_what_helps_at_once_is_said_once_and_first() -> None:
    for state in SaturationState:
        change = look(state, replace(PROMPTS, objectives={**SLOW_TOKENS, **SLOW_FIRST})).change
        at_once = [index for index, words in enumerate(change) if words.startswith("At once: ")]
        assert at_once == ([0] if change else []), state


def test_an_engine_that_does_nothing_has_no_symptoms() -> None:
    for state in (SaturationState.IDLE, SaturationState.STUCK):
        assert look(state, PROMPTS).title == ADVICE[state].title
    assert look(SaturationState.DEFERRED, PROMPTS, asleep=True).title == ASLEEP.title


def test_flags_that_the_server_lacks_are_not_offered() -> None:
    for version, offered in (("0.23.0", False), ("0.24.0", True), (None, True)):
        words = " ".join(look(SaturationState.PREEMPTING, version=version).change)
        assert ("--watermark" in words) is offered, version
    for version, offered in (("0.32.0", False), ("0.33.0", True), (None, True)):
        words = " ".join(look(SaturationState.PREFILL_LIMITED, version=version).change)
        assert ("--prefill-schedule-interval" in words) is offered, version


def test_every_cause_of_a_complaint_has_a_remedy() -> None:
    tokens = {Cause.SHARED_STEPS, Cause.MANY_STREAMS, Cause.LONG_CONTEXTS, Cause.FEW_STREAMS, Cause.PREEMPTIONS}
    assert {remedy.cause for remedy in SLOW_STREAM.change} == {None, *tokens}
    assert {remedy.cause for remedy in SLOW_FIRST_TOKEN.change} == {None, Cause.QUEUE, Cause.PREFILL}
