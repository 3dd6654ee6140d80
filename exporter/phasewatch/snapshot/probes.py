"""Probe counters of one model and the reasons that label them. They are kept when the model is unloaded: counters must
not decrease.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class ProbeReason(StrEnum):
    """Why a probe failed: the `reason` label of `llm_probe_failures_total`, and the same word in logs.

    The first eight are those of a scrape.
    """

    CONNECT = "connect"
    TIMEOUT = "timeout"
    TLS = "tls"
    HTTP_STATUS = "http_status"
    AUTH = "auth"
    TOO_LARGE = "too_large"
    PARSE = "parse"
    INTERNAL = "internal"
    BUSY = "busy"
    MODEL_GONE = "model_gone"
    UNSUPPORTED = "unsupported"
    CONTEXT_EXCEEDED = "context_exceeded"
    NOT_DONE = "not_done"
    NO_NUMBERS = "no_numbers"
    IMPLAUSIBLE = "implausible"


class SkipReason(StrEnum):
    """Why a due probe was not sent: the `reason` label of `llm_probes_skipped_total`."""

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
    """Why an answered probe gave no measurement: the `reason` label of `llm_probes_discarded_total`."""

    FIRST_AFTER_LOAD = "first_after_load"
    TOO_FEW_TOKENS = "too_few_tokens"
    RELOADED = "reloaded"


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """Totals over the probes of one model, and figures of the newest.

    Attributes:
        probes: requests sent.
        failures: failed probes by reason.
        discarded: probes answered without a usable measurement, by reason.
        skipped: probes due but not sent, by reason.
        caused_reloads: probes that made the server load the model.
        success: whether the newest probe was answered; None before the first.
        duration: duration of the newest probe by our clock, seconds; None before the first.
        last_success: Unix time of the newest usable measurement.
        queue_seconds: queueing time of the newest answered probe.
        load_seconds: duration of the newest model load that a probe observed.
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
    """Add a probe that was not sent."""
    return replace(record, skipped={**record.skipped, reason: record.skipped[reason] + 1})


def count_failure(record: ProbeRecord, reason: ProbeReason) -> ProbeRecord:
    """Add a failed probe."""
    return replace(record, success=False, failures={**record.failures, reason: record.failures[reason] + 1})


def count_discard(record: ProbeRecord, reason: DiscardReason) -> ProbeRecord:
    """Add a probe that was answered without a usable measurement."""
    return replace(record, success=True, discarded={**record.discarded, reason: record.discarded[reason] + 1})
