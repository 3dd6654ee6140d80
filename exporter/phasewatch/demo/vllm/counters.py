"""What the simulated vLLM counts, and when: its metrics with the labels and buckets of 0.32."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Final, Literal

from phasewatch.backends.vllm.buckets import TIME_PER_TOKEN, TIME_TO_FIRST_TOKEN
from phasewatch.demo.vllm.scheduler import Scheduler, Sequence
from phasewatch.demo.vllm.settings import Settings

Kind = Literal["gauge", "counter", "histogram"]

REQUEST_SECONDS: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
STEP_TOKENS: Final = (1.0, *(float(2**power) for power in range(3, 15)))
REPETITIONS: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric without its prefix.

    Attributes:
        name: without `vllm:`, and without the `_total` of counters.
        kind: its type.
        label: a label besides model and engine, if it has one.
        values: of that label.
        edges: upper edges of a histogram's buckets, without infinity.
        of_engine: whether it has the label `engine`.
    """

    name: str
    kind: Kind
    label: str = ""
    values: tuple[str, ...] = ("",)
    edges: tuple[float, ...] = ()
    of_engine: bool = True


def families(max_model_len: int) -> tuple[Family, ...]:
    """The metrics of vLLM 0.32 in the order of its page, apart from the information on its cache.

    Args:
        max_model_len: up to which the buckets for numbers of tokens go.
    """
    tokens = tuple(takewhile(lambda edge: edge <= max_model_len, _one_two_five()))
    return (
        Family("estimated_flops_per_gpu", "counter"),
        Family("estimated_read_bytes_per_gpu", "counter"),
        Family("estimated_write_bytes_per_gpu", "counter"),
        Family("num_requests_running", "gauge"),
        Family("num_requests_waiting", "gauge"),
        Family("num_requests_waiting_by_reason", "gauge", "reason", ("capacity", "deferred")),
        Family("engine_sleep_state", "gauge", "sleep_state", ("awake", "weights_offloaded", "discard_all")),
        Family("kv_cache_usage_perc", "gauge"),
        Family("prefix_cache_queries", "counter"),
        Family("prefix_cache_hits", "counter"),
        Family("external_prefix_cache_queries", "counter"),
        Family("external_prefix_cache_hits", "counter"),
        Family("mm_cache_queries", "counter"),
        Family("mm_cache_hits", "counter"),
        Family("num_preemptions", "counter"),
        Family("prompt_tokens", "counter"),
        Family(
            "prompt_tokens_by_source", "counter", "source", ("local_compute", "local_cache_hit", "external_kv_transfer")
        ),
        Family("prompt_tokens_cached", "counter"),
        Family(
            "prompt_tokens_cached_by_source",
            "counter",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        ),
        Family("generation_tokens", "counter"),
        Family("request_success", "counter", "finished_reason", ("stop", "length", "abort", "error", "repetition")),
        Family(
            "admission_rejections",
            "counter",
            "reason",
            ("max_num_queued_reqs", "max_num_queued_tokens"),
            of_engine=False,
        ),
        Family("request_prompt_tokens", "histogram", edges=tokens),
        Family("request_generation_tokens", "histogram", edges=tokens),
        Family("iteration_tokens_total", "histogram", edges=STEP_TOKENS),
        Family("request_max_num_generation_tokens", "histogram", edges=tokens),
        Family("request_params_n", "histogram", edges=REPETITIONS),
        Family("request_params_max_tokens", "histogram", edges=tokens),
        Family("time_to_first_token_seconds", "histogram", edges=TIME_TO_FIRST_TOKEN),
        Family("inter_token_latency_seconds", "histogram", edges=TIME_PER_TOKEN),
        Family("request_time_per_output_token_seconds", "histogram", edges=TIME_PER_TOKEN),
        Family("e2e_request_latency_seconds", "histogram", edges=REQUEST_SECONDS),
        Family("request_queue_time_seconds", "histogram", edges=REQUEST_SECONDS),
        Family("request_inference_time_seconds", "histogram", edges=REQUEST_SECONDS),
        Family("request_prefill_time_seconds", "histogram", edges=REQUEST_SECONDS),
        Family("request_decode_time_seconds", "histogram", edges=REQUEST_SECONDS),
        Family("request_num_preemptions", "histogram", edges=PREEMPTIONS),
        Family("request_prefill_kv_computed_tokens", "histogram", edges=tokens),
    )


def _one_two_five() -> Iterator[float]:
    power = 1.0
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


@dataclass(slots=True)
class Distribution:
    """A histogram while it is counted. `counts` are those of single buckets, the last above every edge."""

    edges: tuple[float, ...]
    sum: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.edges) + 1)

    def observe(self, value: float) -> None:
        """One more observation."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[int]:
        """Observations up to each edge, and at last all."""
        return accumulate(self.counts)


class Counters:
    """The numbers behind the page of metrics.

    Args:
        settings: of the server.
    """

    def __init__(self, settings: Settings) -> None:
        self.families = families(settings.max_model_len)
        self.numbers: dict[tuple[str, str], float] = {
            (family.name, value): 0.0
            for family in self.families
            if family.kind != "histogram"
            for value in family.values
        }
        self.histograms: Mapping[str, Distribution] = {
            family.name: Distribution(family.edges) for family in self.families if family.kind == "histogram"
        }
        self.numbers["engine_sleep_state", "awake"] = 1.0

    def show(self, scheduler: Scheduler) -> None:
        """Take over what the scheduler tells after a step: the gauges, and the look-ups in the cache."""
        waiting, deferred = len(scheduler.waiting), scheduler.deferred
        self._set("num_requests_running", len(scheduler.running))
        self._set("num_requests_waiting", waiting)
        self._set("num_requests_waiting_by_reason", waiting - deferred, "capacity")
        self._set("num_requests_waiting_by_reason", deferred, "deferred")
        self._set("kv_cache_usage_perc", scheduler.pool.usage)
        self._set("prefix_cache_queries", scheduler.queried)
        self._set("prefix_cache_hits", scheduler.hit)
        self._set("prompt_tokens_cached_by_source", scheduler.hit, "device")

    def refuse(self) -> None:
        """Count a request that was answered with 503."""
        self._add("admission_rejections", 1, "max_num_queued_reqs")

    def count_step(self, tokens: int) -> None:
        """Count a step that put something out: its computed prompt tokens are those of the prompts that it ended."""
        self.histograms["iteration_tokens_total"].observe(tokens)

    def count_token(self, sequence: Sequence, now: float) -> None:
        """Count a token of a request, before the request takes it over.

        A preemption is told along with the first token after it.
        """
        self._add("generation_tokens", 1)
        self._add("num_preemptions", sequence.preemptions - sequence.told)
        if sequence.generated > 0:
            self.histograms["inter_token_latency_seconds"].observe(now - sequence.last)
            return
        request, cached = sequence.request, sequence.cached
        self.histograms["time_to_first_token_seconds"].observe(now - request.sent)
        self._add("prompt_tokens", request.prompt)
        self._add("prompt_tokens_cached", cached)
        self._add("prompt_tokens_by_source", request.prompt - cached, "local_compute")
        self._add("prompt_tokens_by_source", cached, "local_cache_hit")

    def count_end(self, sequence: Sequence) -> None:
        """Count a request that has ended by itself. One that was given up is never counted (0.8 to 0.32)."""
        request, first, last = sequence.request, sequence.first, sequence.last
        self._add("request_success", 1, "length" if sequence.generated == request.most else "stop")
        observations = {
            "request_prompt_tokens": request.prompt,
            "request_generation_tokens": sequence.generated,
            "request_max_num_generation_tokens": sequence.generated,
            "request_params_n": 1,
            "request_params_max_tokens": request.most,
            "request_time_per_output_token_seconds": (last - first) / max(1, sequence.generated - 1),
            "e2e_request_latency_seconds": last - request.sent,
            "request_queue_time_seconds": sequence.scheduled - request.sent,
            "request_inference_time_seconds": last - sequence.scheduled,
            "request_prefill_time_seconds": first - sequence.scheduled,
            "request_decode_time_seconds": last - first,
            "request_num_preemptions": sequence.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt - sequence.cached,
        }
        for name, value in observations.items():
            self.histograms[name].observe(value)

    def _set(self, name: str, number: float, value: str = "") -> None:
        self.numbers[name, value] = number

    def _add(self, name: str, number: float, value: str = "") -> None:
        self.numbers[name, value] += number
