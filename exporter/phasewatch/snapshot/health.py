"""Health of a target: counters and errors that each scrape, successful or not, updates."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.base.errors import Reason, ScrapeError


@dataclass(frozen=True, slots=True)
class ScrapeTiming:
    """Times of a scrape.

    Attributes:
        sent: monotonic seconds at which the request was sent.
        done: monotonic seconds at which the scrape ended.
        wall: Unix time at `done`; None if unknown.
    """

    sent: float
    done: float
    wall: float | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """The present run of failed scrapes of a target.

    Attributes:
        since: monotonic seconds at which the first of them ended.
        failures: failed scrapes so far.
        reason: reason of the newest failure.
        message: message of the newest failure.
    """

    since: float
    failures: int
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """Results of a target's scrapes.

    Attributes:
        answered: whether any scrape has succeeded.
        trouble: the present run of failures; None while the target is up.
        errors: errors by reason, those of late scrapes included.
        scrape_seconds: duration of the newest scrape; None before the first has ended.
        last_success: Unix time of the newest successful scrape.
    """

    answered: bool = False
    trouble: Trouble | None = None
    errors: Mapping[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    scrape_seconds: float | None = None
    last_success: float | None = None

    @property
    def up(self) -> bool | None:
        """Whether the newest scrape succeeded; None before the first has ended."""
        return None if self.scrape_seconds is None else self.trouble is None


def record_success(health: Health, timing: ScrapeTiming) -> Health:
    """Record a successful scrape."""
    return replace(
        health, answered=True, trouble=None, scrape_seconds=timing.done - timing.sent, last_success=timing.wall
    )


def record_late(health: Health, error: ScrapeError, timing: ScrapeTiming) -> Health:
    """Record a scrape that a busy server answered in part: the error is counted, and the target is up."""
    return record_success(_count_error(health, error), timing)


def record_failure(health: Health, error: ScrapeError, timing: ScrapeTiming) -> Health:
    """Record a failed scrape."""
    before = health.trouble
    trouble = Trouble(
        since=before.since if before else timing.done,
        failures=before.failures + 1 if before else 1,
        reason=error.reason,
        message=error.message,
    )
    return replace(_count_error(health, error), trouble=trouble, scrape_seconds=timing.done - timing.sent)


def _count_error(health: Health, error: ScrapeError) -> Health:
    return replace(health, errors={**health.errors, error.reason: health.errors[error.reason] + 1})
