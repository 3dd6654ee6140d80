import math
from dataclasses import replace
from random import Random

from phasewatch.demo.vllm.workload import RAMP, Crowd, Request, Workload

CHAT = Workload(users=5, prompt=(100, 200), output=(10, 20), most=20, think=2.0)
STREAM = Workload(per_second=10.0, prompt=(100, 200), output=(10, 20), most=20)


def crowd(*workloads: Workload, seed: int = 1, now: float = 0.0) -> Crowd:
    found = Crowd(Random(seed))  # noqa: S311  # repeatable
    found.begin(workloads, now)
    return found


def taken(found: Crowd, count: int) -> list[Request]:
    return [found.take() for _ in range(count)]


def test_nobody_comes_of_an_empty_workload() -> None:
    assert crowd().next() == math.inf


def test_all_users_begin_within_the_ramp_and_then_wait_for_their_answers() -> None:
    found = crowd(CHAT, now=7.0)
    sent = [request.sent for request in taken(found, 5)]
    assert sent == sorted(sent)
    assert 7.0 <= sent[0] < sent[-1] <= 7.0 + RAMP
    assert found.next() == math.inf


def test_a_user_who_has_an_answer_asks_again_after_thinking() -> None:
    found = crowd(CHAT)
    requests = taken(found, 5)
    for request in requests:
        found.answered(request, 10.0)
    again = taken(found, 5)
    assert all(request.sent > 10.0 for request in again)
    assert 0.5 < sum(request.sent - 10.0 for request in again) / 5 < 8.0


def test_a_user_who_is_refused_tries_again() -> None:
    found = crowd(replace(CHAT, users=1))
    found.refused(found.take(), 10.0)
    assert 10.0 < found.next() < math.inf


def test_a_passer_by_who_is_refused_or_answered_does_not_come_back() -> None:
    found = crowd(STREAM)
    request = found.take()
    found.begin((), 0.0)
    found.refused(request, 10.0)
    found.answered(request, 10.0)
    assert found.next() == math.inf


def test_passers_by_come_at_their_rate() -> None:
    found = crowd(STREAM)
    requests = taken(found, 2000)
    assert 180 < requests[-1].sent < 220


def test_requests_are_of_the_size_that_their_workload_says() -> None:
    for request in taken(crowd(STREAM), 500):
        assert 100 <= request.prompt <= 200
        assert 10 <= request.output <= 20
        assert request.grammar == 0.0


def test_every_request_has_a_number_of_its_own() -> None:
    numbers = [request.number for request in taken(crowd(STREAM), 100)]
    assert len(set(numbers)) == 100


def test_the_same_seed_gives_the_same_requests() -> None:
    def told(seed: int) -> list[tuple[float, int, int]]:
        return [(r.sent, r.prompt, r.output) for r in taken(crowd(CHAT, STREAM, seed=seed), 50)]

    assert told(3) == told(3) != told(4)


def test_when_others_begin_everybody_leaves() -> None:
    found = crowd(CHAT)
    found.begin((), 3.0)
    assert found.next() == math.inf
