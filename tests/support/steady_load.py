"""The window of a vLLM engine under a steady load, built from the numbers that a published benchmark reports."""

from dataclasses import dataclass, replace

from phasewatch.analysis.ceiling import Ceiling, compute_ceiling
from phasewatch.analysis.phases import compute_phases
from phasewatch.analysis.queue import measure_load
from phasewatch.analysis.samples import EngineKey, EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory
from phasewatch.backends.page_state import PageContext
from phasewatch.backends.vllm.totals import PAGE_RULES
from phasewatch.config.settings import ServerSettings
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.costs import ModelCosts

CAPACITY = 1_000_000
"""Tokens in the KV cache."""


@dataclass(frozen=True)
class Steady:
    """A load that does not change during the window.

    Attributes:
        streams: decoding streams.
        steps_per_second: engine steps per second.
        tokens_per_step: tokens per step and stream.
        context: tokens that each stream holds in the KV cache.
        prompts: prompts that got their first token in the window.
        prompt: tokens per prompt.
        cached: tokens per prompt that came from the prefix cache.
        seconds: length of the window.
        flops, read_bytes: vLLM's own estimates per GPU and second; None if it reports none.
    """

    streams: float = 1.0
    steps_per_second: float = 0.0
    tokens_per_step: float = 1.0
    context: float = 0.0
    prompts: float = 0.0
    prompt: float = 0.0
    cached: float = 0.0
    seconds: float = 10.0
    flops: float | None = None
    read_bytes: float | None = None

    def history(self) -> EngineHistory:
        """The two ends of the window."""
        gauges = EngineSample(
            requests_running=self.streams,
            kv_cache_usage=self.streams * self.context / CAPACITY,
            cache_config={"kv_cache_size_tokens": str(CAPACITY)},
        )
        return EngineHistory((0.0, self.seconds), (self._at(gauges, 0.0), self._at(gauges, self.seconds)), frozenset())

    def _at(self, gauges: EngineSample, time: float) -> EngineSample:
        steps, prompts = self.steps_per_second * time, self.prompts * time / self.seconds
        outputs = self.streams * steps
        computed = prompts * (self.prompt - self.cached)
        return EngineSample(
            requests_running=gauges.requests_running,
            kv_cache_usage=gauges.kv_cache_usage,
            cache_config=gauges.cache_config,
            prompt_tokens=prompts * self.prompt,
            prompt_tokens_computed=computed,
            generation_tokens=outputs * self.tokens_per_step + prompts,
            iteration_tokens=Histogram(0.0, steps),
            time_to_first_token=Histogram(0.0, prompts),
            inter_token_latency=Histogram(self.streams * time if steps else 0.0, outputs),
            prefill_time=Histogram(prompts, prompts),
            request_computed_tokens=Histogram(computed, prompts),
            estimated_flops_per_gpu=None if self.flops is None else self.flops * time,
            estimated_read_bytes_per_gpu=None if self.read_bytes is None else self.read_bytes * time,
        )


def measured(
    past: EngineHistory, device: DeviceFacts, model: ModelCosts, *, engines: int = 1, one_api_server: bool = True
) -> Ceiling:
    """The ceiling metrics over a window of a vLLM."""
    newest = replace(past.newest, created=1.0 if one_api_server else None)
    page = Page(None, False, {EngineKey("m", "0"): newest})
    context = PageContext(page, newest, ServerSettings(), "0.32.0", None)
    return compute_ceiling(
        past,
        compute_phases(PAGE_RULES.measure_totals(past, context)),
        measure_load(past, PAGE_RULES.read_kv_cache_size(context)),
        device,
        model,
        engines=engines,
        interval_steps=PAGE_RULES.count_interval_steps(past, context),
    )
