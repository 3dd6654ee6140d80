"""The engine's counters move when those of a real llama-server do."""

from phasewatch.demo.common.workload import Workload
from phasewatch.demo.llamacpp.server import LLAMA_SETTINGS
from tests.support.simulated_llamacpp import start_engine

CHAT = Workload(users=3, think_seconds=1.0, prompt=(100, 400), output=(20, 120), max_tokens=200)
ONE = Workload(users=1, think_seconds=1.0, prompt=(300, 300), output=(50, 50), max_tokens=80)
LONG = Workload(users=1, think_seconds=1.0, prompt=(5000, 5000), output=(3, 3), max_tokens=3)
STREAM = Workload(users=1, think_seconds=1.0, prompt=(50, 50), output=(4000, 4000), max_tokens=4000)
CROWD = Workload(users=9, think_seconds=0.2, prompt=(50, 100), output=(40, 80), max_tokens=100)


def test_the_counters_do_not_depend_on_how_the_time_is_divided() -> None:
    often, once = start_engine(CHAT), start_engine(CHAT)
    times = list(often.step(30.0))
    once.advance(times[-1])
    assert often.engine.counters == once.engine.counters
    assert often.engine.counters.decodes > 1000


def test_predicted_tokens_move_only_when_a_request_ends_and_decodes_with_every_step() -> None:
    stepped = start_engine(ONE)
    engine = stepped.engine
    seen = {}
    for _ in stepped.step(1.9):
        decoded = sum(slot.decoded for slot in engine.slots)
        if decoded:
            seen[decoded] = (engine.counters.predicted_tokens, engine.counters.decodes)
    assert seen[1] == (0, 1)
    assert seen[50 - 1] == (0, 49)
    while not engine.counters.predicted_tokens:
        stepped.advance(0.01)
    assert engine.counters.predicted_tokens == 50


def test_slots_and_decodes_multiply_to_the_tokens_of_the_ledger() -> None:
    stepped = start_engine(CHAT)
    engine = stepped.engine
    for now in stepped.step(60.0):
        live = sum(slot.decoded for slot in engine.slots if slot.request is not None)
        tokens = sum(step.tokens for step in engine.truth.select_between(0.0, now))
        assert engine.counters.predicted_tokens + live == tokens, now
        assert engine.counters.busy_slots == tokens, now  # every prompt fits into one batch


def test_a_prompt_counts_when_it_is_done_and_its_cached_tokens_when_it_begins() -> None:
    shared = Workload(users=1, think_seconds=0.5, prompt=(5000, 5000), output=(2, 2), max_tokens=2, shared_prefix=900)
    stepped = start_engine(shared)
    engine = stepped.engine
    before = (0, 0)
    for now in stepped.step(40.0):
        after = (engine.counters.prompt_tokens, engine.counters.cached_tokens)
        prefill = next((slot for slot in engine.slots if slot.request is not None and not slot.decoded), None)
        if after[1] != before[1]:
            assert prefill is not None, now
            assert after[0] == before[0], now
        if after[0] != before[0]:
            assert after[0] - before[0] in {5000, 4100}, now
        before = after
    assert before[0] > 10_000
    assert before[1] > 900


def test_a_long_prompt_shows_in_its_slot_batch_by_batch_while_the_counters_stand_still() -> None:
    stepped = start_engine(LONG)
    engine = stepped.engine
    views = set()
    for _ in stepped.step(10.0):
        if engine.counters.prompt_tokens:
            break
        views |= {(view.held, view.processed) for view in (slot.view() for slot in engine.slots) if view.is_processing}
    assert views == {(2048, 0), (4096, 2048), (5000, 4096)}
    assert engine.counters.decodes == 3


def test_streams_stand_still_while_a_batch_of_prompt_tokens_is_computed() -> None:
    stepped = start_engine(STREAM, LONG)
    engine = stepped.engine
    stepped.advance(20.0)
    gaps = [gap for step in engine.truth.select_between(0.0, 20.0) for gap in step.token_gaps]
    assert max(gaps) > 1.0
    assert sorted(gaps)[len(gaps) // 2] < 0.03
    mixed = [step for step in engine.truth.select_between(0.0, 20.0) if step.prompt_tokens and step.token_gaps]
    assert max(step.prompt_tokens for step in mixed) == LLAMA_SETTINGS.batch - 1


def test_prompts_that_come_together_share_a_batch_and_its_size() -> None:
    together = Workload(users=4, think_seconds=1.0, prompt=(1500, 1500), output=(3, 3), max_tokens=3)
    stepped = start_engine(together)
    stepped.advance(12.0)
    steps = stepped.engine.truth.select_between(0.0, 12.0)
    assert max(step.prompt_tokens + len(step.token_gaps) for step in steps) == LLAMA_SETTINGS.batch


def test_the_time_of_a_batch_counts_once_however_many_prompts_share_it() -> None:
    stepped = start_engine(CROWD)
    engine = stepped.engine
    stepped.advance(30.0)
    while any(slot.request is not None and not slot.decoded for slot in engine.slots):
        stepped.advance(0.001)
    batches = sum(step.seconds for step in engine.truth.select_between(0.0, 60.0) if step.prompt_tokens)
    assert abs(engine.counters.prompt_seconds - batches) < 1e-9


def test_more_requests_than_slots_are_deferred_and_none_while_a_slot_is_free() -> None:
    stepped = start_engine(CROWD)
    engine = stepped.engine
    most = 0
    for now in stepped.step(20.0):
        most = max(most, len(engine.deferred))
        assert engine.count_processing() <= LLAMA_SETTINGS.slots, now
        assert not engine.deferred or engine.count_processing() == LLAMA_SETTINGS.slots, now
    assert most == 5


def test_an_idle_slot_keeps_its_tokens_and_its_task_but_shows_nothing_of_the_request() -> None:
    stepped = start_engine(ONE)
    engine = stepped.engine
    for _ in stepped.step(10.0):
        if engine.counters.predicted_tokens:
            break
    (view,) = [slot.view() for slot in engine.slots if slot.task is not None]
    assert not view.is_processing
    assert view.held == 300 + 50 - 1 == engine.counters.longest_sequence
    assert (view.processed, view.cached, view.decoded, view.has_next) == (0, 0, 0, False)


def test_the_first_token_of_a_prompt_is_cached_on_a_slot_that_was_used_before() -> None:
    stepped = start_engine(ONE, slots=1)
    engine = stepped.engine
    stepped.advance(20.0)
    requests = engine.counters.prompt_tokens + engine.counters.cached_tokens
    assert requests % 300 == 0
    assert engine.counters.cached_tokens == requests // 300 - 1


def test_an_abort_counts_what_was_computed_and_frees_all_slots_after_the_batch_at_work() -> None:
    for workload, seconds in ((STREAM, 8.0), (LONG, 4.0)):
        stepped = start_engine(workload, CROWD)
        engine = stepped.engine
        stepped.advance(seconds)
        tokens = sum(step.tokens for step in engine.truth.select_between(0.0, seconds))
        stepped.disconnect()
        assert not engine.deferred, workload
        stepped.advance(10.0)
        assert engine.count_processing() == 0, workload
        last = engine.truth.select_between(seconds, seconds + 10.0)
        assert len(last) == 1, workload
        assert engine.counters.predicted_tokens == tokens + last[0].tokens, workload
        computed = sum(step.prompt_tokens for step in engine.truth.select_between(0.0, seconds + 10.0))
        assert engine.counters.prompt_tokens == computed, workload


def test_without_readers_a_server_without_requests_sleeps_and_a_request_wakes_it() -> None:
    pause = Workload(users=1, think_seconds=30.0, prompt=(100, 100), output=(9, 9), max_tokens=9)
    stepped = start_engine(pause, sleep_idle_seconds=5.0)
    engine = stepped.engine
    stepped.advance(300.0)
    assert len(engine.sleep.wakes) >= 3
    assert engine.sleep.list_wakes_by_reads() == []
    assert engine.sleep.kept_awake == 0
    assert len(engine.sleep.sleeps) - len(engine.sleep.wakes) in {0, 1}


def test_a_read_wakes_a_sleeping_server_which_has_forgotten_its_slots_but_not_its_counters() -> None:
    stepped = start_engine(ONE, sleep_idle_seconds=5.0)
    engine = stepped.engine
    stepped.advance(10.0)
    stepped.disconnect()
    stepped.advance(20.0)
    assert engine.asleep
    assert engine.counters.predicted_tokens
    assert [slot.task for slot in engine.slots] == [None] * 4
    engine.observe("/slots")
    assert not engine.asleep
    assert [wake.read for wake in engine.sleep.list_wakes_by_reads()] == ["/slots"]


def test_reads_at_any_shorter_interval_keep_an_idle_server_awake() -> None:
    stepped = start_engine(sleep_idle_seconds=5.0)
    engine = stepped.engine
    for _ in range(59):
        stepped.advance(1.0)
        engine.observe("/metrics")
    assert engine.sleep.sleeps == []
    assert engine.sleep.kept_awake == 59


def test_a_server_without_a_sleep_setting_never_sleeps() -> None:
    stepped = start_engine()
    engine = stepped.engine
    stepped.advance(1e6)
    engine.observe("/metrics")
    assert not engine.asleep
    assert engine.sleep.kept_awake == 0
