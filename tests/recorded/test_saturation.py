"""The saturation signature: right on labelled recordings of real servers, steady, and never at a loss."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.phases import Phases
from phasewatch.analysis.progress import Progress, advance_progress
from phasewatch.analysis.samples import EngineKey, EngineSample, Histogram, Page
from phasewatch.analysis.saturation import Saturation, SaturationState, advance_saturation, judge_state, select_recent
from phasewatch.analysis.window import EngineHistory
from phasewatch.backends.page_state import PageState, build_snapshot, fold_page
from phasewatch.backends.vllm.totals import PAGE_RULES
from phasewatch.config.settings import SaturationSettings, ServerSettings, Target
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.paths import RECORDINGS
from tests.support.targets import new_saturation_settings, new_target

KEY = EngineKey("m", "0")
TARGET = new_target("chat", "vllm", "http://a.invalid")
LABELS = json.loads((RECORDINGS / "labels.json").read_text())


@cache
def states(name: str, window: float = TARGET.window) -> list[tuple[float, str, SaturationState]]:
    """Time, engine and state after every scrape of a recording."""
    return list(states_of(name, replace(TARGET, window=window)))


def states_of(name: str, target: Target) -> Iterator[tuple[float, str, SaturationState]]:
    for time, snapshot in replay(RecordingReader(RECORDINGS / f"{name}.jsonl.xz"), target):
        for engine in snapshot.engines:
            assert engine.state is not None
            yield time, engine.key.engine or "", engine.state


@pytest.mark.parametrize("window", [15.0, 60.0])
@pytest.mark.parametrize("name", LABELS)
def test_every_labelled_second_of_a_real_server_gets_an_accepted_state(name: str, window: float) -> None:
    wrong = [
        (time, engine, state)
        for time, engine, state in states(name, window)
        for span in LABELS[name]
        if span["from"] <= time <= span["to"] and state not in span["states"]
    ]
    assert wrong == []


def test_knowing_the_slots_does_not_change_what_is_right() -> None:
    for name, slots in (("seq-limit", 4), ("prefill-limited", 256), ("kv-saturation", 256), ("shedding", 4)):
        for time, _, state in states_of(name, replace(TARGET, server=ServerSettings(slots, None))):
            accepted = [span["states"] for span in LABELS[name] if span["from"] <= time <= span["to"]]
            assert not accepted or state in accepted[0], (name, time)


def test_a_server_that_is_paused_becomes_stuck_and_nothing_else_does() -> None:
    for name in LABELS:
        assert (SaturationState.STUCK in {state for _, _, state in states(name)}) == (name == "paused"), name


def test_one_saturated_engine_and_one_that_is_not_are_both_visible() -> None:
    state = PageState()
    for second in range(20):
        page = Page(
            None,
            False,
            {
                EngineKey("m", "0"): sample(second, running=4, waiting=9, usage=0.99),
                EngineKey("m", "1"): sample(second, running=2, waiting=0, usage=0.1),
            },
        )
        state = fold_page(state, page, ScrapeTiming(second, second + 0.1, None), TARGET, PAGE_RULES)
    states_by_engine = {engine.key.engine: engine.state for engine in build_snapshot(state, TARGET).engines}
    assert states_by_engine == {"0": SaturationState.KV_CACHE_FULL, "1": SaturationState.HEALTHY}


def test_a_stall_behind_one_huge_prompt_shows_within_three_scrapes_and_is_stuck_after_half_a_minute() -> None:
    state, stalls = PageState(), []
    for second in range(60):
        tokens = min(second, 10)
        page = Page(None, False, {KEY: sample(tokens, running=3, waiting=2, usage=0.3)})
        state = fold_page(state, page, ScrapeTiming(second, second + 0.1, None), TARGET, PAGE_RULES)
        (engine,) = build_snapshot(state, TARGET).engines
        assert (engine.state is SaturationState.STUCK) == (second >= 10 + TARGET.saturation.stuck_after)
        stalls.append(engine.token_stall_seconds)
    assert stalls[13] == pytest.approx(3)
    assert stalls[30] == pytest.approx(20)


def sample(
    tokens: float, *, running: float | None, waiting: float | None, usage: float | None, **facts: float
) -> EngineSample:
    quiet = EngineSample(preemptions=0.0, rejections=0.0, requests_deferred=0.0, generation_tokens=float(tokens))
    gauges = {"requests_running": running, "requests_waiting": waiting, "kv_cache_usage": usage}
    return replace(quiet, **gauges, **facts)  # type: ignore[arg-type]  # the names are those of the fields


def judged(
    *samples: EngineSample,
    phases: Phases | None = None,
    prompt_share: float | None = None,
    most_running: float = 0.0,
    server: ServerSettings | None = None,
) -> SaturationState:
    past = EngineHistory(tuple(map(float, range(len(samples)))), samples, frozenset())
    return judge_state(
        past,
        phases or Phases(decode_streams=3.0, prefill_streams=0.1),
        prompt_share=prompt_share,
        most_running=most_running,
        server=server or ServerSettings(),
        settings=new_saturation_settings(),
    )


SLOTS = ServerSettings(max_num_seqs=4, max_num_batched_tokens=512)
QUEUE = [sample(second, running=4, waiting=5, usage=0.5) for second in range(5)]
IDLE = [sample(7, running=0, waiting=0, usage=0) for _ in range(5)]


def test_no_requests_and_a_page_without_gauges_are_idle() -> None:
    assert judged(*IDLE) is SaturationState.IDLE
    assert judged(sample(7, running=None, waiting=None, usage=None)) is SaturationState.IDLE


def test_a_short_request_between_two_scrapes_is_healthy() -> None:
    assert judged(*IDLE, sample(9, running=0, waiting=0, usage=0)) is SaturationState.HEALTHY


def test_a_full_cache_without_a_queue_is_healthy() -> None:
    assert judged(*(sample(second, running=9, waiting=0, usage=0.99) for second in range(5))) is SaturationState.HEALTHY


def test_a_queue_must_be_seen_three_times_to_begin_and_be_missed_three_times_to_end() -> None:
    assert judged(*QUEUE[:2]) is SaturationState.HEALTHY
    gone = [sample(second, running=4, waiting=0, usage=0.5) for second in (5, 6, 7)]
    states = followed(
        [(float(second), one) for second, one in enumerate([*QUEUE, *gone])], new_saturation_settings(hysteresis=0.1)
    )
    assert [one.state for one in states[:2]] == [SaturationState.HEALTHY] * 2
    assert [one.state for one in states[2:-1]] == [SaturationState.CONCURRENCY_LIMITED] * 5
    assert states[-1].state is SaturationState.HEALTHY


def test_clients_that_give_up_are_not_taken_for_preemptions() -> None:
    def at(second: int, running: float, waiting: float) -> EngineSample:
        return replace(sample(second, running=running, waiting=waiting, usage=0.1), request_latency=Histogram(3, 3))

    assert judged(at(0, 6, 15), at(1, 4, 18), at(2, 2, 20)) is SaturationState.CONCURRENCY_LIMITED


def test_what_was_paused_with_room_to_spare_was_not_preempted() -> None:
    resumed = [
        replace(one, kv_cache_usage=0.02, preemptions=float(4 * (second > 2))) for second, one in enumerate(QUEUE)
    ]
    assert judged(*resumed) is SaturationState.CONCURRENCY_LIMITED


def test_an_idle_engine_is_not_shedding_whatever_is_refused_elsewhere() -> None:
    idle = [replace(one, rejections=float(second)) for second, one in enumerate(IDLE)]
    assert judged(*idle) is SaturationState.IDLE


def test_two_scrapes_that_are_far_apart_confirm_a_queue() -> None:
    rare = [(40.0 * count, sample(9 * count, running=8, waiting=40, usage=0.5)) for count in range(4)]
    seen = [followed(rare[max(0, count - 1) : count + 1])[-1].state for count in range(4)]
    assert seen == [SaturationState.HEALTHY, *[SaturationState.CONCURRENCY_LIMITED] * 3]


def test_an_engine_that_goes_on_after_it_was_stuck_without_a_queue_is_healthy_at_once() -> None:
    frozen = [(float(second), sample(7, running=2, waiting=8, usage=0.1)) for second in range(40)]
    resumed = [(float(second), sample(second, running=2, waiting=0, usage=0.1)) for second in range(40, 45)]
    states = [one.state for one in followed([*frozen, *resumed])]
    assert states[39] is SaturationState.STUCK
    assert set(states[40:]) == {SaturationState.HEALTHY}


def test_a_sample_or_two_below_the_configured_slots_leaves_no_slot_free() -> None:
    decoding = Phases(decode_streams=250.0, prefill_streams=2.0)
    below = [sample(250 * second, running=250 + second % 4, waiting=40, usage=0.5) for second in range(15)]
    assert judged(*below, phases=decoding, server=ServerSettings(256, 8192)) is SaturationState.CONCURRENCY_LIMITED


def test_a_queue_that_a_single_scrape_saw_is_healthy() -> None:
    samples = [sample(second, running=4, waiting=9 if second == 4 else 0, usage=0.99) for second in range(5)]
    assert judged(*samples) is SaturationState.HEALTHY


def test_a_cache_limits_where_the_next_prompt_does_not_fit_however_far_from_full() -> None:
    assert judged(*QUEUE, prompt_share=0.6) is SaturationState.KV_CACHE_FULL
    assert judged(*QUEUE, prompt_share=0.4) is SaturationState.CONCURRENCY_LIMITED


def test_a_cache_that_empties_between_two_batches_still_counts_as_full() -> None:
    samples = [sample(second, running=4, waiting=5, usage=usage) for second, usage in enumerate((0.98, 0.9, 0.5, 0.4))]
    assert judged(*samples) is SaturationState.KV_CACHE_FULL


def test_preemptions_go_before_a_full_cache_and_refusals_before_both() -> None:
    full = [sample(second, running=4, waiting=5, usage=0.99) for second in range(5)]
    preempted = sample(5, running=4, waiting=5, usage=0.99, preemptions=1)
    assert judged(*full, preempted) is SaturationState.PREEMPTING
    assert judged(*full, replace(preempted, rejections=1.0)) is SaturationState.SHEDDING


def test_requests_that_return_to_the_queue_are_preempted_before_the_counter_says_so() -> None:
    def at(second: int, running: float, waiting: float, finished: float) -> EngineSample:
        whole = Histogram(finished, finished)
        return replace(sample(second, running=running, waiting=waiting, usage=0.9), request_latency=whole)

    thrown_out = [at(0, 16, 1, 3), at(1, 14, 3, 3), at(2, 12, 5, 3)]
    assert judged(*thrown_out) is SaturationState.PREEMPTING
    assert judged(*thrown_out[:2], at(2, 10, 5, 5)) is SaturationState.PREEMPTING
    finished = [at(0, 16, 1, 3), at(1, 14, 3, 5), at(2, 12, 5, 7)]
    assert judged(*finished) is SaturationState.CONCURRENCY_LIMITED
    left = [at(0, 16, 1, 3), at(1, 14, 1, 3), at(2, 12, 1, 3)]
    assert judged(*left) is SaturationState.CONCURRENCY_LIMITED


def test_requests_that_wait_for_something_else_are_deferred() -> None:
    deferred = [replace(one, requests_deferred=4.0) for one in QUEUE]
    assert judged(*deferred) is SaturationState.DEFERRED
    assert judged(*(replace(one, requests_deferred=2.0) for one in QUEUE)) is SaturationState.CONCURRENCY_LIMITED


def test_a_queue_with_nothing_running_has_another_cause_than_capacity() -> None:
    nothing = replace(QUEUE[0], requests_running=0.0)
    assert judged(*[nothing] * 5) is SaturationState.DEFERRED


def test_a_page_without_running_requests_during_a_long_step_is_not_deferred() -> None:
    """A page shows what ran after the step before: all of it may have ended there."""
    between = [replace(one, requests_running=0.0) for one in QUEUE[2:]]
    assert judged(*QUEUE[:2], *between) is SaturationState.CONCURRENCY_LIMITED


@pytest.mark.parametrize(
    ("phases", "limits", "state"),
    [
        (Phases(decode_streams=3.0, prefill_streams=0.3), ServerSettings(), SaturationState.CONCURRENCY_LIMITED),
        (Phases(decode_streams=2.0, prefill_streams=2.0), ServerSettings(), SaturationState.PREFILL_LIMITED),
        (Phases(decode_streams=1.0, prefill_streams=0.0), ServerSettings(), SaturationState.PREFILL_LIMITED),
        (Phases(decode_streams=4.0, prefill_streams=0.0), ServerSettings(), SaturationState.CONCURRENCY_LIMITED),
        (
            Phases(decode_streams=3.0, prefill_streams=0.3),
            ServerSettings(max_num_seqs=4),
            SaturationState.CONCURRENCY_LIMITED,
        ),
        (
            Phases(decode_streams=3.0, prefill_streams=0.3),
            ServerSettings(max_num_seqs=256),
            SaturationState.PREFILL_LIMITED,
        ),
        (
            Phases(decode_streams=3.0, step_tokens=500.0),
            ServerSettings(max_num_batched_tokens=512),
            SaturationState.PREFILL_LIMITED,
        ),
        (
            Phases(decode_streams=3.6, step_tokens=100.0),
            ServerSettings(max_num_batched_tokens=512),
            SaturationState.CONCURRENCY_LIMITED,
        ),
        (Phases(), ServerSettings(), SaturationState.CONCURRENCY_LIMITED),
    ],
)
def test_slots_and_prefill_are_distinguished_by_the_phases_of_running_requests(
    phases: Phases, limits: ServerSettings, state: SaturationState
) -> None:
    assert judged(*QUEUE, phases=phases, server=limits) is state


def test_many_requests_that_come_and_go_while_others_wait_are_not_held_by_slots() -> None:
    decoding = Phases(decode_streams=400.0, prefill_streams=2.0)
    swinging = [sample(second, running=400 + 7 * (second % 5), waiting=50, usage=0.5) for second in range(15)]
    assert judged(*swinging, phases=decoding) is SaturationState.PREFILL_LIMITED
    pinned = [sample(second, running=256 - (second % 4 == 0), waiting=50, usage=0.5) for second in range(15)]
    assert judged(*pinned, phases=decoding) is SaturationState.CONCURRENCY_LIMITED


def followed(
    samples: list[tuple[float, EngineSample]],
    thresholds: SaturationSettings | None = None,
    phases: list[Phases] | None = None,
    limits: ServerSettings | None = None,
) -> list[Saturation]:
    """The saturation after each scrape."""
    found: Saturation | None = None
    progress: Progress | None = None
    states = []
    for count in range(1, len(samples) + 1):
        times, seen = zip(*samples[:count], strict=True)
        chosen = thresholds or new_saturation_settings()
        past = select_recent(EngineHistory(times, seen, frozenset()), chosen.memory)
        busy = phases[count - 1] if phases else Phases()
        progress = advance_progress(progress, past.newest, times[-1])
        found = advance_saturation(
            found, past, busy, progress, prompt_share=0.1, server=limits or ServerSettings(), settings=chosen
        )
        assert found is not None
        states.append(found)
    return states


def test_waiting_with_nothing_running_is_stuck_after_half_a_minute_and_not_before() -> None:
    blocked = [(float(second), sample(7, running=0, waiting=2, usage=0)) for second in range(40)]
    states = followed(blocked)
    assert [one.state is SaturationState.STUCK for one in states] == [second >= 30 for second in range(40)]


def test_work_or_an_empty_engine_ends_the_wait_for_stuck() -> None:
    blocked = [(float(second), sample(7, running=0, waiting=2, usage=0)) for second in range(20)]
    for broken in (
        sample(8, running=0, waiting=2, usage=0),
        sample(7, running=0, waiting=2, usage=0, prompt_tokens=900),
        sample(7, running=0, waiting=0, usage=0),
    ):
        after = [(float(second), replace(broken, requests_waiting=2.0)) for second in range(21, 45)]
        assert SaturationState.STUCK not in {one.state for one in followed([*blocked, (20.0, broken), *after])}


@pytest.mark.parametrize(
    "frozen",
    [
        sample(7, running=106, waiting=15, usage=0.904),
        sample(7, running=8, waiting=0, usage=0.5),
        sample(7, running=4, waiting=30, usage=0.99),
        sample(7, running=4, waiting=252, usage=0.1, requests_deferred=252),
        sample(7, running=0, waiting=9, usage=0.0),
    ],
)
def test_an_engine_that_does_nothing_gets_no_other_verdict_than_stuck(frozen: EngineSample) -> None:
    worked = [(float(second), replace(frozen, generation_tokens=second - 24.0)) for second in range(26, 31)]
    states = followed([*worked, *((float(second), frozen) for second in range(32, 90))])
    assert [one.state is SaturationState.STUCK for one in states[5:]] == [second >= 62 for second in range(32, 90)]


def test_a_queue_in_front_of_free_slots_without_a_prompt_in_work_has_no_limits_name() -> None:
    one_left = [sample(second, running=1, waiting=45, usage=0.02) for second in range(15)]
    decoding = Phases(decode_streams=1.0, prefill_streams=0.0)
    assert judged(*one_left, phases=decoding, most_running=6) is SaturationState.DEFERRED
    assert judged(*one_left, phases=decoding, server=ServerSettings(max_num_seqs=8)) is SaturationState.DEFERRED


def test_a_server_with_one_slot_and_a_long_answer_is_limited_by_its_slot() -> None:
    one_slot = [sample(second, running=1, waiting=45, usage=0.02) for second in range(15)]
    decoding = Phases(decode_streams=1.0, prefill_streams=0.0)
    assert judged(*one_slot, phases=decoding, most_running=1) is SaturationState.CONCURRENCY_LIMITED


def test_free_slots_and_prompts_in_work_mean_that_prefill_is_the_limit() -> None:
    decoding = Phases(decode_streams=2.0, prefill_streams=0.0)
    read = [sample(second, running=2, waiting=9, usage=0.1, prompt_tokens=100.0 * second) for second in range(15)]
    assert judged(*read, phases=decoding, most_running=6) is SaturationState.PREFILL_LIMITED
    one_long_prompt = [sample(second, running=2, waiting=9, usage=0.1) for second in range(15)]
    long_prompt = Phases(decode_streams=1.5, prefill_streams=0.0)
    assert judged(*one_long_prompt, phases=long_prompt, most_running=6) is SaturationState.PREFILL_LIMITED


def test_an_engine_that_works_without_tokens_is_no_idle_one() -> None:
    embeddings = [sample(0, running=0, waiting=0, usage=0, prompt_tokens=100.0 * second) for second in range(5)]
    assert judged(*embeddings) is SaturationState.HEALTHY


def test_a_page_that_does_not_show_the_queue_of_a_busy_engine_has_no_state() -> None:
    def fold(tokens: float) -> SaturationState | None:
        state = PageState()
        for second in range(5):
            page = Page(None, False, {KEY: sample(tokens * second, running=2, waiting=None, usage=0.1)})
            state = fold_page(state, page, ScrapeTiming(second, second + 0.1, None), TARGET, PAGE_RULES)
        (engine,) = build_snapshot(state, TARGET).engines
        return engine.state

    assert fold(0) is SaturationState.HEALTHY
    assert fold(9) is None


WALK = st.lists(st.integers(-1, 1), min_size=20, max_size=120)
KNOWN = {"step_budget": SLOTS}
AROUND = ["usage", "waiting", "deferred", "prefill_share", "step_budget", "blocked"]


def near(threshold: str, second: int, step: int) -> tuple[EngineSample, Phases]:
    """A page and phases on one side or the other of a threshold."""
    queue = {"running": 4.0, "waiting": 5.0, "usage": 0.5}
    busy = Phases(decode_streams=3.0, prefill_streams=0.3)
    match threshold:
        case "usage":
            queue["usage"] = 0.86 + 0.02 * (step % 5)
        case "waiting":
            queue |= {"waiting": float(step % 2), "usage": 0.99}
        case "deferred":
            queue |= {"waiting": 10.0, "requests_deferred": 5.0 + step % 3}
        case "prefill_share":
            busy = Phases(decode_streams=1.0, prefill_streams=0.41 + 0.01 * (step % 4))
        case "step_budget":
            busy = Phases(decode_streams=3.0, prefill_streams=0.3, step_tokens=400.0 + 4 * (step % 5))
        case "blocked":
            return sample(7, running=float(step % 3 == 0), waiting=5.0, usage=0.0), busy
    return sample(second, **queue), busy


@given(WALK, st.sampled_from(AROUND), st.sampled_from([2.0, 5.0, 10.0]))
def test_a_walk_around_a_threshold_never_flaps_faster_than_the_hysteresis(
    walk: list[int], threshold: str, hysteresis: float
) -> None:
    seen = [near(threshold, second, step) for second, step in enumerate(itertools.accumulate(walk))]
    samples = [(float(second), sample) for second, (sample, _) in enumerate(seen)]
    thresholds = new_saturation_settings(hysteresis=hysteresis, stuck_after=3.0)
    states = followed(samples, thresholds, [phases for _, phases in seen], KNOWN.get(threshold))
    changes = [one.since for before, one in itertools.pairwise(states) if one.state is not before.state]
    assert all(later - earlier >= hysteresis for earlier, later in itertools.pairwise(changes))


@pytest.mark.parametrize("threshold", AROUND)
def test_every_threshold_of_the_walk_separates_two_states(threshold: str) -> None:
    sides = {
        judged(
            *[near(threshold, second, step)[0] for second in range(3)],
            phases=near(threshold, 0, step)[1],
            server=KNOWN.get(threshold),
            prompt_share=0.1,
        )
        for step in range(6)
    }
    assert len(sides) > 1


FACT = st.none() | st.floats(0, 50)
PAGE = st.builds(
    lambda running, waiting, usage, deferred, tokens, preemptions, rejections, latency: EngineSample(
        requests_running=running,
        requests_waiting=waiting,
        requests_deferred=deferred,
        kv_cache_usage=usage,
        generation_tokens=tokens,
        preemptions=preemptions,
        rejections=rejections,
        inter_token_latency=latency,
        prefill_time=latency,
        time_to_first_token=latency,
        cache_config={"kv_cache_size_tokens": "512"},
    ),
    *(FACT, FACT, st.none() | st.floats(0, 1.2), FACT, FACT, FACT, FACT),
    st.none() | st.builds(Histogram, st.floats(-5, 50), st.integers(0, 20).map(float)),
)


@given(st.lists(st.tuples(st.floats(0.01, 90), PAGE, st.booleans()), min_size=1, max_size=25))
def test_any_order_of_pages_gaps_and_restarts_gives_one_state_at_most_and_never_an_exception(
    steps: list[tuple[float, EngineSample, bool]],
) -> None:
    state, time = PageState(), 0.0
    for seconds, found, there in steps:
        time += seconds
        engines = {KEY: found} if there else {}
        state = fold_page(state, Page(None, False, engines), ScrapeTiming(time, time, None), TARGET, PAGE_RULES)
        snapshot = build_snapshot(state, TARGET)
        if there and found.requests_waiting is not None and (found.generation_tokens or found.prefill_time):
            assert [isinstance(engine.state, SaturationState) for engine in snapshot.engines] == [True]


def test_a_latency_too_small_to_be_divided_is_no_exception() -> None:
    state = PageState()
    for time, total in enumerate((0.0, 0.0, 5e-324)):
        seen = Histogram(total, 2.0 * time)
        sample = EngineSample(
            requests_waiting=1.0, inter_token_latency=seen, prefill_time=seen, time_to_first_token=seen
        )
        page = Page(None, False, {KEY: sample})
        state = fold_page(state, page, ScrapeTiming(time, time, None), TARGET, PAGE_RULES)
    (engine,) = build_snapshot(state, TARGET).engines
    assert engine.state is not None
