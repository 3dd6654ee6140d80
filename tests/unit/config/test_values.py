"""Types of single values: what is accepted, in which form, and what is refused."""

from typing import Any

import pytest

from phasewatch.base.errors import ConfigError
from tests.support.configurations import find_mistakes, parse_target, write_ollama, write_target
from tests.support.targets import parse_config

ADDRESS = "expected an address such as http://127.0.0.1:8000"
NO_USER = "user and password are not taken from the url; use authorization with a credentials_file"
BASE = "expected the server's base address"
METRICS_PATH = "set metrics_path if its metrics are not at /metrics"
BANDWIDTH = "expected 1GB/s to 100TB/s: is the unit right?"
COMPUTE = "expected 1GFLOPS to 100PFLOPS: is the unit right?"
WEIGHTS = "expected 1MB to 100TB: is the unit right?"


def test_each_kind_of_invalid_url_has_its_message() -> None:
    for url, message in (
        ("", ADDRESS),
        ("127.0.0.1:8000", ADDRESS),
        ("localhost:8000", ADDRESS),
        ("//h", ADDRESS),
        ("ftp://h", ADDRESS),
        ("unix:/run/vllm.sock", ADDRESS),
        ("http://", ADDRESS),
        ("http://:8000", ADDRESS),
        ("http://[::1", ADDRESS),
        ("http://h h", ADDRESS),
        ("http://h:port", ADDRESS),
        ("http://h:65536", ADDRESS),
        ("http://h:-1", ADDRESS),
        ("http://user@h", NO_USER),
        ("http://user:hunter2@h", NO_USER),
        ("http://:hunter2@h", NO_USER),
        ("http://h?key=hunter2", f"{BASE}, without a query or fragment"),
        ("http://h#top", f"{BASE}, without a query or fragment"),
        ("http://h/metrics", f"{BASE}; {METRICS_PATH}"),
        ("http://h/metrics/", f"{BASE}; {METRICS_PATH}"),
        ("http://h/vllm/metrics/", f"{BASE}; {METRICS_PATH}"),
        ("http://h/v1/metrics", f"{BASE}; {METRICS_PATH}"),
        ("http://h/v1", f"{BASE}; /v1 is added by itself"),
    ):
        assert find_mistakes(write_target(url=url)) == [f"targets[0].url: {message}"], url


def test_an_address_that_cannot_be_requested_is_refused() -> None:
    for url in ("http://h\u2603.de", "http://[::1]x", "http://256.1.1.1", "http://h/\x01", "http://h:0"):
        assert find_mistakes(write_target(url=url)) == [f"targets[0].url: {ADDRESS}"], url


def test_a_url_is_normalised_without_its_trailing_slash() -> None:
    for url, base in (
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://h/vllm/", "https://h/vllm"),
        ("HTTPS://h", "https://h"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://h/metrics-gateway", "http://h/metrics-gateway"),
    ):
        assert parse_target(write_target(url=url)).url == base, url


def test_a_metrics_path_is_a_path_and_nothing_else() -> None:
    path = "expected a path on the server such as /v1/metrics"
    for value, message in (
        ("", path),
        ("metrics", path),
        ("http://h/metrics", path),
        ("//h/metrics", path),
        ("/met rics", path),
        ("/metrics\n", path),
        ("/m\u00e9trics", path),
        ("/metrics?key=hunter2", "expected a path such as /v1/metrics, without a query or fragment"),
        ("/metrics#top", "expected a path such as /v1/metrics, without a query or fragment"),
        ("/../metrics", "expected a path such as /v1/metrics, without . or .. in it"),
        ("/v1/%2e%2E/metrics", "expected a path such as /v1/metrics, without . or .. in it"),
        ("/./metrics", "expected a path such as /v1/metrics, without . or .. in it"),
    ):
        assert find_mistakes(write_target(metrics_path=value)) == [f"targets[0].metrics_path: {message}"], value
    for value in ("/", "/metrics", "/metrics/", "/v1/metrics", "/a%20b/metrics"):
        assert parse_target(write_target(metrics_path=value)).metrics_path == value, value
    assert parse_target(write_target(metrics_path=None)).metrics_path == "/metrics"


def test_an_impossible_amount_is_refused() -> None:
    for key, value in (
        ("body_size_limit", "9" * 400 + "GB"),
        ("body_size_limit", "16kiB"),
        ("interval", "9000000000d"),
        ("window", "9" * 400 + "s"),
        ("timeout", "25h"),
    ):
        (problem,) = find_mistakes(write_target(**{key: value}))
        assert problem.startswith(f"targets[0].{key}: expected "), (key, value)


def test_an_impossible_number_of_parameters_is_refused() -> None:
    rows: list[tuple[Any, str]] = [
        ("8B", "'8B'"),
        (10**400, f"1{'0' * 400}"),
        (True, "True"),
        (0, "0"),
        ("nan", "'nan'"),
        ([8], "a list"),
    ]
    for value, text in rows:
        assert find_mistakes(write_target(model={"active_parameters": value})) == [
            f"targets[0].model.active_parameters: expected a number of parameters such as 7.5e9, found {text}"
        ], value


def test_a_device_beyond_the_limits_is_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        *(({"memory_bandwidth": absurd}, BANDWIDTH) for absurd in ("1B/s", "999MB/s", "101TB/s", "1PB/s")),
        *(({"cpu_memory_bandwidth": absurd}, BANDWIDTH) for absurd in ("1B/s", "101TB/s")),
        *(({"flops": absurd}, COMPUTE) for absurd in ("1FLOPS", "999MFLOPS", "101PFLOPS")),
        ({"count": 1025}, "expected 1024 or less, found 1025"),
    ]
    for key, problem in rows:
        assert find_mistakes(write_target(device=key)) == [f"targets[0].device.{next(iter(key))}: {problem}"], (
            key,
            problem,
        )


def test_a_device_at_the_limits_is_accepted() -> None:
    for bandwidth, flops in (("1GB/s", "1GFLOPS"), ("100TB/s", "100PFLOPS")):
        device = {"memory_bandwidth": bandwidth, "flops": flops, "count": 1024}
        assert parse_target(write_target(device=device)).device.count == 1024, bandwidth


def test_weights_beyond_the_limits_are_refused() -> None:
    for weights in ("1B", "999kB", "101TB", "999999TB"):
        for key in ("weights", "weights_read"):
            assert find_mistakes(write_target(model={key: weights})) == [f"targets[0].model.{key}: {WEIGHTS}"], (
                weights,
                key,
            )


def test_an_unknown_cache_format_is_refused_with_the_known_ones() -> None:
    for dtype in ("fp99", "", "float16 ", "fp8_ds_mla"):
        for text in (write_target(model={"kv_cache_dtype": dtype}), write_ollama(model={"kv_cache_dtype": dtype})):
            (problem,) = find_mistakes(text)
            assert problem.startswith("targets[0].model.kv_cache_dtype: expected one of auto, bf16, bfloat16, "), dtype
            assert problem.endswith(f", q8_0, found {dtype!r}"), dtype
        assert parse_target(write_target(model={"kv_cache_dtype": "FP8_E4M3"})).model.kv_cache_dtype == "FP8_E4M3", (
            dtype
        )


def test_a_file_name_that_cannot_be_a_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="credentials_file"):
        parse_config(write_target(authorization={"credentials_file": "a\x00b"}))
