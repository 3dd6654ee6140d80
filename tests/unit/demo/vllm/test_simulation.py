import json
from typing import Any

import yaml

from phasewatch.demo.vllm.page import LOADING_SECONDS
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS
from phasewatch.demo.vllm.simulation import SETTINGS, SimulatedVllm, build_target_keys
from tests.support.simulated_vllm import CREATED
from tests.support.targets import parse_config


def get_page(server: SimulatedVllm) -> str:
    return server.respond("GET", "/metrics").body.decode()


def get_json(server: SimulatedVllm, path: str) -> Any:
    response = server.respond("GET", path)
    assert (response.status, response.content_type) == (200, "application/json")
    return json.loads(response.body)


def test_the_metrics_page_has_vllms_content_type_and_the_process_start() -> None:
    response = SimulatedVllm(1, CREATED).respond("GET", "/metrics")
    assert response.status == 200
    assert response.content_type == "text/plain; version=1.0.0; charset=utf-8"
    assert f"process_start_time_seconds {CREATED - LOADING_SECONDS!r}\n" in response.body.decode()


def test_version_and_model_say_that_they_are_simulated_and_settings_are_reported() -> None:
    server = SimulatedVllm(1, CREATED)
    server.advance(7.0)
    assert get_json(server, "/version") == {"version": "0.32.0+simulated"}
    (model,) = get_json(server, "/v1/models")["data"]
    assert "simulated" in model["id"]
    assert "simulated" in model["root"]
    assert model["created"] == CREATED + 7
    scheduler = get_json(server, "/server_info?config_format=json")["vllm_config"]["scheduler_config"]
    assert scheduler == {"max_num_seqs": 24, "max_num_batched_tokens": 2048}


def test_health_has_an_empty_body() -> None:
    response = SimulatedVllm(1, CREATED).respond("GET", "/health")
    assert (response.status, response.body) == (200, b"")


def test_every_other_request_is_an_error_in_json() -> None:
    for method, path, status in (
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/v1/completions", 404),
        ("GET", "", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/v1/models", 405),
    ):
        response = SimulatedVllm(1, CREATED).respond(method, path)
        assert (response.status, response.content_type) == (status, "application/json"), (method, path)
        assert json.loads(response.body)["detail"], (method, path)


def test_the_act_follows_from_the_time_and_the_offset() -> None:
    server = SimulatedVllm(1, CREATED)
    assert server.act is CYCLE[0]
    server.advance(CYCLE[0].seconds)
    assert server.act is CYCLE[1]
    server.advance(CYCLE_SECONDS + 1.0)
    assert server.act is CYCLE[0]
    with_offset = SimulatedVllm(1, CREATED, offset=CYCLE[0].seconds + 1.0)
    assert with_offset.act is CYCLE[1]
    with_offset.advance(CYCLE[1].seconds - 0.5)
    assert with_offset.act is CYCLE[2]


def test_a_server_that_starts_in_the_middle_of_an_act_has_users_at_once() -> None:
    server = SimulatedVllm(1, CREATED, offset=CYCLE[0].seconds + 20.0)
    server.advance(8.0)
    assert "num_requests_running" in get_page(server)
    assert len(server.truth.select_between(0.0, 8.0)) > 50


def test_time_does_not_go_back() -> None:
    server = SimulatedVllm(1, CREATED)
    server.advance(20.0)
    before = get_page(server)
    server.advance(10.0)
    assert get_page(server) == before
    server.advance(20.0)
    assert get_page(server) == before


def test_the_result_does_not_depend_on_how_time_is_divided_even_across_acts() -> None:
    whole, divided = SimulatedVllm(3, CREATED), SimulatedVllm(3, CREATED)
    for tick in range(int(CYCLE_SECONDS * 10)):
        divided.advance(tick / 10)
    whole.advance(CYCLE_SECONDS - 0.1)
    assert get_page(whole) == get_page(divided)


def test_the_target_keys_are_valid_configuration() -> None:
    entry = {"name": "simulated", "backend": "vllm", "url": "http://127.0.0.1:1", **build_target_keys()}
    text = yaml.safe_dump({"targets": [entry]})
    (target,) = parse_config(text).targets
    assert target.server.max_num_seqs == SETTINGS.max_num_seqs
    assert target.device.name == "NVIDIA L40S"
    assert target.model.path is not None
