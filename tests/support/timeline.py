"""Simulated time: an asyncio event loop whose clock jumps to the next timer whenever all tasks wait.

`asyncio.sleep`, `asyncio.timeout` and `call_later` all use it, so an hour passes as fast as its code runs, and every
run is the same. Nothing real may be awaited: no sockets, no threads.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from phasewatch.demo.ollama.go_time import SECOND

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

START: Final = 50_000.0
"""First value of the clock, as on a machine that has been up for a while: 0 could be taken for "never"."""

EPOCH: Final = 1_795_920_411_084_286_959
"""Unix nanoseconds at which the clock was 0, 2026-11-29 02:46:51 UTC; simulations begin `START` seconds later."""


class Timeline:
    """A clock and the event loop that advances it."""

    def __init__(self) -> None:
        self._now = START

    def clock(self) -> float:
        """Monotonic seconds."""
        return self._now

    def wall_clock(self) -> float:
        """Unix seconds."""
        return EPOCH / SECOND + self._now

    def nanoseconds(self) -> int:
        """The clock in nanoseconds."""
        return round(self._now * SECOND)

    async def sleep(self, seconds: float) -> None:
        """Sleep in simulated time."""
        await asyncio.sleep(seconds)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to completion, however long that takes in simulated time, and cancel all other tasks.

        Raises:
            RuntimeError: all tasks wait and no timer is pending.
        """
        with asyncio.Runner(loop_factory=lambda: _Loop(self.clock, self._pass_time)) as runner:
            return runner.run(work)

    def _pass_time(self, seconds: float) -> None:
        self._now += seconds


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Callable[[], float], pass_time: Callable[[float], None]) -> None:
        super().__init__(_Selector(pass_time))
        self._clock = clock

    def time(self) -> float:
        return self._clock()

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002  # everything runs in the loop
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Run the function at once: threads take no simulated time."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # it belongs to whoever awaits the future
            future.set_exception(error)
        return future


class _Selector(selectors.SelectSelector):
    def __init__(self, pass_time: Callable[[float], None]) -> None:
        super().__init__()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; if nothing is, advance the clock instead of waiting."""
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits, and for nothing that will come")
            self._pass_time(timeout)
        return ready
