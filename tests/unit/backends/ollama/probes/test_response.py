"""What a final answer tells of speed, to the digit, and every case in which it tells nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from phasewatch.backends.ollama.inventory import OllamaVersion
from phasewatch.backends.ollama.probes.response import (
    FEWEST_TOKENS,
    ProbeError,
    ProbeTimings,
    extract_timings,
    measure_overhead,
    parse_final_object,
)
from phasewatch.base.errors import Reason
from phasewatch.scrape.http import Response
from phasewatch.snapshot.probes import ProbeReason
from tests.support.ollama_facts import answered, recorded

NEWEST: OllamaVersion = (0, 33, 0)


def read(answer: Response, version: OllamaVersion | None = NEWEST, model_format: str = "gguf") -> ProbeTimings | None:
    return extract_timings(parse_final_object(answer), version=version, model_format=model_format)


def figures(name: str = "unique_prefix", version: OllamaVersion | None = NEWEST, **changes: Any) -> ProbeTimings:
    found = read(answered(name, **changes), version)
    assert found is not None
    return found


def refusal(answer: Response, version: OllamaVersion | None = NEWEST) -> ProbeError:
    with pytest.raises(ProbeError) as told:
        read(answer, version)
    return told.value


def reply(status: int, body: bytes) -> Response:
    return Response(status, "application/json", body)


@pytest.mark.parametrize(
    ("name", "prefill", "decode", "first_token", "rest"),
    [
        ("unique_prefix", 199 / 0.101739, 31 / 0.078709, 0.104325774, 0.002586774),
        ("templated", 200 / 0.524034999, 31 / 0.156408, 0.539025885, 0.014990886),
        ("cold_raw", 200 / 5.763101, 31 / 20.713421, 5.76578698, 0.00268598),
        ("gen_past_ctx_shift", 398 / 0.219454, 399 / 1.208308, 0.220997523, 0.001543523),
        ("gen_past_ctx_noshift", 399 / 0.216402, 112 / 0.327122, 0.217918913, 0.001516913),
    ],
)
def test_rates_are_those_of_the_recorded_answer(
    name: str, prefill: float, decode: float, first_token: float, rest: float
) -> None:
    found = figures(name)
    assert found.prefill_tokens_per_second == pytest.approx(prefill, rel=1e-9)
    assert found.decode_tokens_per_second == pytest.approx(decode, rel=1e-9)
    assert found.first_token_seconds == pytest.approx(first_token, rel=1e-9)
    assert found.unaccounted_seconds == pytest.approx(rest, rel=1e-9)


def test_the_parts_of_a_request_are_its_whole() -> None:
    found = figures("cold_raw")
    assert found.load_seconds == pytest.approx(3.858205345)
    assert found.prompt_seconds is not None
    parts = found.load_seconds + found.prompt_seconds + found.decode_seconds + found.unaccounted_seconds
    assert parts == pytest.approx(found.total_seconds) == pytest.approx(30.337413325)


def test_a_prompt_found_in_the_cache_tells_nothing_of_prefill_and_all_of_decode() -> None:
    found = figures("same_prompt_cached")
    assert found.prefill_tokens_per_second is None
    assert (found.computed_tokens, found.prompt_seconds) == (None, None)
    assert found.prompt_tokens == 200
    assert found.decode_tokens_per_second == pytest.approx(31 / 0.08518, rel=1e-9)


def test_cached_tokens_that_a_later_release_tells_are_not_counted_as_speed() -> None:
    for key in ("prompt_eval_cached_count", "prompt_cached_count"):
        for cached, speed in ((100, 99 / 0.101739), (0, 199 / 0.101739), (199, None), (250, None)):
            changes: dict[str, Any] = {key: cached}
            assert figures(**changes).prefill_tokens_per_second == (None if speed is None else pytest.approx(speed))


@pytest.mark.parametrize("name", ["num_predict_1", "queued", "ovf_trunc_default"])
def test_an_output_of_a_few_tokens_tells_nothing(name: str) -> None:
    assert recorded(name)["eval_count"] < FEWEST_TOKENS
    assert read(answered(name)) is None


def test_sixteen_tokens_are_enough_and_one_less_is_not() -> None:
    assert figures(eval_count=16).decode_steps == 15
    assert read(answered("unique_prefix", eval_count=15)) is None


def test_an_answer_that_is_not_done_fails_whatever_it_holds() -> None:
    assert refusal(answered("token_repeat_done_false")).reason is ProbeReason.NOT_DONE
    for done in (False, None, 1, "true"):
        assert refusal(answered("unique_prefix", done=done)).reason is ProbeReason.NOT_DONE


@pytest.mark.parametrize("name", ["load_only", "unload"])
def test_a_load_or_unload_has_no_phases(name: str) -> None:
    assert refusal(answered(name)).reason is ProbeReason.NO_NUMBERS
    full = answered("unique_prefix", done_reason=recorded(name)["done_reason"])
    assert refusal(full).reason is ProbeReason.NO_NUMBERS


@pytest.mark.parametrize("gone", ["total_duration", "eval_duration", "eval_count"])
@pytest.mark.parametrize("instead", [None, 0])
def test_a_figure_that_is_missing_is_no_0(gone: str, instead: int | None) -> None:
    told = {key: value for key, value in recorded("unique_prefix").items() if key != gone}
    if instead is not None:
        told[gone] = instead
    with pytest.raises(ProbeError) as error:
        extract_timings(told, version=NEWEST, model_format="gguf")
    assert error.value.reason is ProbeReason.NO_NUMBERS


def test_a_reply_from_elsewhere_without_durations_tells_nothing_at_all() -> None:
    elsewhere = {"model": "far:20b", "response": "x", "done": True, "total_duration": 512_000_111}
    told = {**elsewhere, "prompt_eval_count": 80, "eval_count": 102}
    assert refusal(reply(200, json.dumps(told).encode())).reason is ProbeReason.NO_NUMBERS
    short = {**told, "eval_count": 11}
    assert refusal(reply(200, json.dumps(short).encode())).reason is ProbeReason.NO_NUMBERS
    assert refusal(reply(200, json.dumps(elsewhere).encode())).reason is ProbeReason.NO_NUMBERS


@pytest.mark.parametrize("gone", ["prompt_eval_count", "prompt_eval_duration"])
def test_a_prompt_that_is_not_told_leaves_prefill_unknown_and_decode_known(gone: str) -> None:
    changes: dict[str, Any] = {gone: None}
    found = figures(**changes)
    assert found.prefill_tokens_per_second is None
    assert found.decode_tokens_per_second == pytest.approx(31 / 0.078709)


def test_a_load_that_is_not_told_took_no_time() -> None:
    assert figures(load_duration=None).load_seconds == 0.0


def test_the_mlx_runner_leaves_the_last_token_out_of_its_count() -> None:
    found = read(answered("unique_prefix"), model_format="safetensors")
    assert found is not None
    assert found.decode_tokens_per_second == pytest.approx(32 / 0.078709)


@pytest.mark.parametrize(("version", "told"), [((0, 17, 4), False), ((0, 17, 5), True), (None, True)])
def test_the_mlx_runner_timed_only_the_last_token_of_a_prompt_before_0_17_5(
    version: OllamaVersion | None, told: bool
) -> None:
    found = read(answered("unique_prefix"), version, "safetensors")
    assert found is not None
    assert (found.prefill_tokens_per_second is not None) is told


@pytest.mark.parametrize(
    ("version", "tokens", "told"),
    [
        ((0, 12, 4), 2000, True),
        ((0, 12, 5), 2000, False),
        ((0, 12, 6), 2000, False),
        ((0, 12, 6), 513, False),
        ((0, 12, 6), 512, True),
        ((0, 12, 7), 2000, True),
        (None, 2000, True),
    ],
)
def test_releases_that_time_the_last_batch_alone_tell_nothing_of_longer_prompts(
    version: OllamaVersion | None, tokens: int, told: bool
) -> None:
    found = figures(version=version, prompt_eval_count=tokens)
    assert (found.prefill_tokens_per_second is not None) is told


@pytest.mark.parametrize("version", [(0, 4, 0), (0, 5, 7), (0, 6, 1)])
def test_whole_milliseconds_are_too_coarse_for_short_durations(version: OllamaVersion) -> None:
    coarse: dict[str, Any] = {
        "total_duration": 183_974_577,
        "prompt_eval_duration": 101_000_000,
        "eval_duration": 49_000_000,
    }
    told = refusal(answered("unique_prefix", **coarse), version)
    assert (told.reason, "whole milliseconds" in told.message) == (ProbeReason.NO_NUMBERS, True)
    short_prompt = figures(
        version=version, **{**coarse, "prompt_eval_duration": 49_000_000, "eval_duration": 78_000_000}
    )
    assert short_prompt.prefill_tokens_per_second is None
    assert short_prompt.decode_tokens_per_second == pytest.approx(31 / 0.078)
    both = figures(version=version, **{**coarse, "eval_duration": 78_000_000})
    assert both.prefill_tokens_per_second == pytest.approx(199 / 0.101)


@pytest.mark.parametrize("version", [(0, 3, 14), (0, 6, 2), None])
def test_other_releases_count_nanoseconds(version: OllamaVersion | None) -> None:
    found = figures(version=version, prompt_eval_duration=11_000_000, eval_duration=49_000_000)
    assert found.decode_tokens_per_second == pytest.approx(31 / 0.049)
    assert found.prefill_tokens_per_second == pytest.approx(199 / 0.011)


@pytest.mark.parametrize("version", [NEWEST, None, (0, 3, 14)])
@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_a_look_alike_that_counts_in_other_units_is_implausible(version: OllamaVersion | None, unit: int) -> None:
    told = {key: value // unit for key, value in recorded("unique_prefix").items() if key.endswith("_duration")}
    assert refusal(answered("unique_prefix", **told), version).reason is ProbeReason.IMPLAUSIBLE


def test_a_slow_look_alike_in_milliseconds_is_implausible_as_well() -> None:
    told = {"total_duration": 52_000, "load_duration": 2, "prompt_eval_duration": 4_000, "eval_duration": 47_990}
    assert refusal(answered("unique_prefix", **told)).reason is ProbeReason.IMPLAUSIBLE


@pytest.mark.parametrize(
    "changes",
    [
        {"eval_count": 2_000_000},
        {"prompt_eval_count": 300_000},
        {"eval_duration": 4_000_000_000_000, "total_duration": 4_100_000_000_000},
        {"prompt_eval_duration": 5_000_000_000_000, "total_duration": 5_100_000_000_000},
    ],
)
def test_a_speed_out_of_this_world_is_implausible(changes: dict[str, int]) -> None:
    assert refusal(answered("unique_prefix", **changes)).reason is ProbeReason.IMPLAUSIBLE


def test_parts_longer_than_the_whole_are_implausible() -> None:
    assert refusal(answered("unique_prefix", total_duration=100_000_000)).reason is ProbeReason.IMPLAUSIBLE
    assert figures(total_duration=180_000_000).total_seconds == pytest.approx(0.18)


@pytest.mark.parametrize("value", ["32", 31.5, True, [32], {"n": 32}, -1, 2**63, False])
@pytest.mark.parametrize(
    "key",
    ["total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"],
)
def test_a_figure_of_a_wrong_type_is_a_failure_that_names_it(key: str, value: Any) -> None:
    told = refusal(answered("unique_prefix", **{key: value}))
    assert (told.reason, told.message) == (ProbeReason.PARSE, f"the answer's {key} is no whole number")


@pytest.mark.parametrize("reason", [["load"], {"load": 1}, 3, True])
def test_a_done_reason_of_a_wrong_type_is_no_load(reason: Any) -> None:
    assert figures(done_reason=reason).output_tokens == 32


@pytest.mark.parametrize(
    "body", [b"", b"Ollama is running", b"[]", b"null", b'"x"', b"{", b"\xff", b"[" * 100_000, b"9" * 5000, b"{}{}"]
)
def test_an_answer_that_is_no_json_object_cannot_be_read(body: bytes) -> None:
    assert refusal(reply(200, body)).reason is ProbeReason.PARSE


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("busy_503", ProbeReason.BUSY),
        ("notfound", ProbeReason.MODEL_GONE),
        ("host_evil", ProbeReason.AUTH),
        ("ovf_trunc_false", ProbeReason.CONTEXT_EXCEEDED),
        ("embed_only_generate", ProbeReason.UNSUPPORTED),
        ("bad_opt", ProbeReason.HTTP_STATUS),
        ("raw_system", ProbeReason.HTTP_STATUS),
    ],
)
def test_a_recorded_refusal_has_its_reason(name: str, reason: ProbeReason) -> None:
    told = refusal(answered(name))
    assert told.reason is reason
    assert told.message


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, ProbeReason.AUTH),
        (403, ProbeReason.AUTH),
        (404, ProbeReason.MODEL_GONE),
        (503, ProbeReason.BUSY),
        (400, ProbeReason.HTTP_STATUS),
        (500, ProbeReason.HTTP_STATUS),
        (502, ProbeReason.HTTP_STATUS),
        (302, ProbeReason.HTTP_STATUS),
        (204, ProbeReason.HTTP_STATUS),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": 3}', b'{"error": {"code": 1}}', b'"x"'])
def test_a_refusal_has_its_reason_whatever_its_body_is(status: int, reason: ProbeReason, body: bytes) -> None:
    assert refusal(reply(status, body)).reason is reason


def test_a_message_repeats_nothing_of_the_answer() -> None:
    secret = "hunter2"  # noqa: S105  # planted, to see that it does not come out
    for status in (200, 400, 401, 403, 404, 500, 503):
        told = refusal(reply(status, json.dumps({"error": secret, "done": secret}).encode()))
        assert secret not in f"{told} {told.message}"


def test_no_tokens_or_no_time_make_no_speed() -> None:
    found = figures()
    assert replace(found, computed_tokens=None).prefill_tokens_per_second is None
    assert replace(found, prompt_seconds=None).prefill_tokens_per_second is None


def test_reasons_of_a_scrape_are_reasons_of_a_probe() -> None:
    assert {reason.value for reason in Reason} - {reason.value for reason in ProbeReason} == {"no_metrics"}


def test_the_course_of_a_request_is_told_however_short_its_answer() -> None:
    assert measure_overhead(recorded("queued")).unaccounted_seconds == pytest.approx(76.494, abs=0.001)
    assert measure_overhead(recorded("num_predict_1")).load_seconds == pytest.approx(0.000697, abs=1e-6)
    assert measure_overhead(recorded("cold_raw")).load_seconds == pytest.approx(3.858, abs=0.001)
