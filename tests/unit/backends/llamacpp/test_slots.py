"""Slots: every build's form is read, what is missing is unknown, and nothing that users wrote is kept."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from phasewatch.backends.llamacpp.slots import Slot, parse_slots, reduce_slots
from phasewatch.base.errors import Reason, ScrapeError

BUSY = {
    "id": 1,
    "n_ctx": 2048,
    "speculative": False,
    "is_processing": True,
    "id_task": 7,
    "n_prompt_tokens": 120,
    "n_prompt_tokens_processed": 90,
    "n_prompt_tokens_cache": 10,
    "next_token": [{"n_decoded": 20, "n_remain": 5}],
}


def parse(*entries: dict[str, Any]) -> tuple[Slot, ...]:
    return parse_slots(json.dumps(entries).encode())


def test_both_forms_of_the_next_token_are_read() -> None:
    (listed,) = parse(BUSY)
    (single,) = parse({**BUSY, "next_token": {"n_decoded": 20}})
    assert listed == single == Slot(1, True, 2048, 7, 120, 90, 20)


def test_a_missing_number_is_unknown_and_never_0() -> None:
    fields = {"n_ctx": "context", "id_task": "request", "n_prompt_tokens": "held"}
    fields |= {"n_prompt_tokens_processed": "computed", "next_token": "decoded"}
    for key, attribute in fields.items():
        for missing in (
            {name: value for name, value in BUSY.items() if name != key},
            {**BUSY, key: None},
            {**BUSY, key: "12"},
            {**BUSY, key: [] if key == "next_token" else -1},
            {**BUSY, key: True},
        ):
            (slot,) = parse(missing)
            assert getattr(slot, attribute) is None, (key, missing)
    (slot,) = parse({**BUSY, "next_token": [{}]})
    assert (slot.decoded, slot.decoding, slot.prefilling) == (None, False, False)


def test_a_task_of_minus_one_is_none() -> None:
    (slot,) = parse({**BUSY, "id_task": -1})
    assert slot.request is None


def test_an_idle_slot_that_keeps_its_last_count_does_not_decode() -> None:
    (slot,) = parse({**BUSY, "is_processing": False})
    assert (slot.decoded, slot.decoding, slot.prefilling) == (20, False, False)


def test_a_busy_slot_decodes_or_reads_its_prompt() -> None:
    (decoding,) = parse(BUSY)
    (prefilling,) = parse({**BUSY, "next_token": [{"n_decoded": 0}]})
    assert (decoding.decoding, decoding.prefilling) == (True, False)
    assert (prefilling.decoding, prefilling.prefilling) == (False, True)


def test_the_state_of_builds_before_is_processing_tells_what_is_busy() -> None:
    old = {name: value for name, value in BUSY.items() if name != "is_processing"}
    assert [slot.busy for slot in parse({**old, "state": 0}, {**old, "state": 1}, old)] == [False, True, None]


def test_slots_whose_numbers_do_not_tell_them_apart_are_told_apart_by_their_place() -> None:
    for numbers, indexes in (([3, 1], [3, 1]), ([0, 0], [0, 1]), ([5, -1], [0, 1]), ([2, "x"], [0, 1])):
        assert [slot.index for slot in parse(*({**BUSY, "id": number} for number in numbers))] == indexes


def test_a_number_that_no_slot_can_have_is_unknown() -> None:
    (slot,) = parse({**BUSY, "n_ctx": 2048, "n_prompt_tokens": 2049, "next_token": [{"n_decoded": 2**31}]})
    assert (slot.context, slot.held, slot.decoded) == (2048, None, None)
    assert not slot.decoding
    assert not slot.prefilling


def test_anything_but_a_list_of_objects_is_refused_without_a_word_of_it() -> None:
    for body in (
        b"",
        b"secret",
        b'{"secret": 1}',
        b'["secret"]',
        b'[{"secret": ',
        b"[" * 100_000,
        b"\xff\xfe",
        b"null",
    ):
        with pytest.raises(ScrapeError) as raised:
            parse_slots(body)
        assert raised.value.reason is Reason.PARSE
        assert "secret" not in raised.value.message
        assert raised.value.__cause__ is None


WORD = "wrote"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(WORD) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just(WORD) | st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*BUSY, "prompt", "generated", "params", "state", WORD])


@given(st.lists(st.dictionaries(names, values, max_size=12), max_size=3))
def test_no_text_of_a_response_is_ever_kept(entries: list[dict[str, Any]]) -> None:
    body = json.dumps(entries).encode()
    with capture_logs() as logs:
        kept = f"{parse_slots(body)} {reduce_slots(body)} {logs}"
    assert WORD not in kept
    for slot in parse_slots(body):
        assert not any(isinstance(value, str) for value in (getattr(slot, name) for name in Slot.__slots__))


@given(st.lists(st.dictionaries(names, values, max_size=12), max_size=3))
def test_what_a_recording_keeps_reads_like_the_response(entries: list[dict[str, Any]]) -> None:
    body = json.dumps(entries).encode()
    assert parse_slots(reduce_slots(body).encode()) == parse_slots(body)
