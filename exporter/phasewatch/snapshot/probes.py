"""What is counted of the probes of one model. It outlives the model's time in memory: counters never fall."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from phasewatch.backends.ollama.probes.response import ProbeReason


class SkipReason(StrEnum):
    """Why a probe that was due was not sent: the `reason` label of `llm_probes_skipped_total`."""

    QUARANTINED = "quarantined"
    REPLACED = "replaced"
    REMOTE = "remote"
    NO_COMPLETION = "no_completion"
    CONTEXT_UNKNOWN = "context_unknown"
    CONTEXT_TOO_SMALL = "context_too_small"
    ACTIVE = "active"
    EXPIRING = "expiring"
    USERS_GONE = "users_gone"
    UNLOADED = "unloaded"
    OTHERS_LOADED = "others_loaded"
    BACKOFF = "backoff"
    BUDGET = "budget"


class DiscardReason(StrEnum):
    """Why a probe that was answered counts for nothing: the `reason` label of `llm_probes_discarded_total`."""

    FIRST_AFTER_LOAD = "first_after_load"
    TOO_FEW_TOKENS = "too_few_tokens"
    RELOADED = "reloaded"


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """The probes of one model so far.

    Attributes:
        probes: requests sent.
        failures: those that failed, by reason.
        discarded: those that were answered and count for nothing, by reason.
        skipped: probes that were due and not sent, by reason.
        caused_reloads: probes that made the server load the model.
        success: whether the newest probe was answered; None before the first.
        duration: seconds that the newest probe took, by our clock.
        last_success: Unix time of the newest answer that counts.
        queue_seconds: how long the newest answered probe waited for its turn.
        load_seconds: how long the newest load took that a probe has seen.
    """

    probes: int = 0
    failures: Mapping[ProbeReason, int] = field(default_factory=lambda: dict.fromkeys(ProbeReason, 0))
    discarded: Mapping[DiscardReason, int] = field(default_factory=lambda: dict.fromkeys(DiscardReason, 0))
    skipped: Mapping[SkipReason, int] = field(default_factory=lambda: dict.fromkeys(SkipReason, 0))
    caused_reloads: int = 0
    success: bool | None = None
    duration: float | None = None
    last_success: float | None = None
    queue_seconds: float | None = None
    load_seconds: float | None = None


def count_skip(record: ProbeRecord, reason: SkipReason) -> ProbeRecord:
    """The record after a probe that was not sent."""
    return replace(record, skipped={**record.skipped, reason: record.skipped[reason] + 1})


def count_failure(record: ProbeRecord, reason: ProbeReason) -> ProbeRecord:
    """The record after a probe that failed."""
    return replace(record, success=False, failures={**record.failures, reason: record.failures[reason] + 1})


def count_discard(record: ProbeRecord, reason: DiscardReason) -> ProbeRecord:
    """The record after a probe whose answer counts for nothing."""
    return replace(record, success=True, discarded={**record.discarded, reason: record.discarded[reason] + 1})
