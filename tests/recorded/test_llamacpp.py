"""A real llama-server's pages and slots through the real pipeline, held against what its clients saw, token by token.

The client of a machine that is short of CPU gets its tokens late, many at once. Windows with an edge in such a moment
are left out: nobody knows which of those tokens had been generated before it.
"""

import lzma
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.llamacpp_truth import LLAMACPP, Clients, find_start, list_lines, read_clients
from tests.support.pages import Metrics, replayed, value, values

NAMES = (
    "single-stream",
    "four-streams",
    "turnover",
    "long-prefill",
    "mixed",
    "shared-prefix",
    "queue",
    "context-full",
    "aborts",
    "speculative",
    "two-scrapers",
)
TRUE_PROMPTS = tuple(name for name in NAMES if name != "aborts")
"""What a server computes of an aborted prompt is not known to its client."""

DEFAULT_WINDOW = 60
ENOUGH = 20
"""Tokens from which an error of one of them is no longer an error of a tenth."""

THROUGHPUT = "llm_decode_throughput_tokens_per_second"
SPEED = "llm_decode_tokens_per_second"
PREFILL = "llm_prefill_throughput_tokens_per_second"


@dataclass(frozen=True)
class Shown:
    """What was shown after a scrape, with the window that it is about."""

    start: float
    end: float
    metrics: Metrics
    clients: Clients

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def tokens(self) -> int:
        return self.clients.count_tokens(self.start, self.end)


@cache
def list_shown(name: str, window: float, clients: str = "") -> list[Shown]:
    """The whole windows of a recording."""
    played = play(name) if window == DEFAULT_WINDOW else replayed(name, folder=LLAMACPP, window=window)
    return list(find_windows(list_lines(name), played, window, clients or name))


def list_thinned(folder: Path, name: str, window: float, every: int) -> list[Shown]:
    """The whole windows of a recording of which every n-th scrape was made."""
    with lzma.open(LLAMACPP / f"{name}.jsonl.xz", "rt") as whole:
        header, *lines = whole
    with lzma.open(folder / f"{name}.jsonl.xz", "wt") as file:
        file.writelines([header, *lines[::every]])
    return list(find_windows(list_lines(name)[::every], replayed(name, folder=folder, window=window), window, name))


def find_windows(
    lines: list[dict[str, Any]], played: Iterable[tuple[float, Metrics]], window: float, clients: str
) -> Iterator[Shown]:
    truth = read_clients(clients)
    ends = [find_end(line) for line in lines]
    step = (ends[-1] - ends[0]) / (len(ends) - 1)
    for end, (_, metrics) in zip(ends, played, strict=True):
        start = find_start(ends, end, window)
        if start <= end - window + 0.6 * step and not truth.is_blurred(start) and not truth.is_blurred(end):
            yield Shown(start, end, metrics, truth)


def find_end(line: dict[str, Any]) -> float:
    last = line.get("slots", line)
    return float(last["t"] + last.get("took", 0.0))


def compare(shown: list[Shown], metric: str) -> list[float]:
    """Errors of a metric as shares, over all windows for which the truth is known and enough to be compared."""
    errors = []
    for one in shown:
        truth, found = find_truth(one, metric), value(one.metrics, metric)
        if truth is not None:
            assert found is not None, (metric, one.end)
            errors.append(abs(found / truth - 1))
    return errors


def find_truth(one: Shown, metric: str) -> float | None:
    if metric == PREFILL:
        return one.clients.count_prompt_tokens(one.start, one.end) / one.seconds or None
    tokens, seconds = one.clients.stream_speed(one.start, one.end)
    if metric == SPEED:
        return tokens / seconds if tokens >= ENOUGH and seconds > 0.5 else None  # half a second
    return one.tokens / one.seconds if one.tokens >= ENOUGH else None


def test_hardly_a_window_is_left_out() -> None:
    for window in (10, 60):
        kept = sum(len(list_shown(name, window)) for name in NAMES)
        every = sum(len(list_lines(name)) - window for name in NAMES)
        assert kept > 0.85 * every, (window, kept, every)


@pytest.mark.parametrize(("window", "median", "worst"), [(10, 0.01, 0.04), (60, 0.005, 0.005)])
def test_decode_throughput_is_what_clients_got(window: float, median: float, worst: float) -> None:
    everything = []
    for name in NAMES:
        errors = compare(list_shown(name, window), THROUGHPUT)
        everything += errors
        assert max(errors, default=0.0) < worst, name
        assert statistics.median(errors or [0.0]) < median, name
    assert statistics.median(everything) < 0.001


def test_the_speed_of_a_stream_is_what_clients_saw() -> None:
    errors = [error for name in NAMES for error in compare(list_shown(name, 60), SPEED)]
    assert len(errors) > 200
    assert statistics.median(errors) < 0.015
    assert max(errors) < 0.08


@pytest.mark.parametrize("window", [10, 60])
def test_prefill_throughput_is_what_clients_sent(window: float) -> None:
    for name in TRUE_PROMPTS:
        errors = compare(list_shown(name, window), PREFILL)
        assert errors
        # A prompt whose first token came just before or after an edge is in one count and not in the other.
        assert statistics.quantiles(errors, n=100)[97] < 0.01, name


def test_requests_in_flight_are_those_of_the_clients() -> None:
    errors = []
    for name in NAMES:
        ends = [find_end(line) for line in list_lines(name)]
        counts = [count_in_flight(metrics) for _, metrics in play(name)]
        for index, end in enumerate(ends):
            start = find_start(ends, end, 60)
            if start > end - 59.4:  # no whole window
                continue
            truth = read_clients(name).mean_in_flight(start, end)
            if truth == 0:
                continue
            seen = counts[ends.index(start) + 1 : index + 1]
            errors.append(abs(statistics.mean(seen) / truth - 1))
    assert len(errors) > 200
    assert statistics.median(errors) < 0.02


def count_in_flight(metrics: Metrics) -> float:
    return sum(values(metrics, "llm_requests_running") + values(metrics, "llm_requests_waiting"))


@pytest.mark.parametrize("window", [10, 60])
def test_after_a_hundred_million_tokens_every_figure_is_right_to_three_percent_or_absent(window: float) -> None:
    shown = list_shown("after-1e8", window, "four-streams")
    compared = 0
    for one in shown:
        for metric in (THROUGHPUT, SPEED, PREFILL):
            truth, found = find_truth(one, metric), value(one.metrics, metric)
            if truth is not None and found is not None:
                assert abs(found / truth - 1) < 0.03, (metric, one.end, found, truth)
                compared += 1
    assert len(shown) > 20
    if window == 60:
        assert compared > len(shown)


@pytest.mark.parametrize(("every", "median", "worst"), [(2, 0.02, 0.1), (5, 0.03, 0.3)])
def test_fewer_scrapes_lose_no_token_and_show_the_speed_of_a_stream_less_precisely(
    tmp_path: Path, every: int, median: float, worst: float
) -> None:
    speeds = []
    for name in NAMES:
        shown = list_thinned(tmp_path, name, 60, every)
        assert statistics.median(compare(shown, THROUGHPUT) or [0.0]) < 0.005, name
        assert name not in TRUE_PROMPTS or statistics.median(compare(shown, PREFILL) or [0.0]) < 0.01, name
        speeds += compare(shown, SPEED)
    assert statistics.median(speeds) < median
    assert max(speeds) < worst


@cache
def play(name: str) -> list[tuple[float, Metrics]]:
    """What is shown after each line of a recording, with the default window."""
    return list(replayed(name, folder=LLAMACPP))


def test_a_server_with_a_queue_is_limited_by_its_slots_while_requests_wait_and_healthy_otherwise() -> None:
    for name in (*NAMES, "after-1e8", "sleep", "sleep-disturbed"):
        for time, metrics in play(name):
            state = find_state(metrics)
            if name == "queue" and 30 <= time <= 60:
                assert state == "concurrency_limited", time
            elif name != "queue":
                assert state in {"healthy", "idle", None}, (name, time)


def test_a_stream_that_stands_still_beside_a_prompt_is_a_stall_and_no_hang() -> None:
    stalls = [value(metrics, "llm_token_stall_seconds") or 0.0 for _, metrics in play("mixed")]
    assert max(stalls) > 5
    assert "stuck" not in {find_state(metrics) for _, metrics in play("mixed")}


def test_speculation_yields_more_than_a_token_per_step_and_its_acceptance() -> None:
    last = [metrics for _, metrics in play("speculative")][-1]
    assert (value(last, "llm_tokens_per_step") or 0) > 3
    assert 0 < (value(last, "llm_draft_acceptance_ratio") or 0) <= 1


def test_a_second_scraper_changes_nothing() -> None:
    alone = dict(play("two-scrapers"))
    other = dict(play("two-scrapers.2"))
    truth, ends = read_clients("two-scrapers"), {}
    for time, metrics in alone.items():
        ends[time] = value(metrics, THROUGHPUT)
    assert len(other) > 10
    for time, metrics in other.items():
        if time < 45:
            continue
        found = value(metrics, THROUGHPUT)
        expected = ends[min(ends, key=lambda t: abs(t - time))]
        assert found is not None
        assert expected is not None
        assert found == pytest.approx(expected, rel=0.03), time
    assert truth.requests


def test_a_sleeping_server_is_up_and_idle_and_its_counters_cause_no_restart() -> None:
    for name in ("sleep", "sleep-disturbed"):
        for time, metrics in play(name):
            assert value(metrics, "llm_target_up") == 1
            rates = [value(metrics, metric) for metric in (THROUGHPUT, PREFILL, SPEED)]
            assert all(rate is None or rate >= 0 for rate in rates), (name, time)
    asleep = [metrics for time, metrics in play("sleep") if 40 <= time <= 49]
    assert asleep
    for metrics in asleep:
        assert value(metrics, "llm_requests_running") == 0
        assert find_state(metrics) == "idle"
    # The requests that wake it after 50 s are counted in full over the window that spans the sleep.
    (last,) = [metrics for _, metrics in play("sleep")][-1:]
    ends = [find_end(line) for line in list_lines("sleep") if line["kind"] == "scrape" or line["body"]]
    start = find_start(ends, ends[-1], 60)
    truth = read_clients("sleep").count_tokens(start, ends[-1]) / (ends[-1] - start)
    assert value(last, THROUGHPUT) == pytest.approx(truth, rel=0.01)


def find_state(metrics: Metrics) -> str | None:
    states = [dict(labels)["state"] for (name, labels), on in metrics.items() if name == "llm_saturation_state" and on]
    assert len(states) <= 1
    return states[0] if states else None
