"""What to look at while a simulated vLLM is in a state: metrics that show why it is the one."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.saturation import State

LOOK_AT: Final[Mapping[State, tuple[str, ...]]] = {
    State.IDLE: ("llm_requests_running",),
    State.HEALTHY: ("llm_decode_tokens_per_second", "llm_decode_ceiling_ratio"),
    State.KV_CACHE_FULL: ("llm_kv_cache_usage_ratio", "llm_requests_waiting"),
    State.PREEMPTING: ("llm_preemptions_per_second", "llm_kv_cache_usage_ratio_peak"),
    State.CONCURRENCY_LIMITED: ("llm_requests_running", "llm_requests_waiting", "llm_kv_cache_usage_ratio"),
    State.PREFILL_LIMITED: ("llm_prefill_throughput_tokens_per_second", "llm_step_tokens", "llm_requests_waiting"),
    State.DEFERRED: ("llm_requests_waiting", "llm_kv_cache_usage_ratio"),
    State.STUCK: ("llm_decode_throughput_tokens_per_second", "llm_requests_running", "llm_requests_waiting"),
    State.SHEDDING: ("llm_requests_running", "llm_requests_waiting"),
}
