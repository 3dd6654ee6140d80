"""Timings of a final object to the digit, and all cases in which it has none."""

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


def read(response: Response, version: OllamaVersion | None = NEWEST, model_format: str = "gguf") -> ProbeTimings | None:
    return extract_timings(parse_final_object(response), version=version, model_format=model_format)


def figures(name: str = "unique_prefix", version: OllamaVersion | None = NEWEST, **changes: Any) -> ProbeTimings:
    timings = read(answered(name, **changes), version)
    assert timings is not None
    return timings


def refuse(response: Response, version: OllamaVersion | None = NEWEST) -> ProbeError:
    with pytest.raises(ProbeError) as error:
        read(response, version)
    return error.value


def reply(status: int, body: bytes) -> Response:
    return Response(status, "application/json", body)


def test_rates_are_those_of_the_recorded_response() -> None:
    for name, prefill, decode, first_token, unaccounted in (
        ("unique_prefix", 199 / 0.101739, 31 / 0.078709, 0.104325774, 0.002586774),
        ("templated", 200 / 0.524034999, 31 / 0.156408, 0.539025885, 0.014990886),
        ("cold_raw", 200 / 5.763101, 31 / 20.713421, 5.76578698, 0.00268598),
        ("gen_past_ctx_shift", 398 / 0.219454, 399 / 1.208308, 0.220997523, 0.001543523),
        ("gen_past_ctx_noshift", 399 / 0.216402, 112 / 0.327122, 0.217918913, 0.001516913),
    ):
        timings = figures(name)
        assert timings.prefill_tokens_per_second == pytest.approx(prefill, rel=1e-9), name
        assert timings.decode_tokens_per_second == pytest.approx(decode, rel=1e-9), name
        assert timings.first_token_seconds == pytest.approx(first_token, rel=1e-9), name
        assert timings.unaccounted_seconds == pytest.approx(unaccounted, rel=1e-9), name


def test_the_parts_of_a_request_add_up_to_its_total() -> None:
    timings = figures("cold_raw")
    assert timings.load_seconds == pytest.approx(3.858205345)
    assert timings.prompt_seconds is not None
    parts = timings.load_seconds + timings.prompt_seconds + timings.decode_seconds + timings.unaccounted_seconds
    assert parts == pytest.approx(timings.total_seconds) == pytest.approx(30.337413325)


def test_a_cached_prompt_has_a_decode_rate_and_no_prefill_rate() -> None:
    timings = figures("same_prompt_cached")
    assert timings.prefill_tokens_per_second is None
    assert (timings.computed_tokens, timings.prompt_seconds) == (None, None)
    assert timings.prompt_tokens == 200
    assert timings.decode_tokens_per_second == pytest.approx(31 / 0.08518, rel=1e-9)


def test_cached_tokens_listed_by_a_later_release_do_not_count_as_computed() -> None:
    for key in ("prompt_eval_cached_count", "prompt_cached_count"):
        for cached, rate in ((100, 99 / 0.101739), (0, 199 / 0.101739), (199, None), (250, None)):
            changes: dict[str, Any] = {key: cached}
            expected = None if rate is None else pytest.approx(rate)
            assert figures(**changes).prefill_tokens_per_second == expected, changes


def test_an_output_of_a_few_tokens_has_no_timings() -> None:
    for name in ("num_predict_1", "queued", "ovf_trunc_default"):
        assert recorded(name)["eval_count"] < FEWEST_TOKENS, name
        assert read(answered(name)) is None, name


def test_sixteen_tokens_are_enough_and_one_less_is_not() -> None:
    assert figures(eval_count=16).decode_steps == 15
    assert read(answered("unique_prefix", eval_count=15)) is None


def test_a_response_that_is_not_done_fails_whatever_it_contains() -> None:
    assert refuse(answered("token_repeat_done_false")).reason is ProbeReason.NOT_DONE
    for done in (False, None, 1, "true"):
        assert refuse(answered("unique_prefix", done=done)).reason is ProbeReason.NOT_DONE, done


def test_a_load_or_unload_has_no_phases() -> None:
    for name in ("load_only", "unload"):
        assert refuse(answered(name)).reason is ProbeReason.NO_NUMBERS, name
        complete = answered("unique_prefix", done_reason=recorded(name)["done_reason"])
        assert refuse(complete).reason is ProbeReason.NO_NUMBERS, name


def test_a_missing_or_zero_figure_is_no_number() -> None:
    for key in ("total_duration", "eval_duration", "eval_count"):
        without = {name: value for name, value in recorded("unique_prefix").items() if name != key}
        for payload in (without, {**without, key: 0}):
            with pytest.raises(ProbeError) as error:
                extract_timings(payload, version=NEWEST, model_format="gguf")
            assert error.value.reason is ProbeReason.NO_NUMBERS, (key, payload.get(key))


def test_a_reply_of_a_remote_model_without_durations_has_no_timings() -> None:
    remote = {"model": "far:20b", "response": "x", "done": True, "total_duration": 512_000_111}
    counted = {**remote, "prompt_eval_count": 80, "eval_count": 102}
    for payload in (counted, {**counted, "eval_count": 11}, remote):
        assert refuse(reply(200, json.dumps(payload).encode())).reason is ProbeReason.NO_NUMBERS, payload


def test_without_figures_of_the_prompt_only_the_decode_rate_is_known() -> None:
    for key in ("prompt_eval_count", "prompt_eval_duration"):
        changes: dict[str, Any] = {key: None}
        timings = figures(**changes)
        assert timings.prefill_tokens_per_second is None, key
        assert timings.decode_tokens_per_second == pytest.approx(31 / 0.078709), key


def test_a_missing_load_duration_is_zero() -> None:
    assert figures(load_duration=None).load_seconds == 0.0


def test_the_mlx_runner_leaves_the_last_token_out_of_its_count() -> None:
    timings = read(answered("unique_prefix"), model_format="safetensors")
    assert timings is not None
    assert timings.decode_tokens_per_second == pytest.approx(32 / 0.078709)


def test_the_mlx_runner_timed_only_the_last_token_of_a_prompt_before_0_17_5() -> None:
    versions: list[tuple[OllamaVersion | None, bool]] = [((0, 17, 4), False), ((0, 17, 5), True), (None, True)]
    for version, reliable in versions:
        timings = read(answered("unique_prefix"), version, "safetensors")
        assert timings is not None, version
        assert (timings.prefill_tokens_per_second is not None) is reliable, version


def test_releases_that_time_only_the_last_batch_have_no_prefill_rate_of_longer_prompts() -> None:
    cases: list[tuple[OllamaVersion | None, int, bool]] = [
        ((0, 12, 4), 2000, True),
        ((0, 12, 5), 2000, False),
        ((0, 12, 6), 2000, False),
        ((0, 12, 6), 513, False),
        ((0, 12, 6), 512, True),
        ((0, 12, 7), 2000, True),
        (None, 2000, True),
    ]
    for version, tokens, reliable in cases:
        timings = figures(version=version, prompt_eval_count=tokens)
        assert (timings.prefill_tokens_per_second is not None) is reliable, (version, tokens)


def test_whole_milliseconds_are_too_coarse_for_short_durations() -> None:
    coarse: dict[str, Any] = {
        "total_duration": 183_974_577,
        "prompt_eval_duration": 101_000_000,
        "eval_duration": 49_000_000,
    }
    for version in ((0, 4, 0), (0, 5, 7), (0, 6, 1)):
        error = refuse(answered("unique_prefix", **coarse), version)
        assert error.reason is ProbeReason.NO_NUMBERS, version
        assert "whole milliseconds" in error.message, version
        short_prompt = figures(
            version=version, **{**coarse, "prompt_eval_duration": 49_000_000, "eval_duration": 78_000_000}
        )
        assert short_prompt.prefill_tokens_per_second is None, version
        assert short_prompt.decode_tokens_per_second == pytest.approx(31 / 0.078), version
        both = figures(version=version, **{**coarse, "eval_duration": 78_000_000})
        assert both.prefill_tokens_per_second == pytest.approx(199 / 0.101), version


def test_other_releases_count_nanoseconds() -> None:
    for version in ((0, 3, 14), (0, 6, 2), None):
        timings = figures(version=version, prompt_eval_duration=11_000_000, eval_duration=49_000_000)
        assert timings.decode_tokens_per_second == pytest.approx(31 / 0.049), version
        assert timings.prefill_tokens_per_second == pytest.approx(199 / 0.011), version


def test_durations_in_other_units_are_implausible() -> None:
    nanoseconds = {key: value for key, value in recorded("unique_prefix").items() if key.endswith("_duration")}
    for unit in (1_000, 1_000_000):
        durations = {key: value // unit for key, value in nanoseconds.items()}
        for version in (NEWEST, None, (0, 3, 14)):
            error = refuse(answered("unique_prefix", **durations), version)
            assert error.reason is ProbeReason.IMPLAUSIBLE, (unit, version)


def test_long_durations_in_milliseconds_are_implausible_as_well() -> None:
    durations = {"total_duration": 52_000, "load_duration": 2, "prompt_eval_duration": 4_000, "eval_duration": 47_990}
    assert refuse(answered("unique_prefix", **durations)).reason is ProbeReason.IMPLAUSIBLE


def test_rates_that_no_machine_has_are_implausible() -> None:
    cases: list[dict[str, int]] = [
        {"eval_count": 2_000_000},
        {"prompt_eval_count": 300_000},
        {"eval_duration": 4_000_000_000_000, "total_duration": 4_100_000_000_000},
        {"prompt_eval_duration": 5_000_000_000_000, "total_duration": 5_100_000_000_000},
    ]
    for changes in cases:
        assert refuse(answered("unique_prefix", **changes)).reason is ProbeReason.IMPLAUSIBLE, changes


def test_parts_longer_than_the_total_are_implausible() -> None:
    assert refuse(answered("unique_prefix", total_duration=100_000_000)).reason is ProbeReason.IMPLAUSIBLE
    assert figures(total_duration=180_000_000).total_seconds == pytest.approx(0.18)


def test_a_figure_of_a_wrong_type_is_a_failure_that_names_it() -> None:
    durations = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    values: tuple[Any, ...] = ("32", 31.5, True, [32], {"n": 32}, -1, 2**63, False)
    for key in (*durations, "prompt_eval_count", "eval_count"):
        for value in values:
            error = refuse(answered("unique_prefix", **{key: value}))
            assert error.reason is ProbeReason.PARSE, (key, value)
            assert error.message == f"the answer's {key} is no whole number", (key, value)


def test_a_done_reason_of_a_wrong_type_is_no_load() -> None:
    reasons: tuple[Any, ...] = (["load"], {"load": 1}, 3, True)
    for reason in reasons:
        assert figures(done_reason=reason).output_tokens == 32, reason


def test_a_body_that_is_not_a_json_object_cannot_be_parsed() -> None:
    texts = (b"", b"Ollama is running", b"[]", b"null", b'"x"', b"{", b"\xff", b"[" * 100_000, b"9" * 5000, b"{}{}")
    for body in texts:
        assert refuse(reply(200, body)).reason is ProbeReason.PARSE, body[:20]


def test_a_recorded_refusal_has_its_reason() -> None:
    for name, reason in (
        ("busy_503", ProbeReason.BUSY),
        ("notfound", ProbeReason.MODEL_GONE),
        ("host_evil", ProbeReason.AUTH),
        ("ovf_trunc_false", ProbeReason.CONTEXT_EXCEEDED),
        ("embed_only_generate", ProbeReason.UNSUPPORTED),
        ("bad_opt", ProbeReason.HTTP_STATUS),
        ("raw_system", ProbeReason.HTTP_STATUS),
    ):
        error = refuse(answered(name))
        assert error.reason is reason, name
        assert error.message, name


def test_a_refusal_has_the_reason_of_its_status_whatever_its_body() -> None:
    bodies = (b"", b"<html>", b"[]", b'{"error": 3}', b'{"error": {"code": 1}}', b'"x"')
    for status, reason in (
        (401, ProbeReason.AUTH),
        (403, ProbeReason.AUTH),
        (404, ProbeReason.MODEL_GONE),
        (503, ProbeReason.BUSY),
        (400, ProbeReason.HTTP_STATUS),
        (500, ProbeReason.HTTP_STATUS),
        (502, ProbeReason.HTTP_STATUS),
        (302, ProbeReason.HTTP_STATUS),
        (204, ProbeReason.HTTP_STATUS),
    ):
        for body in bodies:
            assert refuse(reply(status, body)).reason is reason, (status, body)


def test_a_message_repeats_nothing_of_the_response() -> None:
    secret = "hunter2"  # noqa: S105  # planted, to see that it does not come out
    for status in (200, 400, 401, 403, 404, 500, 503):
        error = refuse(reply(status, json.dumps({"error": secret, "done": secret}).encode()))
        assert secret not in f"{error} {error.message}", status


def test_without_tokens_or_time_there_is_no_rate() -> None:
    timings = figures()
    assert replace(timings, computed_tokens=None).prefill_tokens_per_second is None
    assert replace(timings, prompt_seconds=None).prefill_tokens_per_second is None


def test_reasons_of_a_scrape_are_reasons_of_a_probe() -> None:
    assert {reason.value for reason in Reason} - {reason.value for reason in ProbeReason} == {"no_metrics"}


def test_a_request_has_its_overhead_however_short_its_output() -> None:
    assert measure_overhead(recorded("queued")).unaccounted_seconds == pytest.approx(76.494, abs=0.001)
    assert measure_overhead(recorded("num_predict_1")).load_seconds == pytest.approx(0.000697, abs=1e-6)
    assert measure_overhead(recorded("cold_raw")).load_seconds == pytest.approx(3.858, abs=0.001)
