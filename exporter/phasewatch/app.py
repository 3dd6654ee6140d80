"""Start, reload and stop: wires configuration, scheduler, scrapers and web server on one asyncio loop."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from phasewatch import __version__
from phasewatch.backends import find_backend, list_rules
from phasewatch.base import units
from phasewatch.base.errors import ConfigError
from phasewatch.base.log import get_logger
from phasewatch.config.resolve import choose_model_probe, load_config_or_default
from phasewatch.config.settings import Config, Target
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.scrape.scraper import Scraper
from phasewatch.snapshot.target import TargetSnapshot
from phasewatch.web.landing.load_history import LoadHistory
from phasewatch.web.routes import View, create_app
from phasewatch.web.security import WebConfig
from phasewatch.web.server import create_server, format_address

CLOCK_CHECK_SECONDS: Final = 1.0

HISTORY_SECONDS: Final = 1.0
"""Between two looks at what is shown, for the charts."""


@dataclass(frozen=True)
class ServeSettings:
    """The flags of `serve`, parsed."""

    config_file: Path | None
    host: str
    port: int
    enable_lifecycle: bool
    web: WebConfig


class Exporter:
    """The running exporter: a scraper for each target, and its jobs on a scheduler.

    Args:
        config_file: read again by `reload`; None for the defaults.
        config: what that file says now.
    """

    def __init__(self, config_file: Path | None, config: Config) -> None:
        self._config_file = config_file
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        self._scheduler.add_listener(self._count_missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        self._scrapers: dict[str, Scraper] = {}
        self.history = LoadHistory()
        self._missed = 0
        self._reloaded = True
        self._reload_time = time.time()
        self._closing: set[asyncio.Task[None]] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._apply(config)

    def start(self) -> None:
        """Begin to scrape, at once."""
        self._scheduler.start()
        loop = asyncio.get_running_loop()
        self._watches = [loop.create_task(self._watch_clock()), loop.create_task(self._record_history())]

    async def stop(self) -> None:
        """Stop scraping; scrapes under way are given up."""
        for watch in self._watches:
            watch.cancel()
        self._scheduler.shutdown(wait=False)
        await asyncio.gather(*(scraper.close() for scraper in self._scrapers.values()), *self._closing)

    def view(self) -> tuple[SelfStatus, Sequence[TargetSnapshot]]:
        """What /metrics shows now."""
        status = SelfStatus(__version__, self._reloaded, self._reload_time, self._missed)
        return status, self._shown()

    def _shown(self) -> list[TargetSnapshot]:
        return [scraper.get_snapshot() for scraper in self._scrapers.values()]

    def probes(self, target: str, model: str) -> bool:
        """Whether the operator wants a model of a target to be probed."""
        scraper = self._scrapers.get(target)
        if scraper is None:
            return True
        probe = scraper.target.probe
        return probe.enabled and choose_model_probe(probe, model).enabled

    def reload(self) -> None:
        """Read the configuration again. Targets that did not change keep what is known of them.

        Raises:
            ConfigError: it is invalid; the one before stays in force.
        """
        self._reloaded = False
        try:
            config = load_config_or_default(self._config_file, list_rules())
        except ConfigError as error:
            for problem in error.problems:
                get_logger().error("configuration not reloaded", key=problem.path, error=problem.message)
            raise
        self._apply(config)
        self._reloaded = True
        self._reload_time = time.time()
        get_logger().info("configuration reloaded", targets=len(config.targets))

    async def _watch_clock(self) -> None:
        """APScheduler plans on the wall clock: when that is set back by an hour, it would pause for an hour."""
        ahead = time.time() - time.monotonic()
        while True:
            await asyncio.sleep(CLOCK_CHECK_SECONDS)
            before, ahead = ahead, time.time() - time.monotonic()
            if ahead < before - CLOCK_CHECK_SECONDS:
                get_logger().warning("the clock was set back", by=units.format_duration(before - ahead))
                self.scrape_now()

    async def _record_history(self) -> None:
        while True:
            self.history.record(self._shown(), time.monotonic())
            await asyncio.sleep(HISTORY_SECONDS)

    def scrape_now(self) -> None:
        """Run every job at once and plan the next ones from there."""
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=datetime.now(UTC))

    def _apply(self, config: Config) -> None:
        for problem in config.notes:
            get_logger().warning("configuration", key=problem.path, note=problem.message)
        kept = {name: scraper for name, scraper in self._scrapers.items() if scraper.target in config.targets}
        for name, scraper in self._scrapers.items():
            if name not in kept:
                self._unschedule(scraper)
        self.history.keep(kept)
        self._scrapers = {target.name: kept.get(target.name) or self._schedule(target) for target in config.targets}

    def _schedule(self, target: Target) -> Scraper:
        scraper = find_backend(target.backend).create_scraper(target, time.monotonic, time.time)
        if target.name in self._scrapers:
            scraper.take_over(self._scrapers[target.name])
        now = datetime.now(UTC)
        for job in scraper.list_jobs():
            every = IntervalTrigger(seconds=job.seconds, timezone=UTC)
            self._scheduler.add_job(job.run, every, id=_job(job.kind, scraper), next_run_time=now)
        return scraper

    def _unschedule(self, scraper: Scraper) -> None:
        for job in scraper.list_jobs():
            self._scheduler.remove_job(_job(job.kind, scraper))
        task = asyncio.get_running_loop().create_task(scraper.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _count_missed(self, event: Any) -> None:
        if event.job_id.startswith("scrape "):
            self._missed += 1


def _job(kind: str, scraper: Scraper) -> str:
    """A target that a reload has changed gets new jobs at once, while the old scraper's are still being given up."""
    return f"{kind} {id(scraper)}"


async def serve(
    settings: ServeSettings, config: Config, bound: socket.socket, *, notice: str = "", hangup_ends: bool = False
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        settings: the flags.
        config: what the configuration file says.
        bound: the listening socket, see `bind`.
        notice: a sentence for a banner on the landing page; empty for none.
        hangup_ends: whether SIGHUP, which a closed terminal sends, ends it as well instead of reading the file again.
    """
    exporter = Exporter(settings.config_file, config)
    ready = asyncio.Event()
    view = View(
        metrics=exporter.view,
        reload=exporter.reload,
        ready=ready.is_set,
        history=exporter.history,
        probes=exporter.probes,
        notice=notice,
    )
    server = create_server(create_app(view, enable_lifecycle=settings.enable_lifecycle), settings.web)

    def stop() -> None:
        ready.clear()
        server.should_exit = True

    def reload() -> None:
        with contextlib.suppress(ConfigError):  # logged and counted by the exporter
            exporter.reload()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, stop if hangup_ends else reload)
    exporter.start()
    ready.set()
    get_logger().info(
        "listening",
        version=__version__,
        address=format_address(settings.host, settings.port, settings.web),
        config=str(settings.config_file or "none, built-in defaults"),
        targets=len(config.targets),
    )
    try:
        await server.serve(sockets=[bound])
    finally:
        await exporter.stop()
    get_logger().info("stopped")
