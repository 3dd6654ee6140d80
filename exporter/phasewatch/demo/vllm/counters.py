"""Metrics of the simulated vLLM: families, labels and buckets of 0.32, and when each is updated."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Final, Literal

from phasewatch.backends.vllm.buckets import TIME_PER_TOKEN, TIME_TO_FIRST_TOKEN
from phasewatch.demo.vllm.scheduler import Scheduler, Sequence
from phasewatch.demo.vllm.settings import SimulatedVllmSettings

MetricType = Literal["gauge", "counter", "histogram"]

REQUEST_SECONDS: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
STEP_TOKENS: Final = (1.0, *(float(2**power) for power in range(3, 15)))
REPETITIONS: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric family.

    Attributes:
        name: name without the `vllm:` prefix and without the `_total` suffix of counters.
        type: Prometheus metric type.
        label: name of a label besides model and engine; empty if there is none.
        label_values: values of that label.
        upper_bounds: upper bounds of a histogram's buckets, without infinity.
        has_engine_label: whether it has the label `engine`.
    """

    name: str
    type: MetricType
    label: str = ""
    label_values: tuple[str, ...] = ("",)
    upper_bounds: tuple[float, ...] = ()
    has_engine_label: bool = True


def build_families(max_model_len: int) -> tuple[MetricFamily, ...]:
    """The metric families of vLLM 0.32 in the order of its page, except `cache_config_info`.

    Args:
        max_model_len: largest upper bound of the buckets for token counts.
    """
    tokens = tuple(takewhile(lambda bound: bound <= max_model_len, _generate_one_two_five()))
    return (
        MetricFamily("estimated_flops_per_gpu", "counter"),
        MetricFamily("estimated_read_bytes_per_gpu", "counter"),
        MetricFamily("estimated_write_bytes_per_gpu", "counter"),
        MetricFamily("num_requests_running", "gauge"),
        MetricFamily("num_requests_waiting", "gauge"),
        MetricFamily("num_requests_waiting_by_reason", "gauge", "reason", ("capacity", "deferred")),
        MetricFamily("engine_sleep_state", "gauge", "sleep_state", ("awake", "weights_offloaded", "discard_all")),
        MetricFamily("kv_cache_usage_perc", "gauge"),
        MetricFamily("prefix_cache_queries", "counter"),
        MetricFamily("prefix_cache_hits", "counter"),
        MetricFamily("external_prefix_cache_queries", "counter"),
        MetricFamily("external_prefix_cache_hits", "counter"),
        MetricFamily("mm_cache_queries", "counter"),
        MetricFamily("mm_cache_hits", "counter"),
        MetricFamily("num_preemptions", "counter"),
        MetricFamily("prompt_tokens", "counter"),
        MetricFamily(
            "prompt_tokens_by_source", "counter", "source", ("local_compute", "local_cache_hit", "external_kv_transfer")
        ),
        MetricFamily("prompt_tokens_cached", "counter"),
        MetricFamily(
            "prompt_tokens_cached_by_source",
            "counter",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        ),
        MetricFamily("generation_tokens", "counter"),
        MetricFamily(
            "request_success", "counter", "finished_reason", ("stop", "length", "abort", "error", "repetition")
        ),
        MetricFamily(
            "admission_rejections",
            "counter",
            "reason",
            ("max_num_queued_reqs", "max_num_queued_tokens"),
            has_engine_label=False,
        ),
        MetricFamily("request_prompt_tokens", "histogram", upper_bounds=tokens),
        MetricFamily("request_generation_tokens", "histogram", upper_bounds=tokens),
        MetricFamily("iteration_tokens_total", "histogram", upper_bounds=STEP_TOKENS),
        MetricFamily("request_max_num_generation_tokens", "histogram", upper_bounds=tokens),
        MetricFamily("request_params_n", "histogram", upper_bounds=REPETITIONS),
        MetricFamily("request_params_max_tokens", "histogram", upper_bounds=tokens),
        MetricFamily("time_to_first_token_seconds", "histogram", upper_bounds=TIME_TO_FIRST_TOKEN),
        MetricFamily("inter_token_latency_seconds", "histogram", upper_bounds=TIME_PER_TOKEN),
        MetricFamily("request_time_per_output_token_seconds", "histogram", upper_bounds=TIME_PER_TOKEN),
        MetricFamily("e2e_request_latency_seconds", "histogram", upper_bounds=REQUEST_SECONDS),
        MetricFamily("request_queue_time_seconds", "histogram", upper_bounds=REQUEST_SECONDS),
        MetricFamily("request_inference_time_seconds", "histogram", upper_bounds=REQUEST_SECONDS),
        MetricFamily("request_prefill_time_seconds", "histogram", upper_bounds=REQUEST_SECONDS),
        MetricFamily("request_decode_time_seconds", "histogram", upper_bounds=REQUEST_SECONDS),
        MetricFamily("request_num_preemptions", "histogram", upper_bounds=PREEMPTIONS),
        MetricFamily("request_prefill_kv_computed_tokens", "histogram", upper_bounds=tokens),
    )


def _generate_one_two_five() -> Iterator[float]:
    """1, 2, 5, 10, 20, 50, ..."""
    power = 1.0
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


@dataclass(slots=True)
class HistogramCounts:
    """A histogram that is being filled. `counts` are not cumulative; the last one is above every bound."""

    upper_bounds: tuple[float, ...]
    sum: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.upper_bounds) + 1)

    def observe(self, value: float) -> None:
        """Add an observation."""
        self.counts[bisect_left(self.upper_bounds, value)] += 1
        self.sum += value

    def accumulate_counts(self) -> Iterator[int]:
        """Cumulative counts, one per upper bound, then the total."""
        return accumulate(self.counts)


class Counters:
    """The values of all metrics.

    Args:
        settings: settings of the server.

    Attributes:
        families: the metric families.
        values: gauges and counters by family name and label value.
        histograms: histograms by family name.
        http_requests: completions that were answered, by class of HTTP status; only classes that have occurred.
    """

    def __init__(self, settings: SimulatedVllmSettings) -> None:
        self.families = build_families(settings.max_model_len)
        self.values: dict[tuple[str, str], float] = {
            (family.name, label_value): 0.0
            for family in self.families
            if family.type != "histogram"
            for label_value in family.label_values
        }
        self.histograms: Mapping[str, HistogramCounts] = {
            family.name: HistogramCounts(family.upper_bounds) for family in self.families if family.type == "histogram"
        }
        self.values["engine_sleep_state", "awake"] = 1.0
        self.http_requests: dict[str, int] = {}

    def update_gauges(self, scheduler: Scheduler) -> None:
        """Copy the scheduler's state after a step: the gauges, and the counters of the prefix cache."""
        waiting, deferred = len(scheduler.waiting), scheduler.deferred
        self._set("num_requests_running", len(scheduler.running))
        self._set("num_requests_waiting", waiting)
        self._set("num_requests_waiting_by_reason", waiting - deferred, "capacity")
        self._set("num_requests_waiting_by_reason", deferred, "deferred")
        self._set("kv_cache_usage_perc", scheduler.pool.usage)
        self._set("prefix_cache_queries", scheduler.cache_queries)
        self._set("prefix_cache_hits", scheduler.cache_hits)
        self._set("prompt_tokens_cached_by_source", scheduler.cache_hits, "device")

    def count_rejection(self) -> None:
        """Count a request that was answered with 503."""
        self._add("admission_rejections", 1, "max_num_queued_reqs")
        self._count_http_request("5xx")

    def count_disconnect(self) -> None:
        """Count a stream whose client disconnected: only the web framework does, and its answer had begun with 200."""
        self._count_http_request("2xx")

    def count_step(self, tokens: int) -> None:
        """Count a step that produced output.

        Args:
            tokens: output tokens, plus the computed tokens of the prompts that the step completed.
        """
        self.histograms["iteration_tokens_total"].observe(tokens)

    def count_token(self, sequence: Sequence, now: float) -> None:
        """Count an output token, before the sequence is updated. Preemptions are counted with the next token."""
        self._add("generation_tokens", 1)
        if sequence.preemptions > sequence.counted_preemptions:
            self._add("num_preemptions", sequence.preemptions - sequence.counted_preemptions)
        if sequence.generated > 0:
            self.histograms["inter_token_latency_seconds"].observe(now - sequence.last_token_at)
            return
        request, cached = sequence.request, sequence.cached
        self.histograms["time_to_first_token_seconds"].observe(now - request.sent_at)
        self._add("prompt_tokens", request.prompt)
        self._add("prompt_tokens_cached", cached)
        self._add("prompt_tokens_by_source", request.prompt - cached, "local_compute")
        self._add("prompt_tokens_by_source", cached, "local_cache_hit")

    def count_finished(self, sequence: Sequence) -> None:
        """Count a request that ran to its end. Aborted requests are never counted (0.8 to 0.32)."""
        request, first, last = sequence.request, sequence.first_token_at, sequence.last_token_at
        self._count_http_request("2xx")
        self._add("request_success", 1, "length" if sequence.generated == request.max_tokens else "stop")
        observations = {
            "request_prompt_tokens": request.prompt,
            "request_generation_tokens": sequence.generated,
            "request_max_num_generation_tokens": sequence.generated,
            "request_params_n": 1,
            "request_params_max_tokens": request.max_tokens,
            "request_time_per_output_token_seconds": (last - first) / max(1, sequence.generated - 1),
            "e2e_request_latency_seconds": last - request.sent_at,
            "request_queue_time_seconds": sequence.scheduled_at - request.sent_at,
            "request_inference_time_seconds": last - sequence.scheduled_at,
            "request_prefill_time_seconds": first - sequence.scheduled_at,
            "request_decode_time_seconds": last - first,
            "request_num_preemptions": sequence.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt - sequence.cached,
        }
        for name, value in observations.items():
            self.histograms[name].observe(value)

    def _count_http_request(self, status: str) -> None:
        self.http_requests[status] = self.http_requests.get(status, 0) + 1

    def _set(self, name: str, value: float, label_value: str = "") -> None:
        self.values[name, label_value] = value

    def _add(self, name: str, amount: float, label_value: str = "") -> None:
        self.values[name, label_value] += amount
