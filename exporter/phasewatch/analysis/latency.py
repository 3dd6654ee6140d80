"""Latencies of one engine over the window: mean and quantiles from the server's own histograms."""

from dataclasses import dataclass

from phasewatch.analysis.distribution import UNOBSERVED, Distribution, compute_distribution
from phasewatch.analysis.window import EngineHistory


@dataclass(frozen=True, slots=True)
class Latencies:
    """The four latencies of one engine, in seconds."""

    time_to_first_token: Distribution = UNOBSERVED
    inter_token: Distribution = UNOBSERVED
    queue: Distribution = UNOBSERVED
    prefill: Distribution = UNOBSERVED


def compute_latencies(past: EngineHistory) -> Latencies:
    """All latencies over a window.

    Time to first token is observed at the first output and includes queue and prefill time. Inter-token latency is
    observed at each later output (per output, not per token), queue and prefill time when a request finishes.
    """
    return Latencies(
        time_to_first_token=describe_histogram(past, "time_to_first_token"),
        inter_token=describe_histogram(past, "inter_token_latency"),
        queue=describe_histogram(past, "queue_time"),
        prefill=describe_histogram(past, "prefill_time"),
    )


def describe_histogram(past: EngineHistory, name: str) -> Distribution:
    """The distribution of one histogram over a window.

    Args:
        past: the window, scrape by scrape.
        name: the field of `EngineSample`.
    """
    return compute_distribution(
        getattr(past.growth, name), getattr(past.newest, name), sum_is_known=name not in past.ever_corrupt
    )
