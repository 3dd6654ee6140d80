"""Token counts and durations of the simulated Ollama follow the rules of the recorded one."""

from typing import Any

import pytest

from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from tests.support.ollama_requests import (
    ONE_TOKEN_PER_WORD,
    build_request,
    build_words,
    read_recording,
    start_server,
)

Body = dict[str, Any]


def read_body(name: str) -> Body:
    """The body of a recorded response."""
    body: Body = read_recording(name)[1]
    return body


def generate(*models: Model, **request: Any) -> Body:
    """The response to the first request of a new server."""
    return start_server(*models).generate(**build_request(**request))


def generate_pair(first: Body, second: Body) -> tuple[Body, Body]:
    """The responses to two requests on a warm server."""
    server = start_server()
    server.generate(**build_request(prompt="warm up"))
    return server.generate(**first), server.generate(**second)


def test_a_repeated_prompt_is_counted_whole_and_timed_without_its_cached_part() -> None:
    for name, (computed, cached) in {
        "recorded": (read_body("unique_prefix"), read_body("same_prompt_cached")),
        "same prompt": generate_pair(build_request(), build_request()),
        "one word more": generate_pair(build_request(), build_request(prompt=build_words(141))),
    }.items():
        assert cached["prompt_eval_count"] == pytest.approx(computed["prompt_eval_count"], abs=2), name
        assert cached["prompt_eval_duration"] < computed["prompt_eval_duration"] / 10, name


def test_the_next_turn_of_a_conversation_is_computed_from_its_first_new_word() -> None:
    server = start_server(ONE_TOKEN_PER_WORD)
    conversation = build_words(100) + " " + server.generate(**build_request(prompt=build_words(100)))["response"]
    response = server.generate(**build_request(prompt=conversation + " " + build_words(10, "new")))
    assert (response["prompt_eval_count"], response["prompt_eval_duration"]) == (143, (4 + 10 * 0.5) * 1_000_000)


def test_a_template_adds_tokens_to_a_prompt_that_is_not_raw() -> None:
    raw, templated = generate_pair(build_request(), build_request(raw=False))
    assert templated["prompt_eval_count"] > raw["prompt_eval_count"]


def test_a_first_prompt_is_computed_entirely() -> None:
    model = Model("tiny-a:latest", "a" * 64, prefill_fixed_seconds=0.01, prefill_seconds_per_token=0.001, cold_factor=2)
    response = generate(model, prompt=build_words(100))
    assert (response["prompt_eval_count"], response["prompt_eval_duration"]) == (141, 2 * (10 + 141) * 1_000_000)


def test_a_prompt_with_another_first_word_is_computed_entirely() -> None:
    # Both prompts save only the token for their beginning.
    computed, other = generate_pair(build_request(), build_request(prompt="else " + build_words(139)))
    assert computed["prompt_eval_duration"] - other["prompt_eval_duration"] == 0


def test_a_word_has_as_many_tokens_as_the_model_defines() -> None:
    model = Model("tiny-a:latest", "a" * 64, tokens_per_word=2.5)
    assert generate(model, prompt=build_words(100))["prompt_eval_count"] == 251


def test_a_single_token_takes_a_microsecond() -> None:
    for name, response in {"recorded": read_body("num_predict_1"), "simulated": generate(num_predict=1)}.items():
        assert (response["eval_count"], response["eval_duration"]) == (1, 1000), name


def test_the_first_token_adds_nothing_to_the_eval_duration() -> None:
    server = start_server()
    server.generate(**build_request())
    response = server.generate(**build_request(num_predict=33))
    assert response["eval_count"] == 33
    assert response["eval_duration"] == 32 * 3_000_000


def test_the_total_duration_exceeds_the_sum_of_the_phases_by_a_few_milliseconds() -> None:
    for name, pair in {
        "recorded": (read_body("cold_raw"), read_body("unique_prefix")),
        "simulated": generate_pair(build_request(), build_request(prompt=build_words(140, "other"))),
    }.items():
        for response in pair:
            phases = ("load_duration", "prompt_eval_duration", "eval_duration")
            overhead = response["total_duration"] - sum(response[phase] for phase in phases)
            assert 1_000_000 < overhead < 5_000_000, name


def test_the_first_request_after_a_load_includes_the_load_and_is_slower() -> None:
    server = start_server()
    simulated = [server.generate(**build_request(prompt=build_words(140, prefix))) for prefix in ("word", "other")]
    for name, (cold, warm) in {
        "recorded": (read_body("cold_raw"), read_body("unique_prefix")),
        "simulated": tuple(simulated),
    }.items():
        assert warm["load_duration"] < 2_000_000 < SECOND < cold["load_duration"], name
        for phase in ("prompt_eval_duration", "eval_duration"):
            assert cold[phase] > 3 * warm[phase], (name, phase)


def generate_queued() -> Body:
    """The response to a request that waited for a long one."""
    server = start_server()
    server.generate(**build_request(prompt="warm up"))
    long = server.send("/api/generate", **build_request(num_predict=4000))
    server.wait(0.01)
    response = server.generate(**build_request(prompt=build_words(140, "other"), num_predict=8))
    assert long.response is not None
    return response


def test_waiting_for_the_slot_is_part_of_the_total_duration_only() -> None:
    for name, queued in {"recorded": read_body("queued"), "simulated": generate_queued()}.items():
        phases = queued["load_duration"] + queued["prompt_eval_duration"] + queued["eval_duration"]
        assert phases < 0.3 * SECOND, name
        assert queued["total_duration"] - phases > 10 * SECOND, name


def test_a_prompt_longer_than_the_context_is_cut_silently() -> None:
    simulated = generate(ONE_TOKEN_PER_WORD, prompt=build_words(1982), options={"num_ctx": 512})
    for name, response in {"recorded": read_body("ovf_trunc_default"), "simulated": simulated}.items():
        assert response["prompt_eval_count"] == 259, name


def test_the_context_must_hold_the_prompt_and_one_more_token() -> None:
    for count, status in ((62, 200), (63, 400)):
        server = start_server(ONE_TOKEN_PER_WORD)
        request = build_request(prompt=build_words(count), truncate=False, options={"num_ctx": 64})
        assert server.complete(server.send("/api/generate", **request))[0] == status, count


def generate_past_context(*, shift: bool) -> Body:
    """The response to a request whose reply would exceed the context."""
    request: Body = {"prompt": build_words(398), "num_predict": 400, "shift": shift, "options": {"num_ctx": 512}}
    return generate(ONE_TOKEN_PER_WORD, **request)


def test_without_shift_a_reply_ends_with_the_context() -> None:
    simulated = generate_past_context(shift=False)
    for name, response in {"recorded": read_body("gen_past_ctx_noshift"), "simulated": simulated}.items():
        assert response["prompt_eval_count"] + response["eval_count"] == 512, name
        assert response["done_reason"] == "length", name


def test_with_shift_a_reply_continues_beyond_the_context() -> None:
    simulated = generate_past_context(shift=True)
    for name, response in {"recorded": read_body("gen_past_ctx_shift"), "simulated": simulated}.items():
        assert response["eval_count"] == 400, name


def test_without_a_limit_a_reply_is_ten_contexts_long() -> None:
    for num_predict in (0, -1):
        response = generate(num_predict=num_predict, options={"num_ctx": 64}, prompt="hi")
        assert response["eval_count"] == 640, num_predict


def test_a_reply_that_ends_before_its_limit_is_done_because_of_stop() -> None:
    response = generate(Model("tiny-a:latest", "a" * 64, reply_tokens=12))
    assert (response["eval_count"], response["done_reason"]) == (12, "stop")
