"""What depends on the build: digits of a value, pages that are one JSON string, whose KV cache it is."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phasewatch.analysis.queue import KvCacheSize
from phasewatch.analysis.samples import EngineSample
from phasewatch.backends.llamacpp.quirks import (
    compute_count_resolution,
    compute_resolution,
    read_kv_cache_size,
    undo_json,
)


def test_counts_are_printed_in_full_up_to_six_digits_and_then_in_steps() -> None:
    table = {0.0: 0, 1.0: 0, 999_999.0: 0, 1_234_560.0: 10, 12_345_600.0: 100, 123_456_000.0: 1000}
    for value, step in table.items():
        assert compute_count_resolution(value) == pytest.approx(step, rel=1e-9), value
    assert compute_count_resolution(None) == compute_resolution(None) == 0


@given(st.floats(min_value=1e-300, max_value=1e12))
@example(172_800.4)
@example(1.000004)
def test_a_printed_value_is_never_further_off_than_half_its_resolution(exact: float) -> None:
    printed = float(f"{exact:.6g}")
    assert abs(printed - exact) <= compute_resolution(printed) / 2 * 1.0001
    count = float(round(exact))
    assert abs(float(f"{count:.6g}") - count) <= compute_count_resolution(float(f"{count:.6g}")) / 2 * 1.0001


def test_a_page_that_is_one_json_string_is_undone_and_any_other_text_is_left() -> None:
    page = '# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total 5\nx{a="b"} 1\n'
    assert undo_json(json.dumps(page)) == page
    for text in (page, "", '"cut off', '["a"]', '"a" "b"'):
        assert undo_json(text) == text


def test_the_size_of_a_cache_is_unknown_until_it_is_known_whose_it_is() -> None:
    for slots, unified, capacity in (
        ("1", None, 2048.0),
        ("4", "true", 2048.0),
        ("4", "false", 8192.0),
        ("4", None, None),
    ):
        labels = {"n_ctx": "2048", "slots": slots, **({"kv_unified": unified} if unified else {})}
        size = read_kv_cache_size(EngineSample(cache_config=labels))
        assert size == (None if capacity is None else KvCacheSize(capacity)), (slots, unified)
    assert read_kv_cache_size(EngineSample()) is None
