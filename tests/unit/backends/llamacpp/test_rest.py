"""A server that may sleep is left to fall asleep and never woken; one that never sleeps is read normally in the end."""

import asyncio

from phasewatch.backends.llamacpp.rest import FIRST_PAUSE, LONGEST_PAUSE, Rest, record_full_read, should_rest
from phasewatch.backends.llamacpp.scraper import LlamacppScraper
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer
from tests.support.targets import new_target


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def observe(server: ScriptedLlamaServer, seconds: float, interval: float) -> dict[float, list[str]]:
    """The paths that were read at each scrape."""
    clock = Clock()
    asked: dict[float, list[str]] = {}

    async def work() -> None:
        target = new_target("t", "llamacpp", "http://a.invalid")
        scraper = LlamacppScraper(target, clock, lambda: 1.7e9, server.create_transport(clock))
        while clock.now < seconds:
            server.asked.clear()
            await scraper.scrape()
            asked[clock.now] = list(server.asked)
            assert scraper.get_snapshot().up
            clock.now += interval
        await scraper.close()

    asyncio.run(work())
    return asked


def is_full(paths: list[str]) -> bool:
    return "/metrics" in paths or "/slots" in paths


def test_a_server_with_a_sleep_setting_falls_asleep_and_is_never_woken() -> None:
    for sleep_after, interval in ((8.0, 1.0), (30.0, 1.0), (8.0, 15.0), (60.0, 5.0), (180.0, 5.0), (400.0, 15.0)):
        server = ScriptedLlamaServer((Job(2.0, 3.0, 100, 0.05),), sleep_after=sleep_after)
        asked = observe(server, 5 * sleep_after + 300, interval)
        assert server.slept, (sleep_after, interval)
        assert server.wakes == 0, (sleep_after, interval)
        alone = [time for time, paths in asked.items() if not is_full(paths)]
        assert len(alone) > 0.5 * len(asked), (sleep_after, interval)


def test_a_server_that_sleeps_is_left_alone_after_each_of_its_requests_too() -> None:
    jobs = tuple(Job(t, t + 1, 100, 0.05) for t in range(2, 1500, 400))
    server = ScriptedLlamaServer(jobs, sleep_after=60.0)
    asked = observe(server, 1500.0, 1.0)
    assert server.wakes == 0
    for job in jobs[1:]:
        assert is_full(asked[float(round(job.begin + 2))]), job


def test_a_server_without_the_setting_is_read_at_every_scrape_after_a_bounded_time() -> None:
    asked = observe(ScriptedLlamaServer(), 3000.0, 5.0)
    assert all(is_full(paths) for time, paths in asked.items() if time > 2 * LONGEST_PAUSE + 120)


def test_a_build_that_cannot_sleep_is_read_at_every_scrape() -> None:
    asked = observe(ScriptedLlamaServer(can_sleep=False), 120.0, 1.0)
    assert all(is_full(paths) for paths in asked.values())


def test_a_server_with_requests_is_read_at_every_scrape() -> None:
    server = ScriptedLlamaServer((Job(0.0, 1.0, 4000, 0.05),), sleep_after=8.0)
    asked = observe(server, 190.0, 1.0)
    assert all(is_full(paths) for paths in asked.values())


def test_a_server_that_was_settled_and_starts_anew_is_left_alone_again() -> None:
    """It may have got the setting."""
    clock = Clock()
    server = ScriptedLlamaServer()

    async def work() -> None:
        target = new_target("t", "llamacpp", "http://a.invalid")
        scraper = LlamacppScraper(target, clock, lambda: 1.7e9, server.create_transport(clock))
        while clock.now < 2400:
            await scraper.scrape()
            clock.now += 5.0
        server.start, server.sleep_after, server.touched = "2000", 60.0, clock.now
        while clock.now < 3000:
            await scraper.scrape()
            clock.now += 5.0
        await scraper.close()

    asyncio.run(work())
    assert server.slept
    assert server.wakes == 0


def test_a_pause_begins_after_idle_scrapes_only_and_doubles() -> None:
    pauses: list[float] = []
    rest, now = Rest(), 0.0
    while len(pauses) < 4:
        if should_rest(rest, now, can_sleep=True):
            pauses[-1:] = [rest.pause] if pauses and pauses[-1] == rest.pause else [*pauses[-1:], rest.pause]
        else:
            rest = record_full_read(rest, now, idle=True)
        now += 1.0
    assert pauses == [FIRST_PAUSE * 2**n for n in range(4)]
