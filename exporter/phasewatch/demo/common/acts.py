"""The acts of a script, which a simulated server repeats endlessly."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from phasewatch.analysis.saturation import SaturationState
from phasewatch.demo.common.workload import Workload


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the cycle. All of its users disconnect at its end.

    Attributes:
        name: short name, shown in the log.
        seconds: its duration.
        state: the state that PhaseWatch must show, at least in the second half of the act.
        about: one sentence that explains what happens.
        workloads: the users during the act.
        paused: whether the server is paused.
    """

    name: str
    seconds: float
    state: SaturationState
    about: str
    workloads: tuple[Workload, ...] = ()
    paused: bool = False


def find_act_in(cycle: Sequence[Act], position: float) -> tuple[Act, float]:
    """The act at a position, and the position at which it ends, both in seconds since the beginning of a cycle."""
    ends = tuple(accumulate(act.seconds for act in cycle))
    cycles, offset = divmod(position, ends[-1])
    index = bisect_right(ends, offset)
    return cycle[index], cycles * ends[-1] + ends[index]
