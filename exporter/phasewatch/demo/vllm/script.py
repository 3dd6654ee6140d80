"""The script of the simulated vLLM: a cycle of a few minutes that visits every saturation state."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.saturation import SaturationState
from phasewatch.demo.common.acts import Act, find_act_in
from phasewatch.demo.common.workload import Workload

_CHAT: Final = Workload(
    users=8, think_seconds=3.0, prompt=(250, 900), output=(80, 350), max_tokens=350, shared_prefix=192
)

CYCLE: Final = (
    Act(
        "everyday chat",
        30.0,
        SaturationState.HEALTHY,
        "A few people chat; their prompts begin alike, so a part of each is found in the cache.",
        (_CHAT,),
    ),
    Act(
        "more people than slots",
        30.0,
        SaturationState.CONCURRENCY_LIMITED,
        "Forty people share 24 slots (--max-num-seqs); the KV cache is nearly empty while they queue.",
        (Workload(users=40, think_seconds=0.5, prompt=(200, 500), output=(120, 260), max_tokens=400),),
    ),
    Act(
        "structured answers",
        30.0,
        SaturationState.DEFERRED,
        "Programs ask for JSON, each with a schema of its own: requests wait for their grammar, not for the device.",
        (
            Workload(users=4, think_seconds=3.0, prompt=(250, 900), output=(80, 350), max_tokens=350),
            Workload(
                users=12,
                think_seconds=1.0,
                prompt=(300, 700),
                output=(30, 90),
                max_tokens=200,
                grammar_seconds=(4.0, 9.0),
            ),
        ),
    ),
    Act(
        "reading documents",
        35.0,
        SaturationState.PREFILL_LIMITED,
        "Long prompts, each unlike the others, and answers of a few words: every step is full of prompt tokens.",
        (Workload(users=24, think_seconds=0.5, prompt=(1500, 2500), output=(4, 12), max_tokens=16),),
    ),
    Act(
        "long contexts",
        35.0,
        SaturationState.KV_CACHE_FULL,
        "Each prompt takes a tenth of the KV cache: slots are free, and no further prompt finds room.",
        (Workload(users=20, think_seconds=0.5, prompt=(4690, 4740), output=(280, 320), max_tokens=320),),
    ),
    Act(
        "long answers",
        40.0,
        SaturationState.PREEMPTING,
        "Answers grow until the KV cache overflows: running requests are thrown out and computed again later.",
        (
            # These hold most of the cache throughout; the others share what is left, and are certain to overflow it.
            Workload(users=6, think_seconds=0.5, prompt=(6600, 6690), output=(1400, 1500), max_tokens=1500),
            Workload(users=32, think_seconds=0.5, prompt=(500, 700), output=(100, 300), max_tokens=400),
        ),
    ),
    Act(
        "a flood",
        30.0,
        SaturationState.SHEDDING,
        "More comes than the queue may hold (--max-num-queued-reqs): the server answers 503 to the rest.",
        (Workload(users=50, per_second=12.0, think_seconds=0.5, prompt=(200, 500), output=(120, 260), max_tokens=400),),
    ),
    Act(
        "paused",
        70.0,
        SaturationState.STUCK,
        "Somebody has paused the server and forgotten it: requests wait, nothing runs, and /health says 200.",
        (Workload(users=12, think_seconds=2.0, prompt=(250, 900), output=(80, 350), max_tokens=350),),
        paused=True,
    ),
    Act("nobody", 40.0, SaturationState.IDLE, "Nobody is there."),
)
"""The acts in order, repeated endlessly. The order matters: preemptions and rejections affect the state for another
15 s, so each is followed by an act whose state takes precedence, or by one that lasts long enough."""

CYCLE_SECONDS: Final = sum(act.seconds for act in CYCLE)

METRICS_TO_WATCH: Final[Mapping[SaturationState, tuple[str, ...]]] = {
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
"""The exporter's metrics that show why a server is in a state."""


def find_act(position: float) -> tuple[Act, float]:
    """The act at a position, and the position at which it ends, both in seconds since the beginning of a cycle."""
    return find_act_in(CYCLE, position)
