import math
from dataclasses import replace
from random import Random

from phasewatch.demo.common.workload import RAMP_SECONDS, Request, Workload, WorkloadGenerator

CHAT = Workload(users=5, prompt=(100, 200), output=(10, 20), max_tokens=20, think_seconds=2.0)
STREAM = Workload(per_second=10.0, prompt=(100, 200), output=(10, 20), max_tokens=20)


def start(*workloads: Workload, seed: int = 1, now: float = 0.0) -> WorkloadGenerator:
    clients = WorkloadGenerator(Random(seed))  # noqa: S311  # a simulation must be repeatable
    clients.start(workloads, now)
    return clients


def take(clients: WorkloadGenerator, count: int) -> list[Request]:
    return [clients.take_request() for _ in range(count)]


def test_without_a_workload_there_are_no_requests() -> None:
    assert start().find_next_arrival() == math.inf


def test_all_users_send_a_request_within_the_ramp_and_then_wait_for_the_response() -> None:
    clients = start(CHAT, now=7.0)
    sent = [request.sent_at for request in take(clients, 5)]
    assert sent == sorted(sent)
    assert 7.0 <= sent[0] < sent[-1] <= 7.0 + RAMP_SECONDS
    assert clients.find_next_arrival() == math.inf


def test_after_a_response_a_user_thinks_and_asks_again() -> None:
    clients = start(CHAT)
    for request in take(clients, 5):
        clients.schedule_next(request, 10.0)
    requests = take(clients, 5)
    assert all(request.sent_at > 10.0 for request in requests)
    assert 0.5 < sum(request.sent_at - 10.0 for request in requests) / 5 < 8.0


def test_after_a_rejection_a_user_tries_again() -> None:
    clients = start(replace(CHAT, users=1))
    clients.schedule_retry(clients.take_request(), 10.0)
    assert 10.0 < clients.find_next_arrival() < math.inf


def test_a_request_without_a_user_is_never_followed_by_another_one() -> None:
    clients = start(STREAM)
    request = clients.take_request()
    clients.start((), 0.0)
    clients.schedule_retry(request, 10.0)
    clients.schedule_next(request, 10.0)
    assert clients.find_next_arrival() == math.inf


def test_requests_without_a_user_arrive_at_the_rate_of_their_workload() -> None:
    requests = take(start(STREAM), 2000)
    assert 180 < requests[-1].sent_at < 220


def test_sizes_are_within_the_ranges_of_the_workload() -> None:
    for request in take(start(STREAM), 500):
        assert 100 <= request.prompt <= 200
        assert 10 <= request.output <= 20
        assert request.grammar_seconds == 0.0


def test_every_request_has_a_unique_number() -> None:
    numbers = [request.number for request in take(start(STREAM), 100)]
    assert len(set(numbers)) == 100


def test_equal_seeds_give_equal_requests_and_different_seeds_do_not() -> None:
    def generate(seed: int) -> list[tuple[float, int, int]]:
        requests = take(start(CHAT, STREAM, seed=seed), 50)
        return [(request.sent_at, request.prompt, request.output) for request in requests]

    assert generate(3) == generate(3) != generate(4)


def test_starting_other_workloads_removes_all_clients() -> None:
    clients = start(CHAT)
    clients.start((), 3.0)
    assert clients.find_next_arrival() == math.inf
