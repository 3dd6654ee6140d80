"""docs/metrics.md lists the metrics, names, reasons and numbers of series that there are, and nothing else."""

import json
import lzma
import re
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from phasewatch.backends.metric_table import MetricKind
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.base.errors import Reason
from phasewatch.config.settings import DeviceSettings, Target
from phasewatch.hardware import facts
from phasewatch.metrics.collector import TABLE
from phasewatch.metrics.exporter import SELF_METRICS
from phasewatch.models import costs
from phasewatch.models.settings import ModelSettings
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import format_json
from phasewatch.snapshot.probes import DiscardReason, ProbeReason, SkipReason
from tests.support.documented_targets import CHAT, ollama_samples
from tests.support.markdown import code, every_code, page, tables, words
from tests.support.model_folders import load_config, write_json
from tests.support.paths import RECORDINGS

PAGE = page("docs/metrics.md")
WORDS = words("docs/metrics.md")

ENTRY = re.compile(r"^### `(\w+)`\n\n(\w+) · (?:no labels|labels ([^·]+)) · ([^·\n]+)(?: · (\(w\)))?$", re.MULTILINE)


def test_every_metric_is_documented_and_nothing_else_is() -> None:
    documented = {entry[1]: (entry[2], tuple(every_code(entry[3] or ""))) for entry in ENTRY.finditer(PAGE)}
    assert documented == {metric.name: (metric.kind, metric.labels) for metric in TABLE}


def test_every_heading_of_a_metric_is_followed_by_its_type_and_labels() -> None:
    assert re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE) == [entry[1] for entry in ENTRY.finditer(PAGE)]


def test_metrics_over_the_window_are_marked_and_no_others_are() -> None:
    marked = {entry[1] for entry in ENTRY.finditer(PAGE) if entry[5]}
    windowed = {metric.name for metric in TABLE if re.search(r"\bwindow\b", metric.help)}
    # Its help leaves the window to that of the quantile which it bounds.
    assert marked == windowed | {"llm_inter_token_latency_bound_seconds"}


def test_every_name_read_from_vllm_is_documented_with_its_releases_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(PAGE, "name in vLLM", "releases")]
    documented = {(code(name), releases) for name, releases, _ in rows}
    read = {
        (name, releases)
        for upstream in METRIC_NAMES.metrics
        if upstream.kind is not MetricKind.CREATED  # stands in the row of the counter itself
        for name, releases in upstream.names.items()
    }
    assert documented == read
    assert len(rows) == len(documented)


REASONS: list[tuple[str, tuple[str, ...], type[StrEnum]]] = [
    ("docs/metrics.md", ("reason", "what happened", "what to do"), Reason),
    ("docs/metrics.md", ("reason", "the probe failed because"), ProbeReason),
    ("docs/metrics.md", ("reason", "no probe was sent because"), SkipReason),
    ("docs/metrics.md", ("reason", "the answer counts for nothing because"), DiscardReason),
    ("docs/ollama.md", ("reason", "what happened", "what to do"), ProbeReason),
    ("docs/ollama.md", ("reason", "why", "what to do"), SkipReason),
    ("docs/ollama.md", ("reason", "what happened", "what follows"), DiscardReason),
]


def test_every_reason_is_documented_and_nothing_else_is() -> None:
    for name, head, reasons in REASONS:
        assert [code(cells[0]) for _, cells in tables(page(name), *head)] == [*reasons], (name, head)


def test_every_source_of_a_fact_is_documented_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(PAGE, "source", "of", "meaning")]
    assert {code(source) for source, of, _ in rows if "devices" in of} == {*facts.DeviceSource}
    assert {code(source) for source, of, _ in rows if "models" in of} == {*costs.ModelSource}
    assert len(rows) == len({*facts.DeviceSource, *costs.ModelSource})


def test_the_number_of_series_of_a_vllm_is_the_one_that_recordings_show(tmp_path: Path) -> None:
    def most(name: str, target: Target = CHAT) -> int:
        lines = format_json(RecordingReader(RECORDINGS / f"{name}.jsonl.xz"), target)
        return max(len(json.loads(line)["metrics"]) for line in lines)

    numbers = re.search(
        r"up to (\d+) series: (\d+) of the target, (\d+) of the engine and (\d+) of its ceilings.+?"
        r"adds up to (\d+)\..+?The exporter adds (\d+) of its own",
        WORDS,
    )
    assert numbers
    whole, target, engine, ceilings, further, own = map(int, numbers.groups())
    write_json(tmp_path / "config.json", load_config("llama-3.1-8b"))
    equipped = replace(CHAT, device=DeviceSettings(name="NVIDIA L40S"), model=ModelSettings(path=tmp_path))
    assert target + engine == most("batch-ramp")
    assert target + 2 * engine == most("data-parallel")
    assert whole == target + engine + ceilings == most("mfu-metrics", equipped)
    assert further == engine + ceilings
    assert own == len(SELF_METRICS)


def test_the_number_of_series_of_an_ollama_is_the_one_that_a_simulated_one_shows() -> None:
    numbers = re.search(
        r"An ollama target has (\d+) of its own, (\d+) for each model on disk, for each in memory "
        r"(\d+) more, up to (\d+) of its speeds and (\d+) of its ceilings, and (\d+) for each",
        WORDS,
    )
    assert numbers
    own, on_disk, in_memory, speeds, ceilings, probes = map(int, numbers.groups())
    loads = 1  # the one metric that only a model has which may be loaded
    assert len(ollama_samples(load=True)) == own + 2 * on_disk + in_memory + speeds + ceilings + probes
    assert len(ollama_samples(load=False)) == len(ollama_samples(load=True)) - loads
    ceiling_names = {
        metric.name for metric in TABLE if re.match(r"llm_(device|weight|kv_cache_bytes|decode_c)", metric.name)
    }
    assert Counter(sample.name in ceiling_names for sample in ollama_samples(load=True))[True] == ceilings


def test_the_metrics_of_an_ollama_are_the_listed_ones() -> None:
    listed = [name for _, cells in tables(PAGE, "metric", "on an ollama target") for name in every_code(cells[0])]
    assert len(listed) == len(set(listed))
    assert set(listed) == {sample.name for load in (False, True) for sample in ollama_samples(load=load)}


def test_the_first_bucket_edges_are_those_of_a_recorded_vllm() -> None:
    with lzma.open(RECORDINGS / "batch-ramp.jsonl.xz", "rt", encoding="utf-8") as file:
        body = next(line["body"] for line in map(json.loads, file) if line["kind"] == "scrape")

    def first_edge(name: str) -> str:
        edges = re.findall(rf'^vllm:{name}_bucket{{.*\ble="([^"]+)"', body, re.MULTILINE)
        return f"{min(map(float, edges)) * 1000:g} ms"

    documented = re.search(
        r"are (\d+ ms) for the time to first token, (\d+ ms) for inter-token latency,\s+"
        r"and (\d+ ms) for queue and prefill time",
        PAGE,
    )
    assert documented
    assert documented[1] == first_edge("time_to_first_token_seconds")
    assert documented[2] == first_edge("inter_token_latency_seconds")
    assert documented[3] == first_edge("request_queue_time_seconds") == first_edge("request_prefill_time_seconds")
