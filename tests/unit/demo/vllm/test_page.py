"""The simulated metrics page has the samples, labels and buckets of real ones, except those listed here."""

import json
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.client import parse_facts, parse_server_settings
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.demo.common.workload import Workload
from phasewatch.demo.vllm.counters import Counters
from phasewatch.demo.vllm.page import (
    HELP,
    LOADING_SECONDS,
    build_model_list,
    build_server_info,
    render_metrics,
)
from phasewatch.demo.vllm.settings import SimulatedVllmSettings
from tests.support.pages import bodies
from tests.support.paths import RECORDINGS
from tests.support.simulated_vllm import CREATED, simulate

COMPARABLE = (
    *("single-stream", "batch-ramp", "seq-limit", "kv-saturation", "preemption", "prefill-limited"),
    *("prefill-interference", "prefix-cache", "paused", "shedding", "mfu-metrics", "restart"),
)
"""Recordings of vLLM 0.32 with one engine and one API server, without speculation."""

RUNTIME = "metrics of a real server's Python process, which the simulation does not have"
MIDDLEWARE = "metrics of the web framework, which differ between servers and which PhaseWatch does not read"

OMITTED = {
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
"""Samples of a real page that the simulated one lacks, each with the reason."""

SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, frozenset[tuple[str, str]]]

SPECULATION = {"draft_tokens", "accepted_draft_tokens"}
"""Fields of a server with speculative decoding, which is not simulated."""

ARBITRARY_LABELS = {"model_name"}
CONFIGURATION = "vllm:cache_config_info"


def read_samples(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    for line in page.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            yield match[1], dict(LABEL.findall(match[2] or ""))


def read_series(page: str) -> set[Series]:
    """Every series, without what differs between any two servers: the model's name, and the values of settings."""

    def normalize(name: str, label: str, value: str) -> str:
        return "" if label in ARBITRARY_LABELS or name == CONFIGURATION else value

    return {
        (name, frozenset((label, normalize(name, label, value)) for label, value in labels.items()))
        for name, labels in read_samples(page)
    }


def read_types(page: str) -> dict[str, str]:
    return dict(line.split()[2:4] for line in page.splitlines() if line.startswith("# TYPE"))


def read_max_model_len(recording: str) -> int:
    """`--max-model-len` of a recorded server."""
    with lzma.open(RECORDINGS / f"{recording}.jsonl.xz", "rt") as file:
        args = json.loads(file.readline())["server_args"]
    return int(args[args.index("--max-model-len") + 1])


def render_idle_page(max_model_len: int = SimulatedVllmSettings().max_model_len, statuses: Iterable[str] = ()) -> str:
    """A page on which nothing has a value; `statuses` are the classes of HTTP status that have occurred."""
    settings = replace(SimulatedVllmSettings(), max_model_len=max_model_len)
    counters = Counters(settings)
    counters.http_requests = dict.fromkeys(statuses, 0)
    return render_metrics(counters, settings, CREATED)


def is_of_the_model(series: Series) -> bool:
    """Whether a series is not about another endpoint than that of completions, such as /pause."""
    return dict(series[1]).get("handler", "/v1/completions") == "/v1/completions"


def read_statuses(page: str) -> set[str]:
    return set(re.findall(r'^http_requests_total{handler="/v1/completions",.*status="(...)"', page, re.MULTILINE))


def test_a_page_has_the_series_labels_and_buckets_of_a_real_one_except_the_omitted_ones() -> None:
    for recording in COMPARABLE:
        *_, (_, page) = bodies(recording)
        simulated = read_series(render_idle_page(read_max_model_len(recording), read_statuses(page)))
        real = set(filter(is_of_the_model, read_series(page)))
        assert simulated - real == set(), recording
        assert {name for name, _ in real - simulated} == set(OMITTED), recording


def test_omitted_samples_are_omitted_entirely_and_for_a_reason() -> None:
    assert not {name for name, _ in read_samples(render_idle_page())} & set(OMITTED)
    assert all(OMITTED.values())


def test_every_metric_has_the_type_that_it_has_on_a_real_page() -> None:
    *_, (_, page) = bodies("seq-limit")
    assert read_types(render_idle_page()).items() <= read_types(page).items()


def test_a_page_under_load_has_the_same_series_as_an_idle_one_and_those_of_its_http_answers() -> None:
    server = simulate(Workload(users=30, prompt=(100, 900), output=(5, 50), max_tokens=60))
    server.advance(20.0)
    page = server.page()
    assert read_statuses(page) == {"2xx"}
    assert read_series(page) == read_series(render_idle_page(statuses=["2xx"]))
    assert page != render_idle_page(statuses=["2xx"])


def test_every_metric_says_that_it_is_simulated() -> None:
    page = render_idle_page()
    helps = [line for line in page.splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(read_types(page))
    assert all(line.endswith(HELP) for line in helps)
    assert "simulated" in HELP.lower()
    assert all("simulated" in labels["model_name"] for _, labels in read_samples(page) if "model_name" in labels)


def test_the_exporter_reads_one_engine_with_every_metric() -> None:
    page = PageReader(METRIC_NAMES).read(render_idle_page())
    (sample,) = page.engines.values()
    assert page.process_start == CREATED - LOADING_SECONDS
    assert sample.created == CREATED
    assert sample.cache_config["kv_cache_size_tokens"] == "51200"
    fields = [metric.field for metric in METRIC_NAMES.metrics if metric.field not in SPECULATION]
    assert [name for name in fields if getattr(sample, name) is None] == []


def test_the_exporter_reads_the_model_and_the_limits() -> None:
    settings = SimulatedVllmSettings()
    server = parse_facts({"version": "0.32.0"}, build_model_list(settings, 5.9))
    assert list(server.models) == [settings.served_model_name]
    assert server.models[settings.served_model_name].max_model_len == settings.max_model_len
    server_limits = parse_server_settings(build_server_info(settings))
    assert (server_limits.max_num_seqs, server_limits.max_num_batched_tokens) == (24, 2048)
