"""The simulated page against real ones: the same samples, labels and buckets, but for what is listed here."""

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.client import facts, limits
from phasewatch.demo.vllm.counters import Counters
from phasewatch.demo.vllm.page import HELP, LOADING_SECONDS, metrics_page, models, server_info
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.workload import Workload
from tests.support.pages import bodies
from tests.support.paths import RECORDINGS
from tests.support.simulated_vllm import STARTED, simulated

LIKE_OURS = (
    *("single-stream", "batch-ramp", "seq-limit", "kv-saturation", "preemption", "prefill-limited"),
    *("prefill-interference", "prefix-cache", "paused", "shedding", "mfu-metrics", "restart"),
)
"""Recordings of vLLM 0.32 with one engine and one API server, without speculation."""

RUNTIME = "the Python process of a real server; ours has no memory and no files of its own to tell of"
MIDDLEWARE = "the web framework's own metrics, for which each server has its handlers; PhaseWatch reads none"

LEFT_OUT = {
    **dict.fromkeys(
        (
            *("python_gc_objects_collected_total", "python_gc_objects_uncollectable_total"),
            *("python_gc_collections_total", "python_info"),
            *("process_virtual_memory_bytes", "process_resident_memory_bytes", "process_cpu_seconds_total"),
            *("process_open_fds", "process_max_fds"),
        ),
        RUNTIME,
    ),
    **dict.fromkeys(
        (
            *("http_requests_total", "http_requests_created"),
            *("http_request_size_bytes_count", "http_request_size_bytes_sum", "http_request_size_bytes_created"),
            *("http_response_size_bytes_count", "http_response_size_bytes_sum", "http_response_size_bytes_created"),
            *("http_request_duration_highr_seconds_bucket", "http_request_duration_highr_seconds_count"),
            *("http_request_duration_highr_seconds_sum", "http_request_duration_highr_seconds_created"),
            *("http_request_duration_seconds_bucket", "http_request_duration_seconds_count"),
            *("http_request_duration_seconds_sum", "http_request_duration_seconds_created"),
        ),
        MIDDLEWARE,
    ),
}
"""Samples of a real page that ours does not have, each with the reason."""

SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, frozenset[tuple[str, str]]]

OURS = {"model_name"}
CONFIGURATION = "vllm:cache_config_info"


def samples(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    for line in page.splitlines():
        if not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            yield found[1], dict(LABEL.findall(found[2] or ""))


def series(page: str) -> set[Series]:
    """Every series, but for what differs between any two servers: the model's name, and the values of settings."""
    return {
        (
            name,
            frozenset((label, "" if label in OURS or name == CONFIGURATION else value) for label, value in of.items()),
        )
        for name, of in samples(page)
    }


def types(page: str) -> dict[str, str]:
    return dict(line.split()[2:4] for line in page.splitlines() if line.startswith("# TYPE"))


def longest(name: str) -> int:
    """`--max-model-len` of a recorded server."""
    with lzma.open(RECORDINGS / f"{name}.jsonl.xz", "rt") as file:
        args = json.loads(file.readline())["server_args"]
    return int(args[args.index("--max-model-len") + 1])


def ours(max_model_len: int = Settings().max_model_len) -> str:
    settings = replace(Settings(), max_model_len=max_model_len)
    return metrics_page(Counters(settings), settings, STARTED)


@pytest.mark.parametrize("name", LIKE_OURS)
def test_a_page_has_the_series_labels_and_buckets_of_a_real_one_but_for_what_is_listed(name: str) -> None:
    *_, (_, real) = bodies(name)
    simulated_page = series(ours(longest(name)))
    missing = series(real) - simulated_page
    assert simulated_page - series(real) == set()
    assert {of for of, _ in missing} == set(LEFT_OUT)


def test_what_is_left_out_is_left_out_altogether_and_has_a_reason() -> None:
    assert not {name for name, _ in samples(ours())} & set(LEFT_OUT)
    assert all(LEFT_OUT.values())


def test_every_metric_has_the_type_that_it_has_on_a_real_page() -> None:
    *_, (_, real) = bodies("seq-limit")
    assert types(ours()).items() <= types(real).items()


def test_a_page_under_load_has_no_other_series_than_an_idle_one() -> None:
    server = simulated(Workload(users=30, prompt=(100, 900), output=(5, 50), most=60))
    idle = server.page()
    server.advance(20.0)
    assert series(server.page()) == series(idle)
    assert server.page() != idle


def test_every_metric_says_that_it_is_simulated() -> None:
    helps = [line for line in ours().splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(types(ours()))
    assert all(line.endswith(HELP) for line in helps)
    assert "simulated" in HELP.lower()
    assert all("simulated" in of["model_name"] for _, of in samples(ours()) if "model_name" in of)


def test_the_reader_finds_one_engine_with_everything_but_other_releases_metrics() -> None:
    page = PageReader().read(ours())
    (sample,) = page.engines.values()
    assert page.process_start == STARTED - LOADING_SECONDS
    assert sample.created == STARTED
    assert sample.cache_config["kv_cache_size_tokens"] == "51200"
    assert [name for name in sample.__slots__ if getattr(sample, name) is None] == []


def test_what_the_server_says_of_itself_is_understood() -> None:
    settings = Settings()
    told = facts({"version": "0.32.0"}, models(settings, 5.9))
    assert list(told.models) == [settings.served_model_name]
    assert told.models[settings.served_model_name].max_model_len == settings.max_model_len
    known = limits(server_info(settings))
    assert (known.max_num_seqs, known.max_num_batched_tokens) == (24, 2048)
