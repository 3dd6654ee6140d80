import math

from phasewatch.demo.common.workload import Request, Workload
from phasewatch.demo.vllm.scheduler import Scheduler, Sequence, StepPart
from phasewatch.demo.vllm.settings import SimulatedVllmSettings

WORKLOAD = Workload(prompt=(1, 1), output=(1, 1), max_tokens=1)
SMALL = SimulatedVllmSettings(max_num_seqs=4, max_num_batched_tokens=100, num_gpu_blocks=33)
"""32 usable blocks: 512 tokens."""

TIGHT = SimulatedVllmSettings(max_num_batched_tokens=400, num_gpu_blocks=13)
"""12 usable blocks: two prompts of 96 and 80 tokens fit, and soon one of them must be preempted."""


def build_sequence(prompt: int, *, shared_prefix: int = 0, grammar_seconds: float = 0.0) -> Sequence:
    request = Request(0, 0.0, prompt, shared_prefix, 1000, 1000, grammar_seconds, WORKLOAD, has_user=True)
    return Sequence(request, ready_at=grammar_seconds)


def build_scheduler(*sequences: Sequence, settings: SimulatedVllmSettings = SMALL) -> Scheduler:
    scheduler = Scheduler(settings)
    for sequence in sequences:
        scheduler.add(sequence)
    return scheduler


def step(scheduler: Scheduler, now: float = 0.0) -> list[StepPart]:
    """Run one step and add its output tokens."""
    parts = scheduler.schedule(now)
    for part in parts:
        if part.yields:
            part.sequence.generated += 1
    return parts


def step_until_preemption(scheduler: Scheduler, now: float = 0.0) -> list[StepPart]:
    """Run steps up to the first one that preempts, which is returned."""
    parts: list[StepPart] = []
    while not scheduler.preemptions:
        parts = step(scheduler, now)
    return parts


def sizes(parts: list[StepPart]) -> list[int]:
    return [part.new for part in parts]


def prompts(sequences: list[Sequence]) -> list[int]:
    return [sequence.request.prompt for sequence in sequences]


def test_a_prompt_is_computed_in_one_step_and_then_one_token_per_step() -> None:
    scheduler = build_scheduler(build_sequence(60))
    assert step(scheduler)[0][1:] == (0, 60, 0, True)
    assert step(scheduler)[0][1:] == (60, 1, 0, True)
    assert step(scheduler)[0][1:] == (61, 1, 0, True)


def test_long_prompts_are_divided_so_that_no_step_exceeds_the_token_budget() -> None:
    scheduler = build_scheduler(build_sequence(250))
    assert [sizes(step(scheduler)) for _ in range(3)] == [[100], [100], [50]]


def test_running_requests_come_first_and_waiting_ones_get_the_rest_of_the_budget() -> None:
    scheduler = build_scheduler(build_sequence(150), build_sequence(80))
    assert sizes(step(scheduler)) == [100]
    parts = step(scheduler)
    assert sizes(parts) == [50, 50]
    assert [part.yields for part in parts] == [True, False]
    assert sizes(step(scheduler)) == [1, 30]


def test_no_more_requests_run_than_there_are_slots() -> None:
    scheduler = build_scheduler(*(build_sequence(10) for _ in range(6)))
    assert len(step(scheduler)) == 4
    assert (len(scheduler.running), len(scheduler.waiting)) == (4, 2)
    scheduler.finish(scheduler.running[0])
    assert len(step(scheduler)) == 4
    assert len(scheduler.waiting) == 1


def test_a_request_is_admitted_only_when_all_of_its_tokens_fit_into_the_cache() -> None:
    scheduler = build_scheduler(build_sequence(300), build_sequence(300), build_sequence(10))
    for _ in range(5):
        step(scheduler)
    assert prompts(scheduler.running) == [300]
    assert scheduler.pool.usage < 0.7
    scheduler.finish(scheduler.running[0])
    step(scheduler)
    assert prompts(scheduler.running) == [300]
    assert prompts(list(scheduler.waiting)) == [10]


def test_without_a_free_block_the_newest_request_is_preempted_to_the_head_of_the_queue() -> None:
    older, newer, next_one = build_sequence(96), build_sequence(80), build_sequence(500)
    scheduler = build_scheduler(older, newer, next_one, settings=TIGHT)
    step_until_preemption(scheduler)
    assert scheduler.running == [older]
    assert list(scheduler.waiting) == [newer, next_one]
    assert (newer.computed, newer.blocks, newer.preemptions) == (0, [], 1)
    assert scheduler.pool.free == 12 - len(older.blocks)


def test_a_step_that_preempts_admits_nothing() -> None:
    scheduler = build_scheduler(build_sequence(96), build_sequence(80), settings=TIGHT)
    assert len(step_until_preemption(scheduler)) == 1


def test_tokens_computed_before_a_preemption_count_as_recomputed_unless_still_cached() -> None:
    older, newer = build_sequence(96), build_sequence(80)
    scheduler = build_scheduler(older, newer, settings=TIGHT)
    step_until_preemption(scheduler)
    computed, cached = newer.computed_before_preemption, newer.cached
    for _ in range(40):
        step(scheduler)
    # Blocks that the older request has not yet overwritten are still cached.
    scheduler.finish(older)
    (part,) = step(scheduler)
    assert part.sequence is newer
    assert part.before + part.recomputed == computed
    assert part.before > 0
    assert part.recomputed == 32
    assert part.new == part.recomputed + 1
    assert part.yields
    assert newer.cached == cached == 0


def test_a_second_preemption_at_fewer_tokens_keeps_the_count_of_the_first() -> None:
    older, newer = build_sequence(96), build_sequence(80)
    newer.computed_before_preemption = 150
    scheduler = build_scheduler(older, newer, settings=TIGHT)
    step_until_preemption(scheduler)
    scheduler.finish(older)
    (part,) = step(scheduler)
    assert part.sequence is newer
    assert part.before + part.new < newer.computed_before_preemption
    assert part.recomputed == part.new


def test_prompts_with_a_common_prefix_share_its_blocks() -> None:
    first, second = build_sequence(90, shared_prefix=64), build_sequence(90, shared_prefix=64)
    scheduler = build_scheduler(first)
    step(scheduler)
    scheduler.add(second)
    parts = step(scheduler)
    assert parts[1][1:] == (64, 26, 0, True)
    assert first.blocks[:4] == second.blocks[:4]
    assert not set(first.blocks[4:]) & set(second.blocks[4:])
    assert (scheduler.cache_queries, scheduler.cache_hits) == (180, 64)


def test_the_last_block_of_a_prompt_is_computed_even_if_all_of_it_is_cached() -> None:
    scheduler = build_scheduler(build_sequence(64, shared_prefix=64))
    step(scheduler)
    scheduler.add(build_sequence(64, shared_prefix=64))
    assert step(scheduler)[1][1:] == (48, 16, 0, True)


def test_requests_that_wait_for_their_grammar_are_passed_over_and_keep_their_place() -> None:
    slow, slower = build_sequence(10, grammar_seconds=5.0), build_sequence(20, grammar_seconds=9.0)
    other = build_sequence(30)
    scheduler = build_scheduler(slow, slower, other)
    assert [part.sequence for part in step(scheduler, 1.0)] == [other]
    assert list(scheduler.waiting) == [slow, slower]
    assert scheduler.deferred == 2
    assert scheduler.find_next_ready(1.0) == 5.0
    assert [part.sequence for part in step(scheduler, 5.0)] == [other, slow]
    assert scheduler.deferred == 1
    assert scheduler.find_next_ready(9.0) == math.inf


def test_a_passed_over_request_stays_before_later_ones() -> None:
    slow, other, last = build_sequence(10, grammar_seconds=5.0), build_sequence(30), build_sequence(40)
    scheduler = build_scheduler(slow, other, last, settings=SimulatedVllmSettings(max_num_seqs=1))
    step(scheduler, 1.0)
    assert scheduler.running == [other]
    assert list(scheduler.waiting) == [slow, last]


def test_a_preempted_request_is_not_deferred_even_if_it_has_a_grammar() -> None:
    older, newer = build_sequence(96), build_sequence(80, grammar_seconds=1.0)
    scheduler = build_scheduler(older, newer, settings=TIGHT)
    step_until_preemption(scheduler, 2.0)
    assert list(scheduler.waiting) == [newer]
    assert scheduler.deferred == 0


def test_nothing_is_left_after_all_clients_disconnect() -> None:
    sequences = [build_sequence(60) for _ in range(6)]
    scheduler = build_scheduler(*sequences)
    step(scheduler)
    scheduler.abort_all()
    assert (scheduler.running, list(scheduler.waiting), scheduler.pool.usage) == ([], [], 0.0)
    assert all(sequence.aborted for sequence in sequences)
    assert step(scheduler) == []
