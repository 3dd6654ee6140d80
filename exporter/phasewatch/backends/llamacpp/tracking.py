"""Counters that a llama-server does not have, from what its counters and its slots show together, scrape by scrape.

Its counters of generated tokens and of stream time move only when a request ends (b10434), so over ten seconds their
rate is wrong by a quarter. The slots show the requests that have not ended:

    generated tokens = tokens_predicted_total + sum of n_decoded over the busy slots
    stream seconds   = tokens_predicted_seconds_total + sum of the ages of the streams in the busy slots
    prefill progress = prompt_tokens_total + sum of n_prompt_tokens_processed over the slots in prefill

Without the counters, the slots alone give the number of streams at each scrape, and the speed of those that two scrapes
have seen. Pure: times come with the scrapes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from phasewatch.analysis.samples import EngineSample
from phasewatch.backends.llamacpp.quirks import compute_count_resolution, compute_resolution, measure_stream_steps
from phasewatch.backends.llamacpp.slots import Slot
from phasewatch.base.optional import add, divide

RequestKey = tuple[int, int | None]
"""Index of a slot, and the number of the request in it."""


LEAST_ENDED_SECONDS: Final = 1.0
"""Stream time of ended requests from which they have a speed."""

ROUNDING: Final = 0.1
"""Largest error of that speed by the rounding of the counters, as a share of it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A request that generates tokens, in one slot.

    Attributes:
        decoded: tokens that it has generated.
        first_decoded: tokens that it had generated when it was first seen to generate any.
        first_seen: monotonic time of that.
        began: estimated monotonic time of its first token; of the first scrape if that had it.
        earliest: monotonic time of the last scrape without it; None if the first scrape had it.
        confirmed: whether `began` follows from its own speed, not from that of earlier streams.
    """

    decoded: int
    first_decoded: int
    first_seen: float
    began: float
    earliest: float | None
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Tracking:
    """What the scrapes of one process have shown so far.

    Attributes:
        time: monotonic time of the newest scrape.
        page: its figures as printed; empty without a page.
        sample: the same with the counters of this module.
        slots: its slots; None if the server does not show them.
        streams: the requests that generate tokens.
        computed: computed prompt tokens of the requests in the busy slots.
        speed: tokens per second of the streams that two scrapes have seen or that have ended, of late; None before.
        unseen_seconds: time that streams had spent before the first scrape, which the server's counter will include.
    """

    time: float
    page: EngineSample
    sample: EngineSample
    slots: tuple[Slot, ...] | None = None
    streams: Mapping[RequestKey, Stream] = field(default_factory=dict)
    computed: Mapping[RequestKey, int] = field(default_factory=dict)
    speed: float | None = None
    unseen_seconds: float = 0.0


def advance_tracking(
    before: Tracking | None, page: EngineSample | None, slots: tuple[Slot, ...] | None, time: float
) -> Tracking:
    """The tracking after one more scrape.

    Args:
        before: the tracking after the previous scrape; None after a start or a restart.
        page: the sample of the page of metrics; None if the server does not show the page.
        slots: the slots; None if the server does not show them.
        time: monotonic seconds.
    """
    own = page or EngineSample()
    if not slots or not _show_tokens(slots):
        return Tracking(time, own, own, slots)
    streams, speed = _follow_streams(before, own, slots, time)
    computed = {_get_key(slot): slot.computed for slot in slots if slot.busy and slot.computed is not None}
    tracked_tokens, tracked_seconds, sampled_seconds = _sample_streams(before, streams, time)
    sample = replace(
        own,
        requests_running=float(sum(bool(slot.busy) for slot in slots)) if page is None else own.requests_running,
        requests_prefilling=float(sum(slot.prefilling for slot in slots)),
        kv_cache_tokens=_sum_known(slot.held for slot in slots if slot.decoding),
        requests_begun=_count_begun(before, slots),
        prefill_progress=_count_prompt_tokens(before, own, slots, computed),
        tracked_tokens=tracked_tokens,
        tracked_seconds=tracked_seconds,
        sampled_seconds=sampled_seconds,
    )
    unseen = _count_unseen_seconds(before, own, streams, time)
    if page is not None:
        sample = replace(
            sample,
            generation_tokens=_count_generated(before, own, streams),
            stream_seconds=_count_stream_seconds(before, own, streams, time, unseen),
        )
    return Tracking(time, own, sample, slots, streams, computed, speed, unseen)


def _get_key(slot: Slot) -> RequestKey:
    return slot.index, slot.request


def _count_begun(before: Tracking | None, slots: tuple[Slot, ...]) -> float:
    """Requests whose numbers were seen for the first time since the first scrape. An idle slot keeps the last one."""
    if before is None or before.slots is None:
        return (before.sample.requests_begun if before else None) or 0.0
    known = {_get_key(slot) for slot in before.slots}
    begun = sum(slot.request is not None and _get_key(slot) not in known for slot in slots)
    return (before.sample.requests_begun or 0.0) + begun


def _show_tokens(slots: Iterable[Slot]) -> bool:
    """Whether the slots show how many tokens their requests have generated. One that never had a request need not."""
    return all(
        slot.busy is not None and (slot.decoded is not None or not (slot.busy or slot.request is not None))
        for slot in slots
    )


def _sum_known(values: Iterable[int | None]) -> float | None:
    """The sum; None if a value is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _follow_streams(
    before: Tracking | None, page: EngineSample, slots: tuple[Slot, ...], time: float
) -> tuple[Mapping[RequestKey, Stream], float | None]:
    """The streams after a scrape, and the speed of those that the previous one has seen too, or of those that have
    ended since.
    """
    known = before.streams if before else {}
    decoding = [slot for slot in slots if slot.busy and slot.decoded]
    streams: dict[RequestKey, Stream] = {}
    tokens = seconds = 0.0
    for slot in decoding:
        old, decoded = known.get(_get_key(slot)), slot.decoded or 0
        if old is not None and before is not None and decoded >= old.decoded:
            tokens, seconds = tokens + decoded - old.decoded, seconds + time - before.time
            streams[_get_key(slot)] = _continue_stream(old, decoded, time)
    speed = divide(tokens, seconds)
    if before is not None:
        speed = speed or _measure_ended_speed(before.page, page) or before.speed
    for slot in decoding:
        if _get_key(slot) not in streams:
            earliest = before.time if before else None
            streams[_get_key(slot)] = _begin_stream(slot.decoded or 0, time, earliest=earliest, speed=speed)
    return streams, speed


def _measure_ended_speed(before: EngineSample, after: EngineSample) -> float | None:
    """Tokens per second of the requests that ended between two pages; None where less than a second was counted, as for
    requests that are aborted while their prompt is read, or where rounding decides.
    """
    tokens = _subtract(after.generation_tokens, before.generation_tokens)
    seconds = _subtract(after.decode_seconds, before.decode_seconds)
    if tokens is None or seconds is None or seconds < LEAST_ENDED_SECONDS:
        return None
    exact = compute_count_resolution(after.generation_tokens) <= ROUNDING * tokens
    return tokens / seconds if exact and compute_resolution(after.decode_seconds) <= ROUNDING * seconds else None


def _begin_stream(decoded: int, time: float, *, earliest: float | None, speed: float | None) -> Stream:
    """A stream at its first sighting. It began after the scrape before, at the speed of earlier streams."""
    age = divide(float(decoded - 1), speed)
    began = time if age is None else time - age
    return Stream(decoded, decoded, time, began if earliest is None else max(began, earliest), earliest)


def _continue_stream(stream: Stream, decoded: int, time: float) -> Stream:
    """The stream at its next sighting, from the second one on with a beginning by its own speed."""
    if stream.earliest is None or stream.confirmed or decoded == stream.first_decoded:
        return replace(stream, decoded=decoded)
    own_speed = (decoded - stream.first_decoded) / (time - stream.first_seen)
    began = stream.first_seen - (stream.first_decoded - 1) / own_speed
    return replace(stream, decoded=decoded, began=max(began, stream.earliest), confirmed=True)


def _count_generated(before: Tracking | None, page: EngineSample, streams: Mapping[RequestKey, Stream]) -> float | None:
    """Tokens generated since the server started, at least those that the streams were seen to add.

    A request that ends between the two reads of a scrape is missing from both, and above 10^6 the counter is rounded.
    """
    if page.generation_tokens is None:
        return None
    total = page.generation_tokens + sum(stream.decoded for stream in streams.values())
    if before is None or before.sample.generation_tokens is None:
        return total
    known = before.streams
    seen = sum(
        stream.decoded - (known[key].decoded if _continues(key, stream, known) else 0)
        for key, stream in streams.items()
    )
    least = float(seen)
    if _has_lost_request(before, page, streams):
        least = max(least, _count_least_steps(before.page, page))
    return max(total, before.sample.generation_tokens + least)


def _has_lost_request(before: Tracking, page: EngineSample, streams: Mapping[RequestKey, Stream]) -> bool:
    """Whether a request has certainly ended between the two reads of a scrape: the counter of generated tokens has not
    grown by what the slots had shown of the requests that are gone.
    """
    gone = sum(stream.decoded for key, stream in before.streams.items() if not _continues(key, stream, streams))
    counted = _subtract(page.generation_tokens, before.page.generation_tokens)
    return counted is not None and gone > counted + compute_count_resolution(page.generation_tokens)


def _count_least_steps(before: EngineSample, after: EngineSample) -> float:
    """Least tokens that streams have generated between two pages by the count of steps, which moves with each of them
    (b10434); 0 if unknown. The accepted ones of a draft are not among them.
    """
    first, last = measure_stream_steps(before), measure_stream_steps(after)
    return 0.0 if first is None or last is None else last[0] - last[1] - first[0] - first[1]


def _count_stream_seconds(
    before: Tracking | None, page: EngineSample, streams: Mapping[RequestKey, Stream], time: float, unseen: float
) -> float | None:
    """Time that streams have spent since their first tokens, summed over streams; never less than before."""
    if page.decode_seconds is None:
        return None
    total = page.decode_seconds + sum(time - stream.began for stream in streams.values()) - unseen
    last = before.sample.stream_seconds if before else None
    if before is None or last is None:
        return total
    if _has_lost_request(before, page, streams):
        last += sum(time - max(stream.began, before.time) for stream in streams.values())
    return max(total, last)


def _count_unseen_seconds(
    before: Tracking | None, page: EngineSample, streams: Mapping[RequestKey, Stream], time: float
) -> float:
    """Time that streams had spent before the first scrape. It is known when they end: then the counter grows by their
    whole time, of which they had been seen to spend a part, and after the last scrape the rest of their tokens.
    """
    if before is None:
        return 0.0
    ended = {key: old for key, old in before.streams.items() if not _continues(key, old, streams)}
    if all(old.earliest is not None for old in ended.values()):
        return before.unseen_seconds
    grown = _subtract(page.decode_seconds, before.page.decode_seconds) or 0.0
    tokens = _subtract(page.generation_tokens, before.page.generation_tokens) or 0.0
    speed = before.speed or divide(tokens, grown)
    rest = divide(max(0.0, tokens - sum(old.decoded for old in ended.values())), speed) or 0.0
    seen = sum(before.time - old.began for old in ended.values())
    return before.unseen_seconds + max(0.0, grown - seen - min(rest, len(ended) * (time - before.time)))


def _subtract(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _continues(key: RequestKey, stream: Stream, others: Mapping[RequestKey, Stream]) -> bool:
    """Whether a stream of one scrape is among those of another."""
    return key in others and stream.first_seen == others[key].first_seen


def _count_prompt_tokens(
    before: Tracking | None, page: EngineSample, slots: tuple[Slot, ...], computed: Mapping[RequestKey, int]
) -> float | None:
    """Computed prompt tokens, those of unfinished prompts included. Without the counter, those that slots were seen to
    compute since the first scrape. None for good once a prompt at work did not show it (b6700).
    """
    if before is not None and before.sample.sampled_seconds is not None and before.sample.prefill_progress is None:
        return None
    if page.prompt_tokens_computed is not None:
        at_work = _sum_known(slot.computed for slot in slots if slot.prefilling)
        total = add(page.prompt_tokens_computed, at_work)
    else:
        known = before.computed if before else computed
        grown = sum(max(0, tokens - known.get(key, 0)) for key, tokens in computed.items())
        total = ((before.sample.prefill_progress if before else None) or 0.0) + grown
    last = before.sample.prefill_progress if before else None
    return total if total is None or last is None else max(total, last)


def _sample_streams(
    before: Tracking | None, streams: Mapping[RequestKey, Stream], time: float
) -> tuple[float, float, float]:
    """The counters that follow from comparing two scrapes: `tracked_tokens`, `tracked_seconds`, `sampled_seconds`."""
    if before is None or before.sample.sampled_seconds is None:
        return 0.0, 0.0, 0.0
    last, known, seconds = before.sample, before.streams, time - before.time
    continued = {key: stream for key, stream in streams.items() if _continues(key, stream, known)}
    grown = sum(stream.decoded - known[key].decoded for key, stream in continued.items())
    return (
        (last.tracked_tokens or 0.0) + grown,
        (last.tracked_seconds or 0.0) + len(continued) * seconds,
        before.sample.sampled_seconds + (len(streams) + len(known)) / 2 * seconds,
    )
