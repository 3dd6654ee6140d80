"""The scripted cycle of the simulated vLLM: a few minutes that pass through every state that a vLLM can be in."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from phasewatch.analysis.saturation import State
from phasewatch.demo.vllm.workload import Workload


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the cycle. At its end all of its users leave.

    Attributes:
        name: of what happens.
        seconds: how long it lasts.
        state: that PhaseWatch is to show, at least in its second half.
        about: a sentence for people.
        workloads: who uses the server meanwhile.
        paused: whether the server is paused.
    """

    name: str
    seconds: float
    state: State
    about: str
    workloads: tuple[Workload, ...] = ()
    paused: bool = False


_CHAT: Final = Workload(users=8, think=3.0, prompt=(250, 900), output=(80, 350), most=350, shared=192)

CYCLE: Final = (
    Act(
        "everyday chat",
        30.0,
        State.HEALTHY,
        "A few people chat; their prompts begin alike, so a part of each is found in the cache.",
        (_CHAT,),
    ),
    Act(
        "more people than slots",
        30.0,
        State.CONCURRENCY_LIMITED,
        "Forty people share 24 slots (--max-num-seqs); the KV cache is nearly empty while they queue.",
        (Workload(users=40, think=0.5, prompt=(200, 500), output=(120, 260), most=400),),
    ),
    Act(
        "structured answers",
        30.0,
        State.DEFERRED,
        "Programs ask for JSON, each with a schema of its own: requests wait for their grammar, not for the device.",
        (
            Workload(users=4, think=3.0, prompt=(250, 900), output=(80, 350), most=350),
            Workload(users=12, think=1.0, prompt=(300, 700), output=(30, 90), most=200, grammar=(4.0, 9.0)),
        ),
    ),
    Act(
        "reading documents",
        35.0,
        State.PREFILL_LIMITED,
        "Long prompts, each unlike the others, and answers of a few words: every step is full of prompt tokens.",
        (Workload(users=24, think=0.5, prompt=(1500, 2500), output=(4, 12), most=16),),
    ),
    Act(
        "long contexts",
        35.0,
        State.KV_CACHE_FULL,
        "Each prompt takes a tenth of the KV cache: slots are free, and no further prompt finds room.",
        (Workload(users=20, think=0.5, prompt=(4690, 4740), output=(280, 320), most=320),),
    ),
    Act(
        "long answers",
        40.0,
        State.PREEMPTING,
        "Answers grow until the KV cache overflows: running requests are thrown out and computed again later.",
        (
            # These hold most of the cache to the end; the others come and go in what is left, and overflow it for sure.
            Workload(users=6, think=0.5, prompt=(6600, 6690), output=(1400, 1500), most=1500),
            Workload(users=32, think=0.5, prompt=(500, 700), output=(100, 300), most=400),
        ),
    ),
    Act(
        "a flood",
        30.0,
        State.SHEDDING,
        "More comes than the queue may hold (--max-num-queued-reqs): the server answers 503 to the rest.",
        (Workload(users=50, per_second=12.0, think=0.5, prompt=(200, 500), output=(120, 260), most=400),),
    ),
    Act(
        "paused",
        70.0,
        State.STUCK,
        "Somebody has paused the server and forgotten it: requests wait, nothing runs, and /health says 200.",
        (Workload(users=12, think=2.0, prompt=(250, 900), output=(80, 350), most=350),),
        paused=True,
    ),
    Act("nobody", 40.0, State.IDLE, "Nobody is there."),
)
"""Acts in the order in which they follow each other, for ever. The order matters: preemptions and refusals are
remembered for 15 s, so they are followed by what goes before them, or lasts."""

CYCLE_SECONDS: Final = sum(act.seconds for act in CYCLE)


def act_at(position: float) -> tuple[Act, float]:
    """The act at a position in the endless row of cycles, in seconds from the beginning of one, and when it ends."""
    cycles, within = divmod(position, CYCLE_SECONDS)
    start = cycles * CYCLE_SECONDS
    ends = tuple(accumulate(act.seconds for act in CYCLE))
    index = bisect_right(ends, within)
    return CYCLE[index], start + ends[index]
