"""Requests: rates by reason and source, and the share that ended in an error, counted once however often it shows."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from phasewatch.analysis.latency import compute_latencies
from phasewatch.analysis.requests import (
    FinishReason,
    Requests,
    ServerRequests,
    TokenSource,
    compute_requests,
    compute_server_requests,
)
from phasewatch.analysis.samples import EngineKey, EngineSample, Histogram, Page
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory, PageWindow, append_page, extract_history

KEY, OTHER = EngineKey("m", "0"), EngineKey("m", "1")
NONE_FINISHED = EngineSample(
    generation_tokens=0.0,
    finished_stop=0.0,
    finished_length=0.0,
    finished_abort=0.0,
    finished_error=0.0,
    finished_other=0.0,
    rejections=0.0,
)


def measure(end: EngineSample, start: EngineSample = NONE_FINISHED, totals: PhaseTotals | None = None) -> Requests:
    return compute_requests(EngineHistory((0.0, 10.0), (start, end)), totals)


def append_pages(*pages: tuple[float, Mapping[EngineKey, EngineSample], Mapping[str, float]]) -> ServerRequests:
    window = PageWindow()
    for time, engines, http in pages:
        window = append_page(window, Page(None, False, engines, http), time, 60)
    return compute_server_requests(window, {key: extract_history(window, key) for key in window.engines})


def serve(
    end: EngineSample, http: Mapping[str, float], *, start: EngineSample = NONE_FINISHED, engines: int = 1
) -> ServerRequests:
    keys = (KEY, OTHER)[:engines]
    return append_pages((0.0, dict.fromkeys(keys, start), {}), (10.0, dict.fromkeys(keys, end), http))


def test_finished_requests_are_rates_by_reason() -> None:
    end = replace(NONE_FINISHED, finished_stop=30.0, finished_length=20.0, finished_other=5.0, finished_error=1.0)
    assert measure(end).finished_per_second == {
        FinishReason.STOP: 3.0,
        FinishReason.LENGTH: 2.0,
        FinishReason.ERROR: 0.1,
        FinishReason.OTHER: 0.5,
    }


def test_aborts_are_shown_only_by_a_server_that_has_counted_one() -> None:
    aborted = replace(NONE_FINISHED, finished_abort=4.0)
    assert FinishReason.ABORT not in measure(NONE_FINISHED).finished_per_second
    assert measure(aborted).finished_per_second[FinishReason.ABORT] == 0.4
    assert measure(aborted, aborted).finished_per_second[FinishReason.ABORT] == 0.0


def test_a_reason_that_never_occurred_is_0_where_reasons_are_counted_at_all() -> None:
    start, end = EngineSample(finished_length=3.0), EngineSample(finished_length=8.0)
    assert measure(end, start).finished_per_second == {
        FinishReason.STOP: 0.0,
        FinishReason.LENGTH: 0.5,
        FinishReason.ERROR: 0.0,
        FinishReason.OTHER: 0.0,
    }
    assert measure(EngineSample(), EngineSample()).finished_per_second == {}


def test_a_single_scrape_has_totals_and_no_rates() -> None:
    sample = replace(NONE_FINISHED, request_latency=Histogram(9.0, 3))
    requests = compute_requests(EngineHistory((0.0,), (sample,)), None)
    assert requests.finished_per_second == {}
    assert (requests.latency.sum, requests.latency.count, requests.latency.mean) == (9.0, 3, None)
    assert append_pages((0.0, {KEY: NONE_FINISHED}, {"2xx": 7.0})) == ServerRequests()


def test_lengths_and_times_are_those_of_the_requests_that_finished_in_the_window() -> None:
    def at(count: float) -> EngineSample:
        lengths = Histogram(300.0 * count, count, (200.0, 500.0, inf), (0, count, count))
        return EngineSample(
            decode_time=Histogram(4.0 * count, count), request_prompt_tokens=lengths, request_output_tokens=lengths
        )

    requests = measure(at(5), at(3))
    assert requests.decode_time_mean_seconds == 4.0
    for lengths in (requests.prompt_tokens, requests.output_tokens):
        assert (lengths.mean, lengths.sum, lengths.count) == (300, 1500, 5)
        assert next(quantile.value for _, quantile in lengths.quantiles) == 350
    assert measure(at(5), at(5)).decode_time_mean_seconds is None


def test_a_corrupt_sum_stays_absent_after_the_window_and_the_count_stays_shown() -> None:
    buckets = ((0.3, inf), (5.0, 5.0))
    samples = [
        EngineSample(queue_time=Histogram(total, 5.0, *buckets), generation_tokens=1.0) for total in (50.0, -1900.0)
    ]
    late = [EngineSample(queue_time=Histogram(total, 5.0, *buckets), generation_tokens=1.0) for total in (20.0, 30.0)]
    window = PageWindow()
    for time, sample in ((0.0, samples[0]), (10.0, samples[1]), (80.0, late[0]), (90.0, late[1])):
        window = append_page(window, Page(None, False, {KEY: sample}), time, 10)
    past = extract_history(window, KEY)
    assert not past.corrupt
    queue = compute_latencies(past).queue
    assert (queue.sum, queue.count) == (None, 5.0)


def test_prompt_tokens_by_source_add_up_or_are_absent() -> None:
    known = PhaseTotals(10.0, prefill_tokens=100.0, local_cache_tokens=50.0, external_cache_tokens=250.0)
    rates = measure(NONE_FINISHED, totals=known).prompt_tokens_per_second
    assert rates == {TokenSource.COMPUTED: 10, TokenSource.LOCAL_CACHE: 5, TokenSource.EXTERNAL_CACHE: 25}
    assert measure(NONE_FINISHED, totals=replace(known, external_cache_tokens=None)).prompt_tokens_per_second == {}


def test_the_acceptance_of_drafts_is_a_share_or_absent() -> None:
    rows: list[tuple[float | None, float | None, float | None]] = [
        (100.0, 75.0, 0.75),
        (100.0, 0.0, 0.0),
        (0.0, 0.0, None),
        (None, None, None),
        (100.0, 101.0, None),
    ]
    for drafted, accepted, ratio in rows:
        start = EngineSample(
            draft_tokens=None if drafted is None else 0.0, accepted_draft_tokens=None if accepted is None else 0.0
        )
        end = EngineSample(draft_tokens=drafted, accepted_draft_tokens=accepted)
        assert measure(end, start).draft_acceptance_ratio == ratio, (drafted, accepted)


def test_http_answers_are_rates_by_class_and_a_class_that_never_occurred_is_0() -> None:
    rates = serve(NONE_FINISHED, {"2xx": 50.0, "5xx": 1.0}).http_per_second
    assert rates == {"2xx": 5.0, "4xx": 0.0, "5xx": 0.1}
    assert serve(NONE_FINISHED, {}).http_per_second == {}


def test_a_refusal_that_is_an_http_503_too_is_one_error() -> None:
    end = replace(NONE_FINISHED, finished_stop=60.0, rejections=40.0)
    assert serve(end, {"2xx": 60.0, "5xx": 40.0}).error_ratio == pytest.approx(0.4)


def test_an_error_is_counted_wherever_it_shows() -> None:
    rows: list[tuple[dict[str, Any], dict[str, float], float]] = [
        ({"finished_error": 10.0}, {"2xx": 30.0}, 0.25),
        ({"finished_error": 10.0}, {"2xx": 30.0, "5xx": 10.0}, 0.25),
        ({}, {"2xx": 30.0, "5xx": 10.0}, 0.25),
        ({"rejections": 10.0}, {}, 0.25),
        ({"rejections": 4.0, "finished_error": 6.0}, {"5xx": 8.0}, 0.25),
        ({}, {"2xx": 30.0, "4xx": 90.0}, 0.0),
    ]
    for counted, http, ratio in rows:
        end = replace(NONE_FINISHED, finished_stop=20.0, finished_length=10.0, **counted)
        assert serve(end, http).error_ratio == pytest.approx(ratio), (counted, http)


def test_rejections_of_a_model_are_counted_once_and_finished_requests_of_every_engine() -> None:
    end = replace(NONE_FINISHED, finished_stop=30.0, rejections=20.0)
    assert serve(end, {}, engines=2).error_ratio == pytest.approx(20 / (30 + 30 + 20))


def test_without_a_request_that_ended_there_is_no_error_ratio() -> None:
    assert serve(NONE_FINISHED, {"2xx": 5.0}).error_ratio is None


def test_a_server_that_counts_no_errors_has_no_error_ratio() -> None:
    start, end = EngineSample(finished_length=0.0), EngineSample(finished_length=9.0)
    assert serve(end, {}, start=start).error_ratio is None
    assert serve(end, {"2xx": 9.0}, start=start).error_ratio == 0.0


def test_errors_and_finished_requests_cover_the_same_time() -> None:
    def at(finished: float, drafted: float | None) -> dict[EngineKey, EngineSample]:
        return {KEY: replace(NONE_FINISHED, finished_stop=finished, draft_tokens=drafted)}

    # The page at 5 s lacks a counter, so the samples of the engine are comparable from 10 s only.
    served = append_pages(
        (0.0, at(10.0, 0.0), {"5xx": 0.0}),
        (5.0, at(15.0, None), {"5xx": 40.0}),
        (10.0, at(20.0, 0.0), {"5xx": 90.0}),
        (20.0, at(30.0, 0.0), {"5xx": 100.0}),
    )
    assert served.http_per_second["5xx"] == 5.0
    assert served.error_ratio == 0.5


def test_a_class_of_answers_that_vanishes_gives_no_negative_rate() -> None:
    engines = {KEY: NONE_FINISHED}
    served = append_pages((0.0, engines, {"2xx": 5.0, "4xx": 50.0}), (10.0, engines, {"2xx": 9.0}))
    assert served.http_per_second == {}


def test_http_answers_that_fall_are_a_restart() -> None:
    sample = {KEY: NONE_FINISHED}
    served = append_pages((0.0, sample, {"2xx": 100.0}), (10.0, sample, {"2xx": 5.0}), (20.0, sample, {"2xx": 15.0}))
    assert served.http_per_second["2xx"] == 1.0
