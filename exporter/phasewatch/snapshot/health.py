"""Whether a target answers: what each scrape, good or failed, changes. The same for every kind of server."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.base.errors import Reason, ScrapeError


@dataclass(frozen=True, slots=True)
class ScrapeTiming:
    """When a scrape took place: `sent` and `done` monotonic, `wall` the Unix time at `done`, None if unknown."""

    sent: float
    done: float
    wall: float | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A target's present run of failures: when it began, how many scrapes it cost, and the newest error."""

    since: float
    failures: int
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """How a target's scrapes went. `trouble` is None while it is up; `answered` tells whether it ever was."""

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
    """The health after a good scrape."""
    return replace(
        health, answered=True, trouble=None, scrape_seconds=timing.done - timing.sent, last_success=timing.wall
    )


def record_late(health: Health, error: ScrapeError, timing: ScrapeTiming) -> Health:
    """The health after a scrape of a server that lives, but was too busy to answer all of it: counted, and up."""
    return record_success(_counted(health, error), timing)


def record_failure(health: Health, error: ScrapeError, timing: ScrapeTiming) -> Health:
    """The health after a failed scrape."""
    before = health.trouble
    trouble = Trouble(
        since=before.since if before else timing.done,
        failures=before.failures + 1 if before else 1,
        reason=error.reason,
        message=error.message,
    )
    return replace(_counted(health, error), trouble=trouble, scrape_seconds=timing.done - timing.sent)


def _counted(health: Health, error: ScrapeError) -> Health:
    return replace(health, errors={**health.errors, error.reason: health.errors[error.reason] + 1})
