"""Counters from page and slots together: exact while requests run, and they never fall."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasewatch.analysis.samples import COUNTERS, EngineSample
from phasewatch.backends.llamacpp.metric_names import METRIC_NAMES
from phasewatch.backends.llamacpp.slots import Slot, parse_slots
from phasewatch.backends.llamacpp.tracking import Tracking, advance_tracking
from phasewatch.backends.prometheus_page import PageReader
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer

READER = PageReader(METRIC_NAMES)


def scrape(
    server: ScriptedLlamaServer, before: Tracking | None, time: float, delay: float = 0.0, *, page: bool = True
) -> Tracking:
    (sample,) = READER.read(server.render_page(time)).engines.values()
    slots = parse_slots(server.render_slots(time + delay))
    return advance_tracking(before, sample if page else None, slots, time + delay)


def follow(server: ScriptedLlamaServer, times: list[float], delay: float = 0.0, *, page: bool = True) -> list[Tracking]:
    found: list[Tracking] = []
    for time in times:
        found.append(scrape(server, found[-1] if found else None, time, delay, page=page))
    return found


def queue_jobs(seed: int, slots: int) -> tuple[Job, ...]:
    """Requests one after another in each slot."""
    numbers = random.Random(seed)  # noqa: S311  # no secret
    jobs = []
    for slot in range(slots):
        time = numbers.uniform(0, 3)
        while time < 40:
            first = time + numbers.uniform(0.05, 2)
            job = Job(time, first, numbers.randint(1, 150), numbers.uniform(0.01, 0.08), slot, numbers.randint(10, 900))
            jobs.append(job)
            time = job.end + numbers.uniform(0.01, 1)
    return tuple(sorted(jobs, key=lambda job: job.begin))


def difference(first: Tracking, last: Tracking, name: str) -> float:
    a, b = getattr(first.sample, name), getattr(last.sample, name)
    assert a is not None
    assert b is not None
    return float(b - a)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4), st.floats(0.2, 5), st.floats(0, 0.3))
def test_no_counter_ever_falls(seed: int, slots: int, interval: float, delay: float) -> None:
    server = ScriptedLlamaServer(queue_jobs(seed, slots), slots)
    for page in (True, False):
        found = follow(server, [interval * n for n in range(int(40 / interval))], min(delay, interval / 2), page=page)
        for before, after in itertools.pairwise(found):
            for name in COUNTERS:
                a, b = getattr(before.sample, name), getattr(after.sample, name)
                assert a is None or b is None or b >= a - 1e-9, name


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_tokens_are_those_of_the_server_at_every_scrape(seed: int, slots: int) -> None:
    server = ScriptedLlamaServer(queue_jobs(seed, slots), slots)
    for time, one in zip(range(40), follow(server, [float(t) for t in range(40)]), strict=True):
        assert one.sample.generation_tokens == server.count_tokens(time)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4), st.floats(0.5, 30))
def test_the_time_of_streams_is_that_of_the_server_whenever_the_first_scrape_is(
    seed: int, slots: int, start: float
) -> None:
    server = ScriptedLlamaServer(queue_jobs(seed, slots), slots)
    found = follow(server, [start + 0.5 * n for n in range(60)])
    # A stream that ends before it was seen twice is timed by the speed of others, hence the allowance of an interval.
    expected = server.count_stream_seconds(start + 29.5) - server.count_stream_seconds(start)
    assert difference(found[0], found[-1], "stream_seconds") == pytest.approx(expected, abs=0.6 * slots, rel=0.05)


def test_a_request_that_ends_between_the_two_reads_makes_no_dip() -> None:
    server = ScriptedLlamaServer((Job(0.0, 1.0, 101, 0.05), Job(0.0, 1.0, 400, 0.05, slot=1)))
    found = follow(server, [5.0, 5.98, 7.0], 0.04)  # the first ends at 6.0
    totals = [one.sample.generation_tokens or 0.0 for one in found]
    assert totals[1] == pytest.approx(server.count_tokens(5.98), abs=1)  # its steps had moved the page
    assert totals == sorted(totals)
    assert totals[2] == pytest.approx(server.count_tokens(7.02), abs=2)
    assert difference(found[0], found[1], "stream_seconds") >= 0.98


def test_a_stream_that_was_there_before_the_first_scrape_gives_no_false_speed() -> None:
    server = ScriptedLlamaServer((Job(0.0, 1.0, 2000, 0.05),))
    found = follow(server, [float(t) for t in range(60, 110)])
    for earlier, later in ((1, 5), (1, 40), (35, 45)):
        tokens = difference(found[earlier], found[later], "generation_tokens")
        seconds = difference(found[earlier], found[later], "stream_seconds")
        assert tokens / seconds == pytest.approx(20, rel=0.02), (earlier, later)


def test_a_stream_that_was_there_before_the_first_scrape_and_changes_its_speed_gives_no_false_speed() -> None:
    """It has 20 tokens per second, but hardly any while it is first looked at, as beside a prompt; then come others."""
    found: list[Tracking] = []
    for time in range(10, 60):
        decoded, ended = (101 + 20 * (time - 12) if time > 12 else 91 + (time - 10)), time >= 20
        others = max(0, time - 20)
        slot = Slot(0, busy=True, request=time if ended else 1, decoded=20 if ended else decoded)
        page = EngineSample(
            generation_tokens=20.0 * others + (261.0 if ended else 0.0),
            decode_seconds=1.0 * others + (14.5 if ended else 0.0),
        )
        found.append(advance_tracking(found[-1] if found else None, page, (slot,), float(time)))
    for earlier, later in ((2, 20), (2, 40), (12, 30), (20, 45)):
        tokens = difference(found[earlier], found[later], "generation_tokens")
        seconds = difference(found[earlier], found[later], "stream_seconds")
        assert tokens / seconds == pytest.approx(20, rel=0.1), (earlier, later)


def test_a_stream_that_stands_still_moves_no_counter_of_work() -> None:
    page = EngineSample(generation_tokens=50.0, decode_seconds=2.0)
    slots = (Slot(0, True, 2048, 3, 150, 100, 50),)
    first = advance_tracking(None, page, slots, 0.0)
    last = advance_tracking(first, page, slots, 10.0)
    moved = {name for name in COUNTERS if getattr(first.sample, name) != getattr(last.sample, name)}
    assert moved == {"stream_seconds", "tracked_seconds", "sampled_seconds"}


def test_a_request_that_came_and_went_between_two_scrapes_is_counted() -> None:
    page = EngineSample(generation_tokens=50.0)
    idle = Slot(0, False, 2048, 3, 20, 0, 0)
    first = advance_tracking(None, page, (idle,), 0.0)
    second = advance_tracking(first, page, (replace(idle, request=9),), 1.0)
    third = advance_tracking(second, page, (replace(idle, request=9),), 2.0)
    assert [one.sample.requests_begun for one in (first, second, third)] == [0, 1, 1]


def test_a_slot_whose_count_falls_is_another_request() -> None:
    page = EngineSample(generation_tokens=0.0, decode_seconds=0.0)
    first = advance_tracking(None, page, (Slot(0, True, 2048, None, 10, 5, 50),), 0.0)
    page = EngineSample(generation_tokens=70.0, decode_seconds=3.0)
    last = advance_tracking(first, page, (Slot(0, True, 2048, None, 10, 5, 4),), 1.0)
    assert last.sample.generation_tokens == 74
    assert last.sample.tracked_tokens == 0


def test_an_abort_loses_no_token_and_no_second() -> None:
    # It generates 40 of 200 tokens, and the counters take over what it had.
    aborted = ScriptedLlamaServer((Job(0.0, 1.0, 40, 0.05), Job(0.0, 1.0, 400, 0.05, slot=1)))
    found = follow(aborted, [float(t) for t in range(12)])
    assert difference(found[1], found[10], "generation_tokens") == aborted.count_tokens(10) - aborted.count_tokens(1)


def test_slots_that_do_not_show_tokens_add_nothing() -> None:
    page = EngineSample(generation_tokens=50.0, requests_running=1.0)
    tracking = advance_tracking(None, page, (Slot(0, True, 2048, 3),), 0.0)
    assert tracking.sample == page


def test_prefill_progress_has_the_prompts_at_work_and_not_twice_when_they_are_done() -> None:
    page = EngineSample(prompt_tokens_computed=1000.0)
    first = advance_tracking(None, page, (Slot(0, True, 8192, 1, 512, 512, 0),), 0.0)
    second = advance_tracking(first, page, (Slot(0, True, 8192, 1, 1024, 1024, 0),), 1.0)
    done = EngineSample(prompt_tokens_computed=2200.0)
    third = advance_tracking(second, done, (Slot(0, True, 8192, 1, 1201, 1200, 1),), 2.0)
    assert [one.sample.prefill_progress for one in (first, second, third)] == [1512, 2024, 2200]


def test_without_a_page_the_slots_give_streams_and_their_speed() -> None:
    server = ScriptedLlamaServer(tuple(Job(t, t + 0.5, 150, 0.02, slot=0) for t in range(0, 40, 4)))
    found = follow(server, [0.25 * n for n in range(160)], page=False)
    last = found[-1].sample
    assert last.generation_tokens is None
    assert last.tracked_tokens is not None
    assert last.tracked_seconds
    assert last.sampled_seconds
    tokens = last.sampled_seconds * last.tracked_tokens / last.tracked_seconds
    assert tokens == pytest.approx(server.count_tokens(39.75), rel=0.03)


def test_streams_that_no_two_scrapes_see_are_timed_by_those_that_have_ended() -> None:
    jobs = tuple(Job(t + slot, t + slot + 0.5, 200, 0.05, slot) for t in range(0, 300, 11) for slot in (0, 1))
    server = ScriptedLlamaServer(tuple(sorted(jobs, key=lambda job: job.begin)))
    found = follow(server, [15.03 * n for n in range(1, 20)])
    for first, last in itertools.pairwise(found[1:]):
        expected = server.count_stream_seconds(last.time) - server.count_stream_seconds(first.time)
        assert difference(first, last, "stream_seconds") == pytest.approx(expected, rel=0.03)


def test_a_stream_seen_for_the_first_time_is_timed_by_those_beside_it() -> None:
    server = ScriptedLlamaServer((Job(0.0, 1.0, 900, 0.05), Job(10.0, 11.0, 900, 0.05, slot=1)))
    first, last = follow(server, [9.0, 24.0])
    assert difference(first, last, "stream_seconds") == pytest.approx(15 + 13, rel=0.01)


def test_slots_that_do_not_say_whether_they_are_busy_and_an_empty_list_leave_the_page_alone() -> None:
    page = EngineSample(generation_tokens=500.0, requests_running=1.0)
    for slots in ((), (Slot(0, None, request=4, decoded=20),)):
        assert advance_tracking(None, page, slots, 1.0).sample == page


def test_prompts_that_a_build_does_not_show_never_cut_the_window() -> None:
    # b6700 does not show the tokens of a prompt at work: the counter must not come and go with the prompts.
    page, tracking = EngineSample(generation_tokens=0.0, prompt_tokens_computed=100.0), None
    for time, slot in enumerate((Slot(0, False), Slot(0, True, request=4, decoded=0), Slot(0, False), Slot(0, False))):
        tracking = advance_tracking(tracking, page, (slot,), float(time))
        assert (tracking.sample.prefill_progress is None) == (time > 0)
