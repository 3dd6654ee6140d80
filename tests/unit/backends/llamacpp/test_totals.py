"""Totals of a window from pages with six digits: right to 3 % or absent, however much the server has counted before."""

import json
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phasewatch.analysis.phases import Phases
from phasewatch.backends.llamacpp.facts import ProcessFacts, Props
from phasewatch.backends.llamacpp.process import ProcessState, fold_reading
from phasewatch.backends.llamacpp.reading import ReadingParser
from phasewatch.scrape.http import Response
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer
from tests.support.targets import new_target

FACTS = ProcessFacts("tiny", Props(slots=4, context=2048))


def new_jobs(seed: int, slots: int, seconds: float) -> tuple[Job, ...]:
    numbers = random.Random(seed)  # noqa: S311  # no secret
    longest, fastest = numbers.choice([20, 100, 600]), numbers.choice([0.005, 0.02, 0.1])
    jobs = []
    for slot in range(slots):
        time = numbers.uniform(0, 5)
        while time < seconds:
            first = time + numbers.uniform(0.05, 1.5)
            output, pause = numbers.randint(2, longest), fastest * numbers.uniform(0.8, 1.2)
            job = Job(time, first, output, pause, slot, numbers.randint(10, 900))
            jobs.append(job)
            time = job.end + numbers.uniform(0.02, numbers.choice([0.1, 5]))
    return tuple(sorted(jobs, key=lambda job: job.begin))


def watch(
    server: ScriptedLlamaServer, times: list[float], window: float, *, page: bool = True, slots: bool = True
) -> list[tuple[float, float, Phases]]:
    """Start and end of the window, and both phases, after each scrape."""
    target = new_target("t", "llamacpp", "http://a.invalid", window=window)
    state, parser, found = ProcessState(facts=FACTS), ReadingParser(), []
    for time in times:
        metrics = Response(200 if page else 501, "", server.render_page(time).encode() if page else b"")
        listed = Response(200 if slots else 501, "", server.render_slots(time) if slots else b"")
        state = fold_reading(state, parser.parse(metrics, listed), ScrapeTiming(time, time, None), target)
        analysis = state.pages.engines[state.key]
        found.append((analysis.past.times[0], time, analysis.phases))
    return found


@settings(max_examples=20)
@given(
    st.integers(0, 100_000),
    st.integers(1, 4),
    st.sampled_from([0, 10**6, 2 * 10**7, 3 * 10**8, 10**10]),
    st.sampled_from([10.0, 60.0]),
    st.booleans(),
)
@example(7, 4, 10**8, 60.0, True)
@example(0, 1, 10**6, 10.0, True)
@example(77_708, 4, 10**6, 10.0, True)
def test_a_throughput_is_right_to_three_percent_or_absent_after_any_number_of_tokens(
    seed: int, slots: int, before: int, window: float, shows_slots: bool
) -> None:
    server = ScriptedLlamaServer(new_jobs(seed, slots, 80.0), slots, before=before, streams_per_step=2.5)
    for start, end, phases in watch(server, [float(t) for t in range(90)], window, slots=shows_slots):
        truth = server.count_tokens(end) - server.count_tokens(start)
        found = phases.decode_throughput_tokens_per_second
        if found == 0 and not shows_slots:
            continue  # nothing tells that there were requests between two scrapes
        if found is not None and end > start:
            # One token is the least that a window edge can cost.
            assert abs(found * (end - start) - truth) <= max(1.0, 0.031 * truth), (end, found * (end - start), truth)
        computed = sum(job.prompt for job in server.jobs if start < job.first <= end)
        prefill = phases.prefill_throughput_tokens_per_second
        if prefill is not None and end > start and (prefill or shows_slots):
            assert abs(prefill * (end - start) - computed) <= max(1.0, 0.031 * computed)


@settings(max_examples=10)
@given(st.integers(0, 100_000), st.integers(1, 4))
def test_up_to_a_million_tokens_no_throughput_is_absent(seed: int, slots: int) -> None:
    server = ScriptedLlamaServer(new_jobs(seed, slots, 80.0), slots, before=500_000)
    for start, end, phases in watch(server, [float(t) for t in range(90)], 10.0):
        assert end == start or phases.decode_throughput_tokens_per_second is not None


@settings(max_examples=10)
@given(st.integers(0, 100_000), st.integers(1, 4), st.sampled_from([0, 2 * 10**7, 10**9]))
def test_the_speed_of_a_stream_is_right_after_any_number_of_tokens_or_absent(
    seed: int, slots: int, before: int
) -> None:
    server = ScriptedLlamaServer(new_jobs(seed, slots, 80.0), slots, before=before)
    for start, end, phases in watch(server, [float(t) for t in range(90)], 60.0):
        tokens = server.count_tokens(end) - server.count_tokens(start)
        seconds = server.count_stream_seconds(end) - server.count_stream_seconds(start)
        found = phases.decode_tokens_per_second
        # First tokens are in the count of the server; short windows know the beginnings of streams to one scrape.
        if found is not None and end - start > 50 and seconds > 20:
            assert abs(found / (tokens / seconds) - 1) < 0.1, (end, found, tokens / seconds)


def test_an_idle_server_has_rates_of_zero_after_any_number_of_tokens() -> None:
    for before in (0, 10**7, 10**10):
        server = ScriptedLlamaServer((), before=before)
        *_, (_, _, phases) = watch(server, [float(t) for t in range(20)], 10.0)
        assert phases.decode_throughput_tokens_per_second == 0
        assert phases.prefill_throughput_tokens_per_second == 0
        assert phases.decode_tokens_per_second is None


def test_a_server_of_embeddings_has_no_decode_speed() -> None:
    server = ScriptedLlamaServer((), before=0)
    target = new_target("t", "llamacpp", "http://a.invalid")
    state, parser = ProcessState(facts=FACTS), ReadingParser()
    for time in range(30):
        page = "".join(
            f"llamacpp:{name} {value}\n"
            for name, value in {
                "prompt_tokens_total": 500 * time,
                "tokens_predicted_total": 0,
                "n_decode_total": 4 * time,
                "n_busy_slots_per_decode": 1.5,
                "requests_processing": 1,
                "requests_deferred": 0,
            }.items()
        )
        for slots in (None, Response(501, "", b"")):
            reading = parser.parse(Response(200, "", page.encode()), slots)
        state = fold_reading(state, reading, ScrapeTiming(float(time), float(time), None), target)
    phases = state.pages.engines[state.key].phases
    assert phases.decode_throughput_tokens_per_second in {None, 0.0}
    assert phases.decode_tokens_per_second is None
    assert phases.prefill_throughput_tokens_per_second == 500
    assert server.before == 0


def test_with_slots_alone_throughput_is_close_for_answers_that_are_seen_twice() -> None:
    jobs = tuple(Job(t, t + 0.3, 150, 0.02, slot=0) for t in range(0, 80, 4))
    server = ScriptedLlamaServer(jobs)
    found = watch(server, [0.25 * n for n in range(320)], 60.0, page=False)
    start, end, phases = found[-1]
    truth = (server.count_tokens(end) - server.count_tokens(start)) / (end - start)
    assert phases.decode_throughput_tokens_per_second is not None
    assert abs(phases.decode_throughput_tokens_per_second / truth - 1) < 0.04
    assert phases.prefill_streams is None


def test_a_page_without_slots_still_has_throughput_and_the_speed_of_finished_streams() -> None:
    jobs = (Job(t + 4 * slot, t + 4 * slot + 0.1, 380, 0.02, slot) for t in range(0, 80, 8) for slot in (0, 1))
    server = ScriptedLlamaServer(tuple(sorted(jobs, key=lambda job: job.begin)), 2)
    start, end, phases = watch(server, [float(t) for t in range(75)], 60.0, slots=False)[-1]
    truth = (server.count_tokens(end) - server.count_tokens(start)) / (end - start)
    assert phases.decode_throughput_tokens_per_second is not None
    assert abs(phases.decode_throughput_tokens_per_second / truth - 1) < 0.005
    assert phases.decode_tokens_per_second is not None
    assert abs(phases.decode_tokens_per_second / 50 - 1) < 0.01


def test_without_slots_streams_that_did_not_fill_the_window_say_nothing_of_its_speed() -> None:
    # One request is broken off in its prompt, which counts two tokens and a microsecond; the other goes on.
    jobs = (Job(1.0, 2.0, 4000, 0.05), Job(20.0, 20.5, 2, 1e-6, slot=1))
    for start, end, phases in watch(ScriptedLlamaServer(jobs), [float(t) for t in range(60)], 10.0, slots=False):
        assert phases.decode_tokens_per_second is None, (start, end)


def test_requests_that_no_scrape_saw_at_work_are_not_taken_for_none() -> None:
    jobs = tuple(Job(t + 0.2, t + 0.3, 20, 0.02) for t in range(1, 30))
    for start, end, phases in watch(ScriptedLlamaServer(jobs, before=10**8), [float(t) for t in range(30)], 10.0):
        assert end <= start + 1 or phases.decode_throughput_tokens_per_second is None, end


def test_seconds_that_the_server_counted_in_days_give_no_speed_that_their_rounding_decides() -> None:
    # Two days of slow streams, printed in whole seconds, which over ten seconds of one stream are a tenth.
    jobs = tuple(Job(t + 0.1, t + 0.2, 98, 0.0251) for t in range(0, 78, 3))
    for shows_slots in (False, True):
        server = ScriptedLlamaServer(jobs, slots=1, before=900_000, speed_before=5.0)
        for start, end, phases in watch(server, [0.97 * n for n in range(80)], 10.0, slots=shows_slots):
            if phases.decode_tokens_per_second is not None and end - start > 9:
                assert phases.decode_tokens_per_second == pytest.approx(1 / 0.0251, rel=0.05), (shows_slots, end)


def test_with_slots_alone_prompts_that_were_hardly_seen_have_no_speed() -> None:
    # Seen in prefill at most once, and never as a stream; then one long prompt, seen from its beginning on.
    jobs = tuple(Job(t, t + 0.4, 2, 0.02) for t in range(1, 30))
    *_, (_, _, phases) = watch(ScriptedLlamaServer(jobs), [0.25 * n for n in range(120)], 10.0, page=False)
    assert phases.prefill_throughput_tokens_per_second is None
    state, parser, target = ProcessState(facts=FACTS), ReadingParser(), new_target("t", "llamacpp", "http://a.invalid")
    for time in range(30):
        at_work = {"is_processing": True, "n_prompt_tokens_processed": 100 * max(0, time - 10)}
        slot = {"id": 0, "id_task": 5, "next_token": {"n_decoded": 0}, **at_work}
        slot = slot if time >= 10 else {"id": 0, "is_processing": False}
        reading = parser.parse(Response(501, "", b""), Response(200, "", json.dumps([slot]).encode()))
        state = fold_reading(state, reading, ScrapeTiming(float(time), float(time), None), target)
    phases = state.pages.engines[state.key].phases
    assert phases.prefill_throughput_tokens_per_second == pytest.approx(1900 / 29)
