"""Bytes and operations derived from the page of a vLLM against its own count of them (`--enable-mfu-metrics`)."""

import json
import lzma
from collections.abc import Iterator
from functools import cache

import pytest

from phasewatch.analysis.samples import Page
from phasewatch.analysis.window import PageWindow, append_page, extract_history, subtract_counters
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.hardware.facts import ComputeRates, DeviceFacts, DeviceSource, Precision
from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from tests.support.pages import bodies
from tests.support.paths import RECORDINGS
from tests.support.steady_load import measured
from tests.support.truth import truth

DEVICE = DeviceFacts(
    memory_bandwidth=1000.0,
    bandwidth_source=DeviceSource.TABLE,
    compute=ComputeRates(bits16=4000.0),
    compute_source=DeviceSource.TABLE,
)
"""Any device: its figures cancel out of the ratios."""

PARAMETERS, HEAD, LAYERS = 110_922_048, 8192 * 576, 30
RECORDED = ModelCosts(
    weight_bytes=2 * PARAMETERS,
    weight_source=ModelSource.CONFIG_JSON,
    reads=WeightReads(dense_bytes=2 * PARAMETERS, dense_parameters=PARAMETERS, head_parameters=HEAD),
    kv_cache=KvCache((KvLayers(2 * LAYERS * 3 * 64),), 2, ModelSource.CONFIG_JSON),
    attention=(AttentionCosts(4 * LAYERS * 9 * 64),),
    precision=Precision.BITS16,
)


@cache
def read_pages() -> list[tuple[float, Page]]:
    return [(time, PageReader(METRIC_NAMES).read(body)) for time, body in bodies("mfu-metrics")]


def find_spans() -> dict[str, tuple[float, float]]:
    """Begin and end of the requests of each number of streams, as the client noted them: c1, c2, c4, c8, c16."""
    times: dict[str, list[float]] = {}
    with lzma.open(RECORDINGS / "mfu-metrics.requests.jsonl.xz", "rt") as file:
        for request in map(json.loads, file):
            times.setdefault(request["tag"], []).extend((request["sent"], request["done"]))
    return {tag: (min(moments), max(moments)) for tag, moments in times.items()}


def compare(pages: list[tuple[float, Page]]) -> tuple[float, float]:
    """Ratios of bytes and of operations: derived here / counted by vLLM."""
    window = PageWindow()
    for time, page in pages:
        window = append_page(window, page, time, 1000)
    (key,) = window.engines
    ceiling = measured(extract_history(window, key), DEVICE, RECORDED)
    read, operations = ceiling.memory_read_bytes_per_second, ceiling.compute_utilization_ratio
    return read["derived"] / read["engine"], operations["derived"] / operations["engine"]


def select_pages(start: float, end: float) -> list[tuple[float, Page]]:
    return [(time, page) for time, page in read_pages() if start <= time <= end]


RATIOS = {
    "c1": (0.996, 1.001),
    "c2": (1.004, 0.998),
    "c4": (1.003, 0.996),
    "c8": (1.013, 0.997),
    "c16": (1.014, 0.996),
}
"""The figures of docs/ceiling.md: bytes and operations as derived / as vLLM counted them."""


def test_bytes_and_operations_are_those_that_vllm_counted() -> None:
    for tag in RATIOS:
        read, operations = compare(select_pages(*find_spans()[tag]))
        assert read == pytest.approx(RATIOS[tag][0], abs=0.0006), tag
        assert operations == pytest.approx(RATIOS[tag][1], abs=0.0006), tag


def list_windows(length: float) -> Iterator[list[tuple[float, Page]]]:
    first, last = find_spans()["c1"][0], find_spans()["c16"][1]
    for end, _ in read_pages():
        if first + length <= end <= last:
            yield select_pages(end - length, end)


def test_a_short_window_with_many_prompts_misses_their_activations() -> None:
    assert min(read for read, _ in map(compare, list_windows(5))) == pytest.approx(0.76, abs=0.005)


def test_every_window_of_ten_seconds_agrees_with_vllm_even_during_prefill() -> None:
    ratios = [compare(pages) for pages in list_windows(10)]
    assert len(ratios) > 80
    for index, (read, operations) in enumerate(ratios):
        assert read == pytest.approx(1, abs=0.05), index
        assert operations == pytest.approx(1, abs=0.015), index


def test_true_contexts_and_activations_explain_the_bytes_that_vllm_counted() -> None:
    """The figures of docs/ceiling.md: counting whole blocks of 128 tokens hides the activations."""
    for tag, true, activations in (
        ("c1", 0.986, 0.004),
        ("c2", 0.990, 0.008),
        ("c4", 0.982, 0.016),
        ("c8", 0.968, 0.029),
        ("c16", 0.945, 0.051),
    ):
        start, end = find_spans()[tag]
        pages = select_pages(start - 1.1, end + 1.1)
        (first,), (last,) = pages[0][1].engines.values(), pages[-1][1].engines.values()
        counts = subtract_counters(first, last)
        assert counts.iteration_tokens, tag
        assert counts.estimated_read_bytes_per_gpu, tag
        requests = [request for request in truth("mfu-metrics").requests if start <= request.sent <= end]
        held = sum(sum(range(request.prompt + 1, request.prompt + request.generated)) for request in requests)
        weights = counts.iteration_tokens.count * 2 * PARAMETERS
        assert (weights + held * 23040) / counts.estimated_read_bytes_per_gpu == pytest.approx(true, abs=0.001), tag
        # In and out of attention, and into each product of a layer, 16 bits a number.
        numbers = 4 * 576 + 2 * 1536 + 1536
        tokens = sum(request.prompt + request.generated - 1 for request in requests)
        added = 2 * LAYERS * numbers * tokens / counts.estimated_read_bytes_per_gpu
        assert added == pytest.approx(activations, abs=0.001), tag
        # The remainder are steps without output, which no histogram of vLLM counts.
        assert 0.985 < true + added < 1, tag
