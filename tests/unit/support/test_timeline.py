"""Simulated time advances when all tasks wait, and only then."""

import asyncio

import pytest

from tests.support.timeline import START, Timeline


def test_an_hour_of_sleep_advances_both_clocks_by_an_hour() -> None:
    timeline = Timeline()
    wall = timeline.wall_clock()
    timeline.run(timeline.sleep(3600))
    assert timeline.clock() == START + 3600
    assert timeline.wall_clock() - wall == pytest.approx(3600, abs=1e-5)


def test_sleeping_tasks_wake_in_the_order_of_their_times() -> None:
    timeline = Timeline()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await timeline.sleep(seconds)
        woken.append((name, timeline.clock() - START))

    async def both() -> None:
        await asyncio.gather(sleeper("late", 100), sleeper("early", 1))

    timeline.run(both())
    assert woken == [("early", 1), ("late", 100)]


def test_a_timeout_is_in_simulated_time() -> None:
    timeline = Timeline()

    async def impatient() -> None:
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        timeline.run(impatient())
    assert timeline.clock() == START + 5


def test_work_in_a_thread_takes_no_simulated_time_and_propagates_its_errors() -> None:
    timeline = Timeline()

    async def work() -> int:
        pending = asyncio.create_task(timeline.sleep(1))
        with pytest.raises(ValueError, match="nonsense"):
            await asyncio.to_thread(int, "nonsense")
        result = await asyncio.to_thread(int, "7")
        assert not pending.done()
        pending.cancel()
        return result

    assert timeline.run(work()) == 7
    assert timeline.clock() == START


def test_waiting_without_a_pending_timer_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="everything waits"):
        Timeline().run(asyncio.wait_for(_never(), None))


async def _never() -> None:
    await asyncio.Event().wait()


def test_the_clock_continues_from_one_run_to_the_next() -> None:
    timeline = Timeline()
    for _ in range(2):
        timeline.run(timeline.sleep(10))
    assert timeline.clock() == START + 20


def test_the_clock_in_nanoseconds_is_exact() -> None:
    timeline = Timeline()
    timeline.run(timeline.sleep(0.000_000_123))
    assert timeline.nanoseconds() == round(START * 1e9) + 123
