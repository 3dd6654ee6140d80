"""Simulated time: an asyncio loop whose clock jumps to the next timer whenever everything waits.

`asyncio.sleep`, `asyncio.timeout` and `call_later` all run on it, so an hour passes as fast as the code in it runs, and
twice the same way. Nothing real may be waited for: no sockets, no threads.
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
"""What the clock shows first: as on a machine that has been up for a while, nothing can mistake it for "never"."""

EPOCH: Final = 1_795_920_411_084_286_959
"""Unix nanoseconds at which the clock showed 0; simulations start on 2026-11-29 at 16:40:11 UTC."""


class Timeline:
    """A clock, and the loop that moves it."""

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
        """Let simulated time pass."""
        await asyncio.sleep(seconds)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run to the end, however long that is in simulated time. What still runs then is cancelled.

        Raises:
            RuntimeError: everything waits, and for nothing that will come.
        """
        with asyncio.Runner(loop_factory=lambda: _Loop(self.clock, self._pass)) as runner:
            return runner.run(work)

    def _pass(self, seconds: float) -> None:
        self._now += seconds


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Callable[[], float], pass_time: Callable[[float], None]) -> None:
        super().__init__(_Selector(pass_time))
        self._clock = clock

    def time(self) -> float:
        return self._clock()

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002  # there is none
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Threads take no simulated time: what would run in one runs at once."""
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
        """What is ready now; instead of waiting for more, let the time pass."""
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits, and for nothing that will come")
            self._pass_time(timeout)
        return ready
