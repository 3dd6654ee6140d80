"""Latencies of one engine over the window: mean and quantiles from the server's own histograms."""

from dataclasses import dataclass

from phasewatch.analysis.quantiles import QUANTILES, Quantile, compute_quantile
from phasewatch.analysis.samples import Histogram
from phasewatch.analysis.window import EngineHistory


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency in seconds: mean, and quantiles with their order (0 to 1). None and empty without observations."""

    mean: float | None = None
    quantiles: tuple[tuple[float, Quantile], ...] = ()


@dataclass(frozen=True, slots=True)
class Latencies:
    """The four latencies of one engine."""

    time_to_first_token: Latency = Latency()
    inter_token: Latency = Latency()
    queue: Latency = Latency()
    prefill: Latency = Latency()


def compute_latencies(past: EngineHistory) -> Latencies:
    """All latencies over a window.

    Time to first token is observed at the first output and includes queue and prefill time. Inter-token latency is
    observed at each later output (per output, not per token), queue and prefill time when a request finishes.
    """
    growth = past.growth
    return Latencies(
        time_to_first_token=_compute_latency(growth.time_to_first_token),
        inter_token=_compute_latency(growth.inter_token_latency),
        queue=_compute_latency(growth.queue_time),
        prefill=_compute_latency(growth.prefill_time),
    )


def _compute_latency(histogram: Histogram | None) -> Latency:
    if histogram is None or histogram.count <= 0:
        return Latency()
    quantiles = ((order, compute_quantile(order, histogram.upper_bounds, histogram.cumulative)) for order in QUANTILES)
    return Latency(
        mean=histogram.sum / histogram.count,
        quantiles=tuple((order, quantile) for order, quantile in quantiles if quantile is not None),
    )
