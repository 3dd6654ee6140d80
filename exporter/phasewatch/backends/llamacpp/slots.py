"""The slots of a llama-server: one place for a request each, as /slots lists them.

A response may hold what users wrote: the prompt and the text of a request (builds before August 2025, and any build
with `LLAMA_SERVER_SLOTS_DEBUG`), and settings of a request that are text. Only the numbers below are ever taken from
it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.base.errors import Reason, ScrapeError

_LARGEST: Final = 2**31 - 1
"""Largest number that a llama-server can have for any of these fields."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot; None for what this build does not show.

    Attributes:
        index: its number.
        busy: whether it works on a request, in prefill or decode; None if a response does not say.
        context: tokens of context of this slot; with a unified KV cache that of all slots together.
        request: number of its request, kept after the end of the request; None before the first.
        held: tokens in the slot now, of the prompt and generated ones.
        computed: prompt tokens of the request computed so far, without cached ones.
        decoded: tokens that the request has generated so far. An idle slot may keep the last number (b6700).
        speculative: whether the slot drafts tokens.
    """

    index: int
    busy: bool | None
    context: int | None = None
    request: int | None = None
    held: int | None = None
    computed: int | None = None
    decoded: int | None = None
    speculative: bool = False

    @property
    def decoding(self) -> bool:
        """Whether it generates tokens now."""
        return bool(self.busy and self.decoded)

    @property
    def prefilling(self) -> bool:
        """Whether it reads its prompt now."""
        return bool(self.busy) and self.decoded == 0


def parse_slots(body: bytes) -> tuple[Slot, ...]:
    """The slots of a response of /slots.

    Raises:
        ScrapeError: `parse` if it is no list of slots. The message has nothing of the response.
    """
    try:
        entries = json.loads(body)
    except (ValueError, RecursionError):
        raise ScrapeError(Reason.PARSE, "the answer to /slots is no JSON") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ScrapeError(Reason.PARSE, "the answer to /slots is no list of slots")
    numbers = [_get_count(entry, "id") for entry in entries]
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(len(entries)))
    return tuple(_parse_slot(number or 0, entry) for number, entry in zip(numbers, entries, strict=True))


def reduce_slots(body: bytes) -> str:
    """The same response with nothing but the fields that are read, in the same form, for a recording.

    Raises:
        ScrapeError: as `parse_slots`.
    """
    return json.dumps([dict(_list_fields(slot)) for slot in parse_slots(body)])


def _parse_slot(index: int, entry: dict[str, Any]) -> Slot:
    context, held = _get_count(entry, "n_ctx") or None, _get_count(entry, "n_prompt_tokens")
    return Slot(
        index=index,
        busy=_is_busy(entry),
        context=context,
        request=_get_count(entry, "id_task"),
        held=None if held is not None and context is not None and held > context else held,
        computed=_get_count(entry, "n_prompt_tokens_processed"),
        decoded=_get_count(_find_next_token(entry), "n_decoded"),
        speculative=entry.get("speculative") is True,
    )


def _is_busy(entry: dict[str, Any]) -> bool | None:
    """Whether a slot is busy: `is_processing`, or before November 2024 a `state` other than 0; None without either."""
    busy = entry.get("is_processing")
    if isinstance(busy, bool):
        return busy
    state = _get_count(entry, "state")
    return None if state is None else state > 0


def _find_next_token(entry: dict[str, Any]) -> dict[str, Any]:
    """The object with the progress of a request: in an array of one, or by itself (b6700). Empty if there is none."""
    value = entry.get("next_token")
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, dict) else {}


def _get_count(entry: dict[str, Any], key: str) -> int | None:
    """A number from 0 on; None if it is missing, impossible, or negative, which stands for none."""
    value = entry.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def _list_fields(slot: Slot) -> Iterator[tuple[str, object]]:
    yield "id", slot.index
    yield "is_processing", slot.busy
    yield "speculative", slot.speculative
    names = {"n_ctx": slot.context, "id_task": slot.request, "n_prompt_tokens": slot.held}
    yield from ((name, value) for name, value in names.items() if value is not None)
    if slot.computed is not None:
        yield "n_prompt_tokens_processed", slot.computed
    if slot.decoded is not None:
        yield "next_token", [{"n_decoded": slot.decoded}]
