"""Starts, reloads and stops the exporter: configuration, scheduler, scrapers and web server on one asyncio loop."""

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
"""Interval at which the wall clock is compared with the monotonic clock, and the smallest step that counts."""

HISTORY_INTERVAL_SECONDS: Final = 1.0
"""Interval at which snapshots are recorded for the charts."""


@dataclass(frozen=True)
class ServeSettings:
    """Settings from the flags of `serve`.

    Attributes:
        config_file: the configuration file; None for the defaults.
        host: name or address to listen on; empty for all addresses.
        port: port to listen on.
        enable_lifecycle: whether `POST /-/reload` is allowed.
        web: TLS and authentication.
    """

    config_file: Path | None
    host: str
    port: int
    enable_lifecycle: bool
    web: WebConfig


class Exporter:
    """The running exporter: a scraper for each target, with its jobs on a scheduler.

    Args:
        config_file: read again by `reload`; None for the defaults.
        config: the present content of that file.
    """

    def __init__(self, config_file: Path | None, config: Config) -> None:
        self._config_file = config_file
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        self._scheduler.add_listener(self._count_missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        self._scrapers: dict[str, Scraper] = {}
        self.history = LoadHistory()
        self._scrapes_missed = 0
        self._reload_successful = True
        self._reload_time = time.time()
        self._closing: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._apply(config)

    def start(self) -> None:
        """Start scraping, beginning at once."""
        self._scheduler.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch_clock()), loop.create_task(self._record_history())]

    async def stop(self) -> None:
        """Stop scraping; scrapes in progress are abandoned."""
        for task in self._tasks:
            task.cancel()
        self._scheduler.shutdown(wait=False)
        await asyncio.gather(*(scraper.close() for scraper in self._scrapers.values()), *self._closing)

    def collect_snapshots(self) -> tuple[SelfStatus, Sequence[TargetSnapshot]]:
        """Collect the exporter's status and the newest snapshot of every target."""
        status = SelfStatus(__version__, self._reload_successful, self._reload_time, self._scrapes_missed)
        return status, self._list_snapshots()

    def _list_snapshots(self) -> list[TargetSnapshot]:
        return [scraper.get_snapshot() for scraper in self._scrapers.values()]

    def is_probed(self, target: str, model: str) -> bool:
        """Whether a model of a target is configured to be probed."""
        scraper = self._scrapers.get(target)
        if scraper is None:
            return True
        probe = scraper.target.probe
        return probe.enabled and choose_model_probe(probe, model).enabled

    def reload(self) -> None:
        """Read the configuration again. Unchanged targets keep their state.

        Raises:
            ConfigError: it is invalid; the previous one stays in force.
        """
        self._reload_successful = False
        try:
            config = load_config_or_default(self._config_file, list_rules())
        except ConfigError as error:
            for problem in error.problems:
                get_logger().error("configuration not reloaded", key=problem.path, error=problem.message)
            raise
        self._apply(config)
        self._reload_successful = True
        self._reload_time = time.time()
        get_logger().info("configuration reloaded", targets=len(config.targets))

    async def _watch_clock(self) -> None:
        """Reschedule when the wall clock is set back: APScheduler uses it, and would pause for that long."""
        offset = time.time() - time.monotonic()
        while True:
            await asyncio.sleep(CLOCK_CHECK_SECONDS)
            previous, offset = offset, time.time() - time.monotonic()
            if offset < previous - CLOCK_CHECK_SECONDS:
                get_logger().warning("the clock was set back", by=units.format_duration(previous - offset))
                self.scrape_now()

    async def _record_history(self) -> None:
        while True:
            self.history.record(self._list_snapshots(), time.monotonic())
            await asyncio.sleep(HISTORY_INTERVAL_SECONDS)

    def scrape_now(self) -> None:
        """Run every job at once and schedule the next runs from there."""
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
            trigger = IntervalTrigger(seconds=job.seconds, timezone=UTC)
            self._scheduler.add_job(job.run, trigger, id=_create_job_id(job.kind, scraper), next_run_time=now)
        return scraper

    def _unschedule(self, scraper: Scraper) -> None:
        for job in scraper.list_jobs():
            self._scheduler.remove_job(_create_job_id(job.kind, scraper))
        task = asyncio.get_running_loop().create_task(scraper.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _count_missed(self, event: Any) -> None:
        if event.job_id.startswith("scrape "):
            self._scrapes_missed += 1


def _create_job_id(kind: str, scraper: Scraper) -> str:
    """Create a job id that is unique per scraper: a reload schedules a changed target while its old scraper closes."""
    return f"{kind} {id(scraper)}"


async def serve(
    settings: ServeSettings, config: Config, bound: socket.socket, *, notice: str = "", hangup_ends: bool = False
) -> None:
    """Run the exporter until SIGTERM or SIGINT.

    Args:
        settings: settings from the flags.
        config: the configuration.
        bound: the listening socket, see `bind`.
        notice: a sentence for a banner on the landing page; empty for none.
        hangup_ends: whether SIGHUP, sent by a closing terminal, stops the exporter instead of reloading.
    """
    exporter = Exporter(settings.config_file, config)
    ready = asyncio.Event()
    view = View(
        collect_snapshots=exporter.collect_snapshots,
        reload=exporter.reload,
        is_ready=ready.is_set,
        history=exporter.history,
        is_probed=exporter.is_probed,
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
