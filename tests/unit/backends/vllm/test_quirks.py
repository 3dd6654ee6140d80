"""Where a vLLM release counts otherwise than its metrics' names suggest."""

from phasewatch.analysis.samples import EngineSample, Histogram
from phasewatch.backends.vllm.quirks import find_corrupt_histograms


def test_a_prefill_longer_than_any_request_makes_prefill_and_queue_time_corrupt() -> None:
    bounds = (1.0, 10.0, 100.0, float("inf"))

    def step(time: float, prefills: tuple[float, ...], requests: tuple[float, ...]) -> EngineSample:
        return EngineSample(
            queue_time=Histogram(time, prefills[-1]),
            prefill_time=Histogram(time, prefills[-1], bounds, prefills),
            request_latency=Histogram(time, requests[-1], bounds, requests),
        )

    start = step(0, (0, 0, 0, 0), (0, 0, 0, 0))
    assert not find_corrupt_histograms(start, step(1, (20, 21, 21, 21), (2, 20, 21, 21)))
    # Twenty honest requests, and one that seems to have been in prefill for longer than any of them lasted.
    assert set(find_corrupt_histograms(start, step(1, (20, 20, 20, 21), (2, 21, 21, 21)))) == {
        "prefill_time",
        "queue_time",
    }


def test_histograms_with_different_buckets_are_not_compared() -> None:
    def sample(*bounds: float) -> EngineSample:
        histogram = Histogram(0, 1, bounds, (1.0,) * len(bounds))
        return EngineSample(prefill_time=histogram, request_latency=histogram)

    assert not find_corrupt_histograms(sample(1, 2), sample(1, 2, 3))
