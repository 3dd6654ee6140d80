"""Status, content type and errors of each endpoint."""

import json
from dataclasses import dataclass
from typing import Any

from phasewatch.demo.common.workload import Workload
from phasewatch.demo.llamacpp.counters import Counters
from phasewatch.demo.llamacpp.endpoints import START_HEADER, LlamaServer, respond
from phasewatch.demo.llamacpp.server import LLAMA_SETTINGS
from phasewatch.demo.llamacpp.settings import LlamaServerSettings
from phasewatch.demo.llamacpp.slot_view import SlotView
from tests.support.simulated_llamacpp import CREATED, RECORDED_PAGES, read_values, simulate_llama_server

CROWD = Workload(users=9, think_seconds=0.2, prompt=(50, 100), output=(40, 80), max_tokens=100)
ONE = Workload(users=1, think_seconds=0.5, prompt=(100, 100), output=(41, 41), max_tokens=50)


def get_json(server: LlamaServer, path: str, status: int = 200) -> Any:
    response = respond(server, "GET", path)
    assert (response.status, response.content_type) == (status, "application/json; charset=utf-8"), path
    return json.loads(response.body)


@dataclass
class Loading:
    """A server that loads its model: it has neither slots nor counters."""

    settings: LlamaServerSettings = LLAMA_SETTINGS
    started: int = 1
    is_loading: bool = True
    is_sleeping: bool = False

    def read_clock(self) -> int:
        raise AssertionError

    def observe(self, page: str) -> None:
        raise AssertionError(page)

    def list_slots(self) -> tuple[SlotView, ...]:
        raise AssertionError

    def count_deferred(self) -> int:
        raise AssertionError

    def get_counters(self) -> Counters:
        raise AssertionError

    def take_averages(self) -> tuple[float, float]:
        raise AssertionError


def test_health_answers_ok_and_models_and_props_say_that_they_are_simulated() -> None:
    server = simulate_llama_server()
    server.advance(7.0)
    for path in ("/health", "/v1/health"):
        assert get_json(server, path) == {"status": "ok"}
    for path in ("/v1/models", "/models"):
        (model,) = get_json(server, path)["data"]
        assert "simulated" in model["id"]
        assert model["created"] == CREATED + 7
    props = get_json(server, "/props")
    assert "simulated" in props["model_path"]
    assert "simulated" in props["build_info"]
    assert props["total_slots"] == LLAMA_SETTINGS.slots


def test_metrics_are_text_with_a_start_that_is_constant_for_a_process() -> None:
    server = simulate_llama_server()
    starts = set()
    for second in range(3):
        server.advance(float(second))
        response = server.respond("GET", "/metrics")
        assert (response.status, response.content_type) == (200, "text/plain; version=0.0.4")
        starts.add(response.headers[START_HEADER])
    assert len(starts) == 1
    assert starts.pop().isdigit()


def test_without_its_switch_metrics_answer_501_as_a_recorded_one() -> None:
    server = simulate_llama_server(has_metrics=False)
    assert get_json(server, "/metrics", 501) == RECORDED_PAGES["metrics_off"]
    assert get_json(server, "/props")["endpoint_metrics"] is False
    assert len(get_json(server, "/slots")) == LLAMA_SETTINGS.slots


def test_every_page_of_a_server_that_loads_answers_503_as_a_recorded_one() -> None:
    for path in ("/health", "/props", "/slots", "/metrics", "/v1/models"):
        assert get_json(Loading(), path, 503) == RECORDED_PAGES["loading"], path


def test_every_other_request_is_an_error_in_json() -> None:
    server = simulate_llama_server()
    for method, path in (
        ("GET", "/"),
        ("GET", "/metrics/"),
        ("POST", "/completion"),
        ("POST", "/metrics"),
        ("GET", ""),
    ):
        response = server.respond(method, path)
        assert response.status == 404, (method, path)
        assert json.loads(response.body)["error"]["type"] == "not_found_error", (method, path)


def test_each_read_of_metrics_empties_the_average_gauges_and_a_read_of_slots_does_not() -> None:
    server = simulate_llama_server(ONE)
    server.advance(20.0)
    get_json(server, "/slots")
    first, second = read_values(server), read_values(server)
    names = ("prompt_tokens_seconds", "predicted_tokens_seconds")
    assert all(first[name] > 0 for name in names)
    assert [second[name] for name in names] == [0, 0]
    requests = first["tokens_predicted_total"] / 41
    later_tokens = first["tokens_predicted_total"] - requests
    assert abs(first["predicted_tokens_seconds"] * first["tokens_predicted_seconds_total"] / later_tokens - 1) < 1e-4


def test_the_gauges_of_requests_are_those_of_the_slots() -> None:
    server = simulate_llama_server(CROWD)
    server.advance(20.0)
    values = read_values(server)
    assert values["requests_processing"] == sum(slot["is_processing"] for slot in get_json(server, "/slots")) == 4
    assert values["requests_deferred"] > 0
    assert get_json(server, "/slots?fail_on_no_slot=1", 503)["error"]["type"] == "unavailable_error"


def test_only_reads_of_metrics_and_slots_disturb_a_server_that_sleeps() -> None:
    server = simulate_llama_server(sleep_idle_seconds=5.0)
    server.advance(60.0)
    for path in ("/health", "/props", "/v1/models", "/models", "/nothing"):
        server.respond("GET", path)
        assert get_json(server, "/props")["is_sleeping"] is True, path
    assert server.sleep.wakes == []
    for number, path in enumerate(("/metrics", "/slots"), 1):
        server.advance(60.0 * (1 + number))
        assert get_json(server, "/props")["is_sleeping"] is True, path
        server.respond("GET", path)
        assert get_json(server, "/props")["is_sleeping"] is False, path
        assert len(server.sleep.list_wakes_by_reads()) == number, path


def test_metrics_that_are_off_do_not_wake_a_server() -> None:
    server = simulate_llama_server(sleep_idle_seconds=5.0, has_metrics=False)
    server.advance(60.0)
    server.respond("GET", "/metrics")
    assert server.is_sleeping
