"""The script of the simulated llama-server: chats, more people than slots, and long prompts beside streams."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.saturation import SaturationState
from phasewatch.demo.common.acts import Act
from phasewatch.demo.common.workload import Workload

LLAMA_CYCLE: Final = (
    Act(
        "three people chat",
        40.0,
        SaturationState.HEALTHY,
        "Three people chat; a slot is free for whoever comes next.",
        (Workload(users=3, think_seconds=1.0, prompt=(150, 500), output=(150, 300), max_tokens=400),),
    ),
    Act(
        "more people than slots",
        40.0,
        SaturationState.CONCURRENCY_LIMITED,
        "Nine people share four slots (--parallel); the others wait, and no slot is near the end of its context.",
        (Workload(users=9, think_seconds=0.5, prompt=(100, 300), output=(100, 200), max_tokens=400),),
    ),
    Act(
        "a long document",
        40.0,
        SaturationState.HEALTHY,
        "Long prompts come beside two streams, which stand still for seconds while each batch of one is computed.",
        (
            Workload(users=2, think_seconds=0.5, prompt=(100, 300), output=(600, 900), max_tokens=1000),
            Workload(users=1, think_seconds=6.0, prompt=(3000, 5000), output=(30, 60), max_tokens=100),
        ),
    ),
    Act(
        "nobody",
        15.0,
        SaturationState.HEALTHY,
        "Nobody is there: PhaseWatch soon leaves the server alone, so that it could sleep, and shows no figures.",
    ),
)
"""The acts in order, repeated endlessly. A server without requests for three scrapes is left alone for 15 s, and for
twice as long if nobody has come by then: the last act is too short for that, so that people are seen as they come."""

LLAMA_CYCLE_SECONDS: Final = sum(act.seconds for act in LLAMA_CYCLE)

LLAMA_METRICS_TO_WATCH: Final[Mapping[str, tuple[str, ...]]] = {
    "three people chat": ("llm_decode_tokens_per_second", "llm_decode_ceiling_ratio"),
    "more people than slots": ("llm_requests_running", "llm_requests_waiting"),
    "a long document": ("llm_prefill_throughput_tokens_per_second", "llm_decode_tokens_per_second"),
    "nobody": ("llm_requests_running",),
}
"""The exporter's metrics that show what happens in an act, by its name."""
