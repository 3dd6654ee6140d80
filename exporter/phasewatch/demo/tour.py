"""What to look at while a simulated vLLM is in a state: metrics that show why it is the one."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.saturation import SaturationState

LOOK_AT: Final[Mapping[SaturationState, tuple[str, ...]]] = {
    SaturationState.IDLE: ("llm_requests_running",),
    SaturationState.HEALTHY: ("llm_decode_tokens_per_second", "llm_decode_ceiling_ratio"),
    SaturationState.KV_CACHE_FULL: ("llm_kv_cache_usage_ratio", "llm_requests_waiting"),
    SaturationState.PREEMPTING: ("llm_preemptions_per_second", "llm_kv_cache_usage_ratio_peak"),
    SaturationState.CONCURRENCY_LIMITED: ("llm_requests_running", "llm_requests_waiting", "llm_kv_cache_usage_ratio"),
    SaturationState.PREFILL_LIMITED: (
        "llm_prefill_throughput_tokens_per_second",
        "llm_step_tokens",
        "llm_requests_waiting",
    ),
    SaturationState.DEFERRED: ("llm_requests_waiting", "llm_kv_cache_usage_ratio"),
    SaturationState.STUCK: ("llm_decode_throughput_tokens_per_second", "llm_requests_running", "llm_requests_waiting"),
    SaturationState.SHEDDING: ("llm_requests_running", "llm_requests_waiting"),
}
