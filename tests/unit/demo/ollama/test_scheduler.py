"""The simulated Ollama loads, keeps, reloads and evicts models and queues requests by the rules of the recorded one."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from tests.support.ollama_requests import A, B, C, build_request, build_words, read_recording, start_server
from tests.support.simulated_ollama import StepwiseOllama
from tests.support.timeline import EPOCH

GENERATE = "/api/generate"


def list_loaded(server: StepwiseOllama) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = server.get("/api/ps")["models"]
    return models


def list_loaded_names(server: StepwiseOllama) -> list[str]:
    return [model["name"] for model in list_loaded(server)]


def read_expiry(server: StepwiseOllama) -> float:
    """Seconds of the server's clock at which the first loaded model expires, according to /api/ps."""
    expiry = datetime.fromisoformat(list_loaded(server)[0]["expires_at"])
    return expiry.timestamp() - EPOCH / SECOND


def clock(server: StepwiseOllama) -> float:
    return server.now / SECOND


# Expiry


def test_a_model_stays_loaded_for_its_session_after_a_request() -> None:
    server = start_server()
    server.generate(**build_request())
    ended = clock(server)
    assert read_expiry(server) == pytest.approx(ended + 300, abs=1e-5)
    server.wait(299)
    assert list_loaded(server)
    server.wait(1)
    assert not list_loaded(server)


def test_expiry_moves_during_the_first_request_and_stands_still_during_later_ones() -> None:
    server = start_server(keep_alive=5.0)
    first = server.send(GENERATE, **build_request(num_predict=2000))
    for _ in range(2):
        server.wait(3)
        assert read_expiry(server) == pytest.approx(clock(server) + 5, abs=1e-5)
    server.complete(first)
    server.wait(1)
    frozen = read_expiry(server)
    server.send(GENERATE, **build_request(num_predict=4000))
    server.wait(10)
    assert read_expiry(server) == frozen < clock(server)


def test_a_keep_alive_applies_to_later_requests_without_one() -> None:
    server = start_server()
    server.generate(**build_request(keep_alive="20s"))
    server.generate(**build_request())
    assert read_expiry(server) == pytest.approx(clock(server) + 20, abs=1e-5)


def test_a_keep_alive_is_a_number_of_seconds_or_a_go_duration() -> None:
    for value, seconds in ((90, 90), (1.5, 1.5), ("1m30s", 90), ("500ms", 0.5), (None, 300)):
        server = start_server()
        server.generate(**build_request(keep_alive=value))
        assert read_expiry(server) == pytest.approx(clock(server) + seconds, abs=1e-5), value


def test_a_negative_keep_alive_expires_in_the_year_2319() -> None:
    _, recorded = read_recording("ps_forever")
    for value in (-1, "-1m"):
        server = start_server()
        server.generate(**build_request(keep_alive=value))
        server.wait(10 * 86_400)
        expiry = list_loaded(server)[0]["expires_at"]
        assert expiry[:4] == recorded["models"][0]["expires_at"][:4] == "2319", value


def test_a_keep_alive_of_0_unloads_as_soon_as_the_model_is_idle() -> None:
    for value in (0, "0", "0s"):
        server = start_server()
        server.generate(**build_request(keep_alive=value))
        assert not list_loaded(server), value


def test_an_unload_waits_for_the_running_request() -> None:
    server = start_server()
    running = server.send(GENERATE, **build_request())
    server.wait(2.1)
    server.generate(**build_request(prompt="", keep_alive=0))
    assert list_loaded(server)
    server.complete(running)
    assert not list_loaded(server)


def test_expiry_is_in_the_machines_time_zone_with_nine_digits() -> None:
    def read_expires_at(zone: timezone) -> str:
        server = start_server(zone=zone)
        server.generate(**build_request())
        expires_at: str = list_loaded(server)[0]["expires_at"]
        return expires_at

    recorded_digits = read_recording("ps_two")[1]["models"][0]["expires_at"].partition(".")[2]
    utc, india = read_expires_at(UTC), read_expires_at(timezone(timedelta(hours=5.5)))
    assert utc.endswith("Z")
    assert india.endswith("+05:30")
    assert datetime.fromisoformat(utc) == datetime.fromisoformat(india)
    assert len(utc.partition(".")[2]) == len(recorded_digits) == 10


def test_the_last_model_to_expire_is_listed_first() -> None:
    server = start_server()
    for model, seconds in (("tiny-a", 50), ("tiny-b", 100)):
        server.generate(**build_request(model=model, keep_alive=seconds))
    for name, listed in {
        "ps_two": read_recording("ps_two")[1],
        "ps_forever": read_recording("ps_forever")[1],
        "simulated": server.get("/api/ps"),
    }.items():
        times = [datetime.fromisoformat(model["expires_at"]) for model in listed["models"]]
        assert times == sorted(times, reverse=True), name
        assert len(times) == 2, name


def test_a_model_pulled_again_while_loaded_is_listed_twice_under_one_name() -> None:
    server = start_server()
    server.generate(**build_request())
    server.ollama.pull(Model("tiny-a:latest", "f" * 64))
    server.generate(**build_request())
    for name, listed in {"recorded": read_recording("ps_forever")[1], "simulated": server.get("/api/ps")}.items():
        assert len({model["digest"] for model in listed["models"]}) == 2, name
        assert len({model["name"] for model in listed["models"]}) == 1, name


def test_a_model_is_not_listed_while_it_loads() -> None:
    server = start_server()
    server.send(GENERATE, **build_request())
    server.wait(1.9)
    assert not list_loaded(server)
    server.wait(0.2)
    assert list_loaded(server)


# Reloads, evictions, queues

NOTHING: dict[str, Any] = {}
RELOADS: list[tuple[dict[str, Any], dict[str, Any], bool, bool]] = [
    # loaded with, then requested with, reloads, reloads again for a request like the first
    (NOTHING, NOTHING, False, False),
    (NOTHING, {"options": {"num_ctx": 4096}}, False, False),
    (NOTHING, {"options": {"temperature": 0.1, "seed": 5, "num_keep": 9, "stop": ["."]}}, False, False),
    (NOTHING, {"truncate": False}, False, False),
    (NOTHING, {"think": False}, False, False),
    (NOTHING, {"options": {"num_gpu": -1}}, False, False),
    (NOTHING, {"options": {"num_batch": 512}}, False, False),
    (NOTHING, {"shift": True}, False, False),
    ({"options": {"num_ctx": 8192}}, NOTHING, True, True),
    ({"options": {"num_ctx": 8192}}, {"options": {"num_ctx": 8192}}, False, False),
    ({"options": {"num_ctx": 100_000}}, {"options": {"num_ctx": 32_768}}, False, False),
    (NOTHING, {"options": {"num_gpu": 0}}, True, False),
    (NOTHING, {"options": {"num_batch": 256}}, True, True),
    (NOTHING, {"options": {"num_thread": 2}}, True, True),
    (NOTHING, {"options": {"use_mmap": True}}, True, True),
    (NOTHING, {"options": {"main_gpu": 0}}, True, True),
    (NOTHING, {"options": {"draft_num_predict": 2}}, True, True),
    (NOTHING, {"shift": False}, True, True),
]


def test_a_model_is_reloaded_only_for_other_runner_options() -> None:
    for loaded, requested, reloads, again in RELOADS:
        server = start_server()
        server.generate(**build_request(**loaded))
        for request, expected in ((requested, reloads), (loaded, again)):
            load_duration = server.generate(**build_request(**request))["load_duration"]
            assert (load_duration > SECOND) is expected, (loaded, requested, request)


def test_the_context_is_limited_to_the_one_the_model_was_trained_with() -> None:
    server = start_server()
    server.generate(**build_request(options={"num_ctx": 100_000}))
    assert list_loaded(server)[0]["context_length"] == 32_768


def test_a_reload_resets_the_session() -> None:
    server = start_server()
    server.generate(**build_request(keep_alive=1000))
    server.generate(**build_request(options={"num_ctx": 8192}))
    assert read_expiry(server) == pytest.approx(clock(server) + 300, abs=1e-5)


def test_the_idle_model_with_the_shortest_session_is_evicted() -> None:
    server = start_server(A, B, C, max_loaded=2)
    server.generate(**build_request("tiny-a", keep_alive=1000))
    server.generate(**build_request("tiny-b", keep_alive=100))
    server.generate(**build_request("tiny-c"))
    assert list_loaded_names(server) == ["tiny-a:latest", "tiny-c:latest"]


def test_a_busy_model_is_not_evicted_if_an_idle_one_can_be() -> None:
    server = start_server(A, B, C, max_loaded=2)
    server.generate(**build_request("tiny-b"))
    busy = server.send(GENERATE, **build_request("tiny-a", num_predict=1000, keep_alive=1))
    server.wait(2.5)
    server.generate(**build_request("tiny-c"))
    assert busy.response is None
    assert set(list_loaded_names(server)) == {"tiny-a:latest", "tiny-c:latest"}


def test_a_load_waits_for_the_running_request_of_the_model_to_evict() -> None:
    server = start_server(max_loaded=1)
    running = server.send(GENERATE, **build_request("tiny-a", num_predict=1000))
    server.wait(2.5)
    waited = server.generate(**build_request("tiny-b"))
    assert running.response is not None
    assert waited["load_duration"] > 10 * SECOND
    assert list_loaded_names(server) == ["tiny-b:latest"]


def test_only_requests_that_need_a_load_can_exceed_the_queue() -> None:
    server = start_server(max_queue=1)
    exchanges = [server.send(GENERATE, **build_request("tiny-a")) for _ in range(3)]
    assert server.complete(exchanges[2]) == read_recording("busy_503")
    for exchange in exchanges[:2]:
        assert server.complete(exchange)[0] == 200
    loaded = [server.send(GENERATE, **build_request("tiny-a")) for _ in range(9)]
    assert {server.complete(exchange)[0] for exchange in loaded} == {200}


def test_the_slot_is_first_come_first_served() -> None:
    server = start_server()
    exchanges = [server.send(GENERATE, **build_request(prompt=build_words(9, prefix))) for prefix in "abc"]
    ends = []
    for exchange in exchanges:
        server.complete(exchange)
        ends.append(server.now)
    assert ends == sorted(set(ends))


def test_a_closed_connection_frees_the_slot() -> None:
    server = start_server()
    server.generate(**build_request(prompt="warm up"))
    long = server.send(GENERATE, **build_request(num_predict=4000))
    server.wait(1)
    server.ollama.cancel(server.now, long)
    response = server.generate(**build_request(num_predict=1))
    assert response["total_duration"] < 0.2 * SECOND
    assert long.response is None


def test_a_closed_connection_leaves_the_queue() -> None:
    server = start_server()
    first, second, third = (server.send(GENERATE, **build_request(num_predict=200)) for _ in range(3))
    server.wait(2.1)
    server.ollama.cancel(server.now, second)
    server.complete(first)
    between = server.now
    server.complete(third)
    assert server.now - between < SECOND
    assert second.response is None


def test_a_closed_connection_abandons_its_load_and_the_next_request_loads() -> None:
    server = start_server()
    abandoned = server.send(GENERATE, **build_request())
    server.wait(1)
    following = server.send(GENERATE, **build_request("tiny-b"))
    server.ollama.cancel(server.now, abandoned)
    server.complete(following)
    assert list_loaded_names(server) == ["tiny-b:latest"]
