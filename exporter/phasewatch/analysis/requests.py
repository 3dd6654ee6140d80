"""Requests of an engine and of a server over the window: how they ended, how long they were, how long they took."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from phasewatch.analysis.distribution import UNOBSERVED, Distribution
from phasewatch.analysis.latency import describe_histogram
from phasewatch.analysis.samples import EngineKey, EngineSample
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory, PageWindow
from phasewatch.base.optional import compute_share, divide

HTTP_STATUSES: Final = ("2xx", "4xx", "5xx")
"""Classes of HTTP status that are counted."""

_SERVER_ERROR: Final = "5xx"


class FinishReason(StrEnum):
    """Why a request finished. OTHER is any reason that has no member of its own."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    OTHER = "other"


class TokenSource(StrEnum):
    """Where the keys and values of prompt tokens came from."""

    COMPUTED = "computed"
    LOCAL_CACHE = "local_cache"
    EXTERNAL_CACHE = "external_cache"


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one engine over the window; None or without the entry where unknown.

    Attributes:
        finished_per_second: requests that finished, per second, by reason.
        latency: time of whole requests that finished, seconds.
        prompt_tokens: lengths of their prompts.
        output_tokens: lengths of their outputs.
        decode_time_mean_seconds: their mean time from first to last token.
        prompt_tokens_per_second: prompt tokens per second, by source.
        draft_acceptance_ratio: share of the drafted tokens that were accepted; None without speculation.
    """

    finished_per_second: Mapping[FinishReason, float] = field(default_factory=dict)
    latency: Distribution = UNOBSERVED
    prompt_tokens: Distribution = UNOBSERVED
    output_tokens: Distribution = UNOBSERVED
    decode_time_mean_seconds: float | None = None
    prompt_tokens_per_second: Mapping[TokenSource, float] = field(default_factory=dict)
    draft_acceptance_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ServerRequests:
    """The requests of a server over the window, refused ones included.

    Attributes:
        http_per_second: answers per second by class of HTTP status; empty where the page does not have them.
        error_ratio: share of the requests that ended in an error; None if none ended, or errors are not counted.
    """

    http_per_second: Mapping[str, float] = field(default_factory=dict)
    error_ratio: float | None = None


def compute_requests(past: EngineHistory, totals: PhaseTotals | None) -> Requests:
    """The requests of one engine.

    Args:
        past: the window, scrape by scrape.
        totals: totals of the same window; None for a single scrape.
    """
    growth = past.growth
    finished = {reason: divide(count, past.seconds) for reason, count in _count_finished(past).items()}
    decode = growth.decode_time
    return Requests(
        finished_per_second={reason: rate for reason, rate in finished.items() if rate is not None},
        latency=describe_histogram(past, "request_latency"),
        prompt_tokens=describe_histogram(past, "request_prompt_tokens"),
        output_tokens=describe_histogram(past, "request_output_tokens"),
        decode_time_mean_seconds=divide(decode.sum, decode.count) if decode else None,
        prompt_tokens_per_second=_compute_prompt_rates(totals) if totals else {},
        draft_acceptance_ratio=compute_share(growth.accepted_draft_tokens, growth.draft_tokens),
    )


def compute_server_requests(window: PageWindow, histories: Mapping[EngineKey, EngineHistory]) -> ServerRequests:
    """The requests of a server.

    A refusal is counted by the server and again as an HTTP 503, and a request that finishes with an error is often
    answered with an HTTP 500. So the errors are the larger of the HTTP answers and the server's own counts:

        errors = max(5xx, rejections + error finishes),    ratio = errors / (other finishes + errors)

    Args:
        window: the pages.
        histories: the history of each engine on the newest page.
    """
    if window.newest is None:
        return ServerRequests()
    http, seconds = _count_http_requests(window, window.pages[0].time), window.pages[-1].time - window.pages[0].time
    rates = {status: divide(count, seconds) for status, count in http.items()}
    return ServerRequests(
        http_per_second={status: rate for status, rate in rates.items() if rate is not None},
        error_ratio=_compute_error_ratio(window, histories),
    )


def _count_finished(past: EngineHistory) -> Mapping[FinishReason, float | None]:
    """Requests that finished in the window by reason, None where unknown; empty for a server that does not count them.

    Some servers show a reason only once it has occurred, so a missing one is 0 if there is another. Aborts are left out
    until one was counted: vLLM counts them, if at all, elsewhere (0.8 to 0.32), and then 0 would be wrong.
    """
    growth, newest = past.growth, past.newest
    names = {reason: f"finished_{reason.value}" for reason in FinishReason}
    if len(past.times) == 1 or all(getattr(newest, name) is None for name in names.values()):
        return {}
    if not newest.finished_abort:
        del names[FinishReason.ABORT]
    return {reason: 0.0 if getattr(newest, name) is None else getattr(growth, name) for reason, name in names.items()}


def _compute_prompt_rates(totals: PhaseTotals) -> Mapping[TokenSource, float]:
    """Prompt tokens per second by source; empty unless all are known, so that they always add up to the prompts."""
    tokens = {
        TokenSource.COMPUTED: totals.prefill_tokens,
        TokenSource.LOCAL_CACHE: totals.local_cache_tokens,
        TokenSource.EXTERNAL_CACHE: totals.external_cache_tokens,
    }
    rates = {source: divide(count, totals.seconds) for source, count in tokens.items()}
    known = {source: rate for source, rate in rates.items() if rate is not None}
    return known if len(known) == len(tokens) else {}


def _count_http_requests(window: PageWindow, since: float) -> Mapping[str, float]:
    """Answers since a page of the window by class of status; empty if the newest page has none, or has lost a class.

    The page shows a class only once it has occurred, so one that is missing from the start was 0.
    """
    first = next(timed.page for timed in window.pages if timed.time >= since)
    last = window.pages[-1].page
    if not last.http_requests or first.http_requests.keys() - last.http_requests.keys():
        return {}
    return {
        status: last.http_requests.get(status, 0.0) - first.http_requests.get(status, 0.0) for status in HTTP_STATUSES
    }


def _compute_error_ratio(window: PageWindow, histories: Mapping[EngineKey, EngineHistory]) -> float | None:
    # All counts must cover one span: that of the engine whose samples are comparable for the shortest time.
    since = max((past.times[0] for past in histories.values()), default=None)
    if since is None or since == window.pages[-1].time:
        return None
    spans = {key: _cut_history(past, since) for key, past in histories.items()}
    finished = [_count_finished(past) for past in spans.values()]
    if not any(finished) or any(count is None for counts in finished for count in counts.values()):
        return None
    errors = _count_errors(spans, _count_http_requests(window, since))
    if errors is None:
        return None
    good = sum(
        count or 0.0 for counts in finished for reason, count in counts.items() if reason is not FinishReason.ERROR
    )
    return compute_share(errors, good + errors)


def _count_errors(spans: Mapping[EngineKey, EngineHistory], http: Mapping[str, float]) -> float | None:
    """Requests that ended in an error; None for a server that shows neither HTTP answers nor errors of its own."""
    growths = {key: past.growth for key, past in spans.items()}
    finishes = [growth.finished_error for growth in growths.values() if growth.finished_error is not None]
    rejections = _count_rejections(growths.items())
    if not http and not finishes and not rejections:
        return None
    return max(http.get(_SERVER_ERROR, 0.0), sum(finishes) + sum(rejections.values()))


def _count_rejections(growths: Iterable[tuple[EngineKey, EngineSample]]) -> Mapping[str, float]:
    """Rejections by model: all engines of a model have the same count."""
    return {key.model_name: growth.rejections for key, growth in growths if growth.rejections is not None}


def _cut_history(past: EngineHistory, since: float) -> EngineHistory:
    if past.times[0] == since:
        return past
    first = next(index for index, time in enumerate(past.times) if time >= since)
    return EngineHistory(past.times[first:], past.samples[first:], past.corrupt, past.ever_corrupt)
