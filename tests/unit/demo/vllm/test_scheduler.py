import math

from phasewatch.demo.vllm.scheduler import Part, Scheduler, Sequence
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.workload import Request, Workload

ANY = Workload(prompt=(1, 1), output=(1, 1), most=1)
SMALL = Settings(max_num_seqs=4, max_num_batched_tokens=100, num_gpu_blocks=33)
"""32 usable blocks: 512 tokens."""


def sequence(prompt: int, *, shared: int = 0, grammar: float = 0.0) -> Sequence:
    request = Request(0, 0.0, prompt, shared, 1000, 1000, grammar, ANY, waits=True)
    return Sequence(request, ready=grammar)


def scheduler(*sequences: Sequence, settings: Settings = SMALL) -> Scheduler:
    found = Scheduler(settings)
    for one in sequences:
        found.add(one)
    return found


def step(found: Scheduler, now: float = 0.0) -> list[Part]:
    """One step, with the tokens that come out of it."""
    parts = found.schedule(now)
    for part in parts:
        if part.yields:
            part.sequence.generated += 1
    return parts


def sizes(parts: list[Part]) -> list[int]:
    return [part.new for part in parts]


def test_a_prompt_is_computed_and_yields_a_token_then_one_token_after_the_other() -> None:
    found = scheduler(sequence(60))
    assert step(found)[0][1:] == (0, 60, 0, True)
    assert step(found)[0][1:] == (60, 1, 0, True)
    assert step(found)[0][1:] == (61, 1, 0, True)


def test_no_step_has_more_tokens_than_the_budget_and_long_prompts_are_cut() -> None:
    found = scheduler(sequence(250))
    assert [sizes(step(found)) for _ in range(3)] == [[100], [100], [50]]


def test_what_runs_goes_before_what_waits_and_that_gets_the_rest() -> None:
    found = scheduler(sequence(150), sequence(80))
    assert sizes(step(found)) == [100]
    parts = step(found)
    assert sizes(parts) == [50, 50]
    assert [part.yields for part in parts] == [True, False]
    assert sizes(step(found)) == [1, 30]


def test_no_more_run_than_there_are_slots() -> None:
    found = scheduler(*(sequence(10) for _ in range(6)))
    assert len(step(found)) == 4
    assert (len(found.running), len(found.waiting)) == (4, 2)
    found.finish(found.running[0])
    assert len(step(found)) == 4
    assert len(found.waiting) == 1


def test_a_request_is_admitted_only_when_the_whole_of_it_has_room() -> None:
    found = scheduler(sequence(300), sequence(300), sequence(10))
    for _ in range(5):
        step(found)
    assert [one.request.prompt for one in found.running] == [300]
    assert found.pool.usage < 0.7
    found.finish(found.running[0])
    step(found)
    assert [one.request.prompt for one in found.running] == [300]
    assert [one.request.prompt for one in found.waiting] == [10]


def test_when_a_block_is_lacking_the_newest_is_thrown_out_and_goes_to_the_head_of_the_queue() -> None:
    older, newer, next_one = sequence(96), sequence(80), sequence(500)
    found = scheduler(older, newer, next_one, settings=Settings(max_num_batched_tokens=400, num_gpu_blocks=13))
    while not found.preempted:
        step(found)
    assert found.running == [older]
    assert list(found.waiting) == [newer, next_one]
    assert (newer.computed, newer.blocks, newer.preemptions) == (0, [], 1)
    assert found.pool.free == 12 - len(older.blocks)


def test_in_a_step_that_throws_out_nothing_is_admitted() -> None:
    found = scheduler(sequence(96), sequence(80), settings=Settings(max_num_batched_tokens=400, num_gpu_blocks=13))
    while not found.preempted:
        parts = step(found)
    assert len(parts) == 1


def test_what_is_computed_again_is_known_as_such() -> None:
    older, newer = sequence(96), sequence(80)
    found = scheduler(older, newer, settings=Settings(max_num_batched_tokens=400, num_gpu_blocks=13))
    while not found.preempted:
        step(found)
    reached, cached = newer.reached, newer.cached
    for _ in range(40):
        step(found)
    # What the older one has not yet overwritten is found again.
    found.finish(older)
    (part,) = step(found)
    assert part.sequence is newer
    assert part.before + part.again == reached
    assert part.before > 0
    assert part.again == 32
    assert part.new == part.again + 1
    assert part.yields
    assert newer.cached == cached == 0


def test_one_that_is_thrown_out_sooner_than_the_time_before_has_still_come_as_far_as_then() -> None:
    older, newer = sequence(96), sequence(80)
    newer.reached = 150
    found = scheduler(older, newer, settings=Settings(max_num_batched_tokens=400, num_gpu_blocks=13))
    while not found.preempted:
        step(found)
    found.finish(older)
    (part,) = step(found)
    assert part.sequence is newer
    assert part.before + part.new < newer.reached
    assert part.again == part.new


def test_prompts_that_begin_alike_share_blocks() -> None:
    first, second = sequence(90, shared=64), sequence(90, shared=64)
    found = scheduler(first)
    step(found)
    found.add(second)
    parts = step(found)
    assert parts[1][1:] == (64, 26, 0, True)
    assert first.blocks[:4] == second.blocks[:4]
    assert not set(first.blocks[4:]) & set(second.blocks[4:])
    assert (found.queried, found.hit) == (180, 64)


def test_the_last_token_of_a_prompt_is_computed_even_if_all_of_it_is_known() -> None:
    found = scheduler(sequence(64, shared=64))
    step(found)
    found.add(sequence(64, shared=64))
    assert step(found)[1][1:] == (48, 16, 0, True)


def test_requests_whose_grammar_is_compiled_are_passed_over_and_keep_their_place() -> None:
    slow, slower, other = sequence(10, grammar=5.0), sequence(20, grammar=9.0), sequence(30)
    found = scheduler(slow, slower, other)
    assert [part.sequence for part in step(found, 1.0)] == [other]
    assert list(found.waiting) == [slow, slower]
    assert found.deferred == 2
    assert found.next_ready(1.0) == 5.0
    assert [part.sequence for part in step(found, 5.0)] == [other, slow]
    assert found.deferred == 1
    assert found.next_ready(9.0) == math.inf


def test_what_is_passed_over_stays_before_what_came_later() -> None:
    slow, other, last = sequence(10, grammar=5.0), sequence(30), sequence(40)
    found = scheduler(slow, other, last, settings=Settings(max_num_seqs=1))
    step(found, 1.0)
    assert found.running == [other]
    assert list(found.waiting) == [slow, last]


def test_a_request_that_was_thrown_out_waits_for_capacity_whatever_it_waited_for_before() -> None:
    older, newer = sequence(96), sequence(80, grammar=1.0)
    found = scheduler(older, newer, settings=Settings(max_num_batched_tokens=400, num_gpu_blocks=13))
    while not found.preempted:
        step(found, 2.0)
    assert list(found.waiting) == [newer]
    assert found.deferred == 0


def test_when_all_clients_hang_up_nothing_is_left() -> None:
    held = [sequence(60) for _ in range(6)]
    found = scheduler(*held)
    step(found)
    found.abort_all()
    assert (found.running, list(found.waiting), found.pool.usage) == ([], [], 0.0)
    assert all(one.gone for one in held)
    assert step(found) == []
