"""Latencies of one engine over the window: means and quantiles of vLLM's own histograms."""

from dataclasses import dataclass

from phasewatch.analysis.quantiles import QUANTILES, Quantile, compute_quantile
from phasewatch.analysis.samples import Histogram
from phasewatch.analysis.window import Increase


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency in seconds: its mean, and the quantiles by order; empty where nothing was observed."""

    mean: float | None = None
    quantiles: tuple[tuple[float, Quantile], ...] = ()


@dataclass(frozen=True, slots=True)
class Latencies:
    """The four latencies of one engine."""

    time_to_first_token: Latency = Latency()
    inter_token: Latency = Latency()
    queue: Latency = Latency()
    prefill: Latency = Latency()


def compute_latencies(growth: Increase | None) -> Latencies:
    """All latencies over a window.

    Time to first token is observed at the first output and includes queue and prefill; inter-token latency at each
    engine output after it (per output, not per token); queue and prefill time when a request finishes.
    """
    if growth is None:
        return Latencies()
    delta = growth.grown
    return Latencies(
        time_to_first_token=_latency(delta.time_to_first_token),
        inter_token=_latency(delta.inter_token_latency),
        queue=_latency(delta.queue_time),
        prefill=_latency(delta.prefill_time),
    )


def _latency(histogram: Histogram | None) -> Latency:
    if histogram is None or histogram.count <= 0:
        return Latency()
    found = ((order, compute_quantile(order, histogram.edges, histogram.cumulative)) for order in QUANTILES)
    return Latency(
        mean=histogram.sum / histogram.count,
        quantiles=tuple((order, quantile) for order, quantile in found if quantile is not None),
    )
