"""The children of an Ollama through the real pipeline, held against what the clients of each model saw, token by token.

Two models; one is loaded again on another port after a pause, and its process is killed in the middle of two requests.
"""

import json
import lzma
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.support.llamacpp_truth import LLAMACPP, Clients, Request, find_start, list_lines
from tests.support.pages import Metrics, replayed, value, values

EXACT, ESTIMATED = "ollama-children-metrics", "ollama-children"
NAMES = (EXACT, ESTIMATED)
TAGS = {"small": "small:latest", "crowd": "tiny:latest", "again": "tiny:latest"}
"""Which model the requests of a tag were for."""

TINY, SMALL = "tiny:latest", "small:latest"
TINY_LAYER = "sha256-9da7abd6bf21"

SHORT, DEFAULT = 10.0, 60.0
"""Windows. The default one is as long as a process has been read, at most."""

ENOUGH = 100
"""Tokens from which an error of one of them is no longer an error of a hundredth."""

THROUGHPUT = "llm_decode_throughput_tokens_per_second"
SPEED = "llm_decode_tokens_per_second"


@dataclass(frozen=True)
class Shown:
    """What was shown of a model after a line, the window that it is about, and what the model's clients saw."""

    model: str
    start: float
    end: float
    metrics: Metrics
    clients: Clients

    def find(self, metric: str) -> float | None:
        return value(self.metrics, metric, model_name=self.model)

    @property
    def throughput(self) -> float:
        return self.clients.count_tokens(self.start, self.end) / (self.end - self.start)

    @property
    def speed(self) -> float:
        tokens, seconds = self.clients.stream_speed(self.start, self.end)
        return tokens / seconds if seconds else 0.0


@cache
def play(name: str, window: float = SHORT) -> list[tuple[dict[str, Any], Metrics]]:
    """Each line of a recording, and what is shown after it."""
    played = replayed(name, folder=LLAMACPP, window=window)
    return [(line, metrics) for line, (_, metrics) in zip(list_lines(name), played, strict=True)]


@cache
def read_clients(name: str, model: str) -> Clients:
    """What the clients of a model saw."""
    with lzma.open(LLAMACPP / f"{name}.requests.jsonl.xz", "rt") as file:
        requests = [json.loads(line) for line in file]
    return Clients(
        tuple(
            Request(request["sent"], request["done"], tuple(request["tokens"]), None)
            for request in requests
            if TAGS[request["tag"]] == model
        )
    )


def list_models(line: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The children on a line, by the model whose weights they were started with."""
    return {(TINY if TINY_LAYER in " ".join(child["argv"]) else SMALL): child for child in line["children"]}


@cache
def list_shown(name: str, model: str, window: float) -> list[Shown]:
    """The windows of ten seconds and more of the processes of a model, one after the other."""
    ends: dict[int, list[float]] = {}
    shown = []
    truth = read_clients(name, model)
    for line, metrics in play(name, window):
        child = list_models(line).get(model)
        if child is None or child["slots"].get("status") != 200:
            continue
        end = child["slots"]["t"] + child["slots"]["took"]
        own = ends.setdefault(child["pid"], [])
        own.append(end)
        start = find_start(own, end, window)
        if start <= end - SHORT + 0.6 and not truth.is_blurred(start) and not truth.is_blurred(end):
            shown.append(Shown(model, start, end, metrics, truth))
    return shown


def compare(name: str, metric: str, window: float = SHORT) -> Iterator[float]:
    """Errors of a metric as shares, over all windows with enough tokens."""
    for model in (TINY, SMALL):
        for one in list_shown(name, model, window):
            if one.clients.count_tokens(one.start, one.end) >= ENOUGH:
                found = one.find(metric)
                if found is None and name == ESTIMATED:  # no stream was seen twice in the window
                    continue
                assert found is not None, (model, one.end)
                yield found / (one.throughput if metric == THROUGHPUT else one.speed) - 1


def test_with_metrics_the_throughput_of_each_model_is_what_its_clients_got() -> None:
    errors = [abs(error) for error in compare(EXACT, THROUGHPUT)]
    assert len(errors) > 40
    assert statistics.median(errors) < 0.01
    assert max(errors) < 0.04


def test_with_slots_alone_read_each_second_the_throughput_is_an_estimate() -> None:
    """Requests of 3 to 4 s: whether a reading falls into a prefill is chance, ten times in a window."""
    errors = list(compare(ESTIMATED, THROUGHPUT))
    assert len(errors) > 30
    assert statistics.median(abs(error) for error in errors) < 0.06
    assert max(abs(error) for error in errors) < 0.25


def test_with_slots_alone_no_rate_is_made_up_for_requests_that_no_two_readings_have_seen() -> None:
    shown = [one for one in list_shown(ESTIMATED, SMALL, SHORT) if one.throughput]
    assert shown
    for one in shown:  # 0.2 to 0.4 s each
        assert one.find(THROUGHPUT) is None
        assert one.find(SPEED) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_speed_of_a_stream_is_what_clients_saw(name: str) -> None:
    errors = [abs(error) for error in compare(name, SPEED, DEFAULT)]
    assert len(errors) > 40
    assert statistics.median(errors) < 0.015
    assert max(errors) < 0.08


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_of_users_and_waiting_is_absent(name: str) -> None:
    for _, metrics in play(name):
        assert values(metrics, "llm_requests_waiting") == []
        for (metric, labels), on in metrics.items():
            if metric == "llm_measurement_source":
                assert on == (dict(labels)["source"] == "traffic")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_figures_only_while_its_process_runs(name: str) -> None:
    compared = 0
    for line, metrics in play(name):
        running = list_models(line)
        for model in (TINY, SMALL):
            seen = [value(metrics, metric, model_name=model) for metric in ("llm_requests_running", THROUGHPUT, SPEED)]
            if model not in running:
                assert seen == [None, None, None], (line["t"], model)
            elif running[model]["slots"].get("status") == 200:
                slots = json.loads(running[model]["slots"]["body"])
                assert seen[0] is not None
                # The page of metrics is some milliseconds older.
                assert abs(seen[0] - sum(slot["is_processing"] for slot in slots)) <= (name == EXACT)
                compared += 1
    assert compared > 60


@pytest.mark.parametrize("name", NAMES)
def test_the_process_after_a_crash_or_a_pause_begins_with_a_window_of_its_own(name: str) -> None:
    begun, pids = [], set()
    for line, metrics in play(name):
        child = list_models(line).get(TINY)
        if child is not None and child["pid"] not in pids:
            pids.add(child["pid"])
            begun.append(value(metrics, THROUGHPUT, model_name=TINY))
    assert begun == [None, None, None]
