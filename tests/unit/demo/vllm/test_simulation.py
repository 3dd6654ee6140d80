import json
from typing import Any

import pytest
import yaml

from phasewatch.config.resolve import parse
from phasewatch.demo.vllm.page import LOADING_SECONDS
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS
from phasewatch.demo.vllm.simulation import SETTINGS, SimulatedVllm, target_keys
from tests.support.simulated_vllm import STARTED


def page(server: SimulatedVllm) -> str:
    return server.answer("GET", "/metrics").body.decode()


def told(server: SimulatedVllm, path: str) -> Any:
    answer = server.answer("GET", path)
    assert (answer.status, answer.content_type) == (200, "application/json")
    return json.loads(answer.body)


def test_the_page_of_metrics_is_text_as_vllm_sends_it() -> None:
    answer = SimulatedVllm(1, STARTED).answer("GET", "/metrics")
    assert answer.status == 200
    assert answer.content_type == "text/plain; version=1.0.0; charset=utf-8"
    assert f"process_start_time_seconds {STARTED - LOADING_SECONDS!r}\n" in answer.body.decode()


def test_version_model_and_settings_are_told_and_the_first_two_are_plainly_simulated() -> None:
    server = SimulatedVllm(1, STARTED)
    server.advance(7.0)
    assert told(server, "/version") == {"version": "0.32.0+simulated"}
    (model,) = told(server, "/v1/models")["data"]
    assert "simulated" in model["id"]
    assert "simulated" in model["root"]
    assert model["created"] == STARTED + 7
    scheduler = told(server, "/server_info?config_format=json")["vllm_config"]["scheduler_config"]
    assert scheduler == {"max_num_seqs": 24, "max_num_batched_tokens": 2048}


def test_health_has_an_empty_body() -> None:
    answer = SimulatedVllm(1, STARTED).answer("GET", "/health")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/v1/completions", 404),
        ("GET", "", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_whatever_else_is_asked_for_is_an_error_in_json(method: str, path: str, status: int) -> None:
    answer = SimulatedVllm(1, STARTED).answer(method, path)
    assert (answer.status, answer.content_type) == (status, "application/json")
    assert json.loads(answer.body)["detail"]


def test_the_act_is_that_of_the_time_and_of_the_offset() -> None:
    server = SimulatedVllm(1, STARTED)
    assert server.act is CYCLE[0]
    server.advance(CYCLE[0].seconds)
    assert server.act is CYCLE[1]
    server.advance(CYCLE_SECONDS + 1.0)
    assert server.act is CYCLE[0]
    begun = SimulatedVllm(1, STARTED, offset=CYCLE[0].seconds + 1.0)
    assert begun.act is CYCLE[1]
    begun.advance(CYCLE[1].seconds - 0.5)
    assert begun.act is CYCLE[2]


def test_a_server_that_begins_in_the_middle_of_an_act_has_users_at_once() -> None:
    server = SimulatedVllm(1, STARTED, offset=CYCLE[0].seconds + 20.0)
    server.advance(8.0)
    assert "num_requests_running" in page(server)
    assert len(server.truth.between(0.0, 8.0)) > 50


def test_time_does_not_go_back() -> None:
    server = SimulatedVllm(1, STARTED)
    server.advance(20.0)
    before = page(server)
    server.advance(10.0)
    assert page(server) == before
    server.advance(20.0)
    assert page(server) == before


def test_how_time_is_cut_changes_nothing_even_across_acts() -> None:
    whole, cut = SimulatedVllm(3, STARTED), SimulatedVllm(3, STARTED)
    for tick in range(int(CYCLE_SECONDS * 10)):
        cut.advance(tick / 10)
    whole.advance(CYCLE_SECONDS - 0.1)
    assert page(whole) == page(cut)


def test_the_keys_are_those_of_a_target() -> None:
    entry = {"name": "simulated", "backend": "vllm", "url": "http://127.0.0.1:1", **target_keys()}
    text = yaml.safe_dump({"targets": [entry]})
    (target,) = parse(text).targets
    assert target.limits.max_num_seqs == SETTINGS.max_num_seqs
    assert target.device.name == "NVIDIA L40S"
    assert target.model.path is not None
