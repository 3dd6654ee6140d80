"""The simulated Ollama reports and refuses what the recorded one does: same fields, same words."""

import json
from typing import Any

from phasewatch.demo.ollama.model import Model
from tests.support.ollama_requests import (
    EMBEDDING,
    ONE_TOKEN_PER_WORD,
    build_request,
    build_words,
    read_recording,
    start_server,
)
from tests.support.simulated_ollama import StepwiseOllama


def shape(value: Any) -> Any:
    """Keys and types; for a list those of its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value)


def generate(server: StepwiseOllama, request: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON of /api/generate."""
    return server.complete(server.send("/api/generate", **request))


def test_the_inventory_has_the_recorded_fields_in_their_order() -> None:
    for path, recording in (("version", "version"), ("tags", "tags"), ("ps", "ps_two")):
        server = start_server()
        server.generate(**build_request())
        simulated, (_, recorded) = server.get(f"/api/{path}"), read_recording(recording)
        assert shape(simulated) == shape(recorded), path
        assert json.dumps(list(shape(simulated))) == json.dumps(list(shape(recorded))), path


def test_show_has_the_recorded_fields_with_the_models_values() -> None:
    server = start_server()
    for _ in range(2):
        status, simulated = server.complete(server.send("/api/show", model="tiny-e"))
    _, recorded = read_recording("show")
    assert (status, shape(simulated)) == (200, shape(recorded))
    assert simulated["tensors"] == recorded["tensors"]
    assert simulated["capabilities"] == ["embedding"]
    assert server.ollama.show_counts == {"tiny-e": 2}


def test_responses_to_generate_have_the_recorded_fields() -> None:
    for recording, request in (
        ("cold_raw", build_request()),
        ("num_predict_1", build_request(num_predict=1)),
        ("templated", build_request(raw=False)),
        ("load_only", build_request(prompt="")),
        ("load_only", {"model": "tiny-a"}),
        ("unload", build_request(prompt="", keep_alive=0)),
    ):
        simulated, (_, recorded) = start_server().generate(**request), read_recording(recording)
        assert list(simulated) == list(recorded), (recording, request)
        assert shape(simulated) == shape(recorded), (recording, request)
        assert simulated["done_reason"] == recorded["done_reason"], (recording, request)


def test_a_reply_with_repeated_tokens_is_not_done_and_has_no_timings() -> None:
    server = start_server(token_repeats=True)
    _, recorded = read_recording("token_repeat_done_false")
    assert shape(server.generate(**build_request())) == shape(recorded)
    assert server.generate(**build_request())["done"] is recorded["done"]


def test_refusals_are_word_for_word_the_recorded_ones() -> None:
    too_long, context = build_words(1982), {"num_ctx": 512}
    for recording, request in (
        ("notfound", build_request(model="nope")),
        ("embed_only_generate", build_request(model="tiny-e")),
        ("raw_system", build_request(system="be kind")),
        ("think_true", build_request(think=True)),
        ("bad_opt", build_request(options={"num_ctx": "many"})),
        ("ovf_trunc_false", build_request(prompt=too_long, truncate=False, options=context)),
        ("ovf_shift_false", build_request(prompt=too_long, shift=False, options=context)),
    ):
        server = start_server(ONE_TOKEN_PER_WORD, EMBEDDING)
        assert generate(server, request) == read_recording(recording), recording


def test_a_foreign_host_header_is_forbidden_with_an_empty_body() -> None:
    status, recorded = read_recording("host_evil")
    for host in ("evil.example", "evil.example:11434"):
        response = start_server().ollama.request(0, "GET", "/api/ps", {"Host": host}).response
        assert response is not None, host
        assert (response.status, response.body.decode()) == (status, recorded["_raw"]), host


def test_a_local_host_header_is_accepted() -> None:
    for host in ("127.0.0.1:11434", "localhost", "[::1]:11434", "10.0.0.7", "llm.internal"):
        response = start_server().ollama.request(0, "GET", "/api/ps", {"Host": host}).response
        assert response is not None, host
        assert response.status == 200, host


def test_other_paths_are_not_found_and_other_methods_are_not_allowed() -> None:
    status, recorded = read_recording("metrics_404")
    missing = start_server().send("/metrics", "GET").response
    assert missing is not None
    assert (missing.status, missing.body.decode()) == (status, recorded["_raw"])
    wrong_method = start_server().send("/api/show", "GET").response
    assert wrong_method is not None
    assert wrong_method.status == 405


def test_a_keep_alive_that_is_not_a_duration_is_refused() -> None:
    for value, message in (
        ("abc", 'time: invalid duration "abc"'),
        ("5", 'time: missing unit in duration "5"'),
        (True, "Unsupported type: 'bool'"),
    ):
        assert generate(start_server(), build_request(keep_alive=value)) == (400, {"error": message}), value


def test_a_field_of_a_wrong_type_is_refused() -> None:
    for field, value in (("prompt", 5), ("raw", "yes"), ("options", [1])):
        status, body = generate(start_server(), {**build_request(), field: value})
        assert status == 400, field
        assert f"GenerateRequest.{field}" in body["error"], field


def test_a_body_that_is_not_json_is_refused() -> None:
    response = start_server().ollama.request(0, "POST", "/api/generate", {}, b"{").response
    assert response is not None
    assert response.status == 400


def test_older_versions_lack_the_newer_fields() -> None:
    for version, expected in (
        ("0.9.6", (False, False, False)),
        ("0.10.0", (True, False, False)),
        ("0.12.0", (True, True, False)),
        ("0.30.0", (True, True, True)),
        ("0.0.0", (True, True, True)),
    ):
        server = start_server(version=version)
        server.generate(**build_request())
        tags = server.get("/api/tags")["models"]
        fields = (
            "context_length" in server.get("/api/ps")["models"][0],
            "remote_model" in tags[-1],
            "capabilities" in tags[0] and "context_length" in tags[0]["details"],
        )
        assert fields == expected, version


def test_a_remote_model_responds_without_timings_and_is_never_loaded() -> None:
    server = start_server()
    assert "total_duration" not in server.generate(**build_request(model="big:cloud"))
    assert server.get("/api/ps") == {"models": []}


def test_timings_of_0_are_omitted() -> None:
    timeless = Model("tiny-a:latest", "a" * 64, prefill_fixed_seconds=0, prefill_seconds_per_token=0)
    assert "prompt_eval_duration" not in start_server(timeless).generate(**build_request())


def test_streaming_is_refused_as_not_simulated() -> None:
    status, _ = generate(start_server(), build_request(stream=True))
    assert status == 501


def test_a_removed_model_is_not_found() -> None:
    server = start_server()
    server.ollama.remove("tiny-a:latest")
    status, _ = generate(server, build_request())
    assert status == 404
