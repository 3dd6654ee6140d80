"""Requests change nothing on the server; their prompts are in no cache and fit into the context."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.backends.ollama.probes.request import (
    LONG_TOKENS,
    OUTPUT_TOKENS,
    SHORT_TOKENS,
    SHORTEST_LONG,
    ProbeRequest,
    RequestKind,
    build_load_request,
    build_probe_request,
    choose_prompt_words,
)
from tests.support.ollama_facts import A, loaded, seeded

RUNNER_OPTIONS: Final = {"num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "draft_num_predict"}


def request(
    words: int = 150, seed: int = 1, options: Mapping[str, int | bool] | None = None, **facts: Any
) -> ProbeRequest:
    return build_probe_request(RequestKind.SHORT, loaded(**facts), words, options or {}, seeded(seed))


def options_of(sent: ProbeRequest) -> dict[str, Any]:
    options: dict[str, Any] = json.loads(json.dumps(sent.body))["options"]
    return options


def prompt_of(sent: ProbeRequest) -> str:
    return str(sent.body["prompt"])


def test_a_probe_has_exactly_these_keys() -> None:
    sent = request()
    assert sent.body.keys() == {"model", "prompt", "raw", "stream", "truncate", "options"}
    assert (sent.body["model"], sent.body["raw"]) == ("a:latest", True)
    assert (sent.body["stream"], sent.body["truncate"]) == (False, False)
    assert options_of(sent).keys() == {"num_ctx", "num_predict", "temperature", "seed"}
    assert (sent.kind, sent.key, sent.words) == (RequestKind.SHORT, ("a:latest", A), 150)


def test_a_probe_requests_the_context_that_the_model_has() -> None:
    for context in (512, 4096, 131_072):
        assert options_of(request(context_length=context))["num_ctx"] == context


def test_a_configured_context_overrides_the_listed_one() -> None:
    assert "num_ctx" not in options_of(request(context_length=None))
    assert options_of(request(context_length=None, options={"num_ctx": 8192}))["num_ctx"] == 8192
    assert options_of(request(context_length=4096, options={"num_ctx": 8192}))["num_ctx"] == 8192


def test_options_of_the_runner_are_sent_only_if_configured() -> None:
    assert not options_of(request()).keys() & RUNNER_OPTIONS
    given_options: dict[str, int | bool] = {"num_thread": 8, "use_mmap": False}
    assert options_of(request(options=given_options)).items() >= given_options.items()


def test_no_option_lifts_the_limit_of_the_output() -> None:
    for options in ({}, {"num_predict": 0}, {"num_predict": -1}, {"seed": 0, "temperature": 0}):
        sent = options_of(request(options=options))
        assert sent["num_predict"] == OUTPUT_TOKENS, options
        assert sent["temperature"] > 0, options
        assert sent["seed"] > 0, options


def test_no_two_prompts_begin_alike() -> None:
    random = seeded(1)
    sent = [build_probe_request(RequestKind.SHORT, loaded(), 150, {}, random) for _ in range(200)]
    assert len({prompt_of(one)[:5] for one in sent}) == len(sent)
    assert len({options_of(one)["seed"] for one in sent}) == len(sent)


def test_the_unique_part_of_a_prompt_comes_first_and_is_long_enough() -> None:
    prefix, *words = prompt_of(request()).split(" ")
    assert len(prefix) == 24
    assert len(set(prefix)) > 5
    assert len(words) == 150


def test_the_words_vary() -> None:
    words = prompt_of(request()).split(" ")[1:]
    assert len(set(words)) > 40
    assert max(words.count(word) for word in words) < 15


def test_a_word_and_its_blank_take_at_most_eight_bytes() -> None:
    words = prompt_of(request(words=5000)).split(" ")[1:]
    assert max(len(f"{word} ".encode()) for word in words) <= 8


def test_a_load_request_has_no_output_and_no_keep_alive() -> None:
    sent = build_load_request("a:latest", A, {})
    assert sent.body == {"model": "a:latest", "prompt": "", "stream": False}
    assert (sent.kind, sent.key, sent.words) == (RequestKind.LOAD, ("a:latest", A), 0)
    assert build_load_request("a:latest", A, {"num_ctx": 8192}).body["options"] == {"num_ctx": 8192}


def test_prompts_have_about_200_and_2000_tokens() -> None:
    for kind, tokens in ((RequestKind.SHORT, SHORT_TOKENS), (RequestKind.LONG, LONG_TOKENS)):
        for per_word in (0.9, 1.0, 1.4, 3.0, 7.5):
            words = choose_prompt_words(kind, 8192, per_word)
            assert words is not None, (kind, per_word)
            assert words * per_word == pytest.approx(tokens, abs=per_word), (kind, per_word)


def test_before_the_first_response_a_word_counts_as_1_3_tokens() -> None:
    assert choose_prompt_words(RequestKind.SHORT, 8192, None) == 153
    assert choose_prompt_words(RequestKind.LONG, 8192, None) is None


@given(
    kind=st.sampled_from([RequestKind.SHORT, RequestKind.LONG]),
    context=st.integers(1, 10_000),
    per_word=st.none() | st.floats(0.5, 8.0),
)
def test_prompt_and_output_always_fit_into_the_context(kind: RequestKind, context: int, per_word: float | None) -> None:
    words = choose_prompt_words(kind, context, per_word)
    if words is not None:
        # Uncalibrated, each byte may be a token: that is the most a tokenizer can make of ASCII.
        most = 24 + 8 * words if per_word is None else words * per_word
        assert words >= 1
        assert most + OUTPUT_TOKENS < context


def test_no_prompt_fits_into_a_context_that_is_too_small() -> None:
    for per_word in (None, 1.4):
        for context in (112, 0):
            assert choose_prompt_words(RequestKind.SHORT, context, per_word) is None, (context, per_word)


def test_a_long_prompt_hardly_longer_than_the_short_one_is_not_sent() -> None:
    least = int(SHORTEST_LONG * 1.1) + OUTPUT_TOKENS + 64
    assert choose_prompt_words(RequestKind.LONG, least - 1, 1.0) is None
    assert choose_prompt_words(RequestKind.LONG, least, 1.0) == 600
    assert choose_prompt_words(RequestKind.LONG, 2048, 1.0) == pytest.approx(1760, abs=1)
