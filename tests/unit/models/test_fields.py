import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.models.errors import ModelError, shorten
from phasewatch.models.fields import JsonFields
from tests.support.model_folders import refusal

NOT_ABOVE_0 = "config.json: n: expected a whole number above 0, found "

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def fields(**values: Any) -> JsonFields:
    return JsonFields(values, "config.json: ", {"with_default": 7})


def test_a_whole_number_is_read() -> None:
    assert fields(n=32).require_int("n") == 32
    assert fields(n=32).get_int("n") == 32
    assert fields(n=32).get_count("n") == 32


def test_a_value_that_is_not_a_whole_number_above_0_is_reported_with_its_key() -> None:
    cases: list[object] = ["x", "32", -1, 0, 1.0, 32.5, float("nan"), True, [], {}]
    for value in cases:
        message = refusal(fields(n=value).require_int, "n")
        assert message == NOT_ABOVE_0 + shorten(value), value


def test_a_number_above_the_maximum_is_refused() -> None:
    assert fields(n=10_000).require_int("n", 10_000) == 10_000
    with pytest.raises(ModelError) as refused:
        fields(n=10**9).require_int("n", 10_000)
    assert str(refused.value) == "config.json: n: expected at most 10000, found 1000000000"


def test_a_null_counts_as_a_missing_key() -> None:
    cases: list[dict[str, Any]] = [{}, {"n": None}]
    for values in cases:
        missing = fields(**values)
        assert missing.get_int("n") is None, values
        assert missing.get_count("n") == 0, values
        assert missing.get_text("n") is None, values
        assert missing.get_list("n") == [], values
        assert missing.get_section("n") is None, values
        assert missing.get_bool("n", default=True) is True, values
        assert re.search(
            r"^config\.json: n: missing; expected a whole number above 0$", refusal(missing.require_int, "n")
        ), values


def test_a_default_replaces_a_missing_key_only() -> None:
    assert fields().require_int("with_default") == 7
    assert fields(with_default=8).require_int("with_default") == 8
    with pytest.raises(ModelError, match="with_default"):
        fields(with_default="x").require_int("with_default")


def test_a_number_per_layer_is_given_once_or_as_a_list() -> None:
    assert fields(n=8).require_per_layer("n", 3) == (8, 8, 8)
    assert fields(n=[8, 0, 4]).require_per_layer("n", 3) == (8, 0, 4)


def test_a_list_without_one_number_per_layer_is_refused() -> None:
    cases: list[tuple[object, str]] = [
        ([8, 8], "n: expected one entry for each of 3 layers, found 2"),
        ([8, -1, 8], "n[1]: expected a whole number of 0 or more, found -1"),
        ([8, 8, True], "n[2]: expected a whole number of 0 or more, found True"),
        (0, "n: expected a whole number above 0, found 0"),
    ]
    for value, expected in cases:
        message = refusal(fields(n=value).require_per_layer, "n", 3)
        assert message == f"config.json: {expected}", value


def test_errors_in_a_section_name_the_section() -> None:
    section = fields(text_config={"n": "x"}).get_section("text_config")
    assert section is not None
    with pytest.raises(ModelError, match=r"^config\.json: text_config\.n: expected a whole number"):
        section.require_int("n")


def test_a_value_of_another_type_is_reported_with_its_key() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda bad: bad.get_bool("n", default=False), "n: expected true or false, found 5"),
        (lambda bad: bad.get_text("n"), "n: expected text, found 5"),
        (lambda bad: bad.get_list("n"), "n: expected a list, found 5"),
        (lambda bad: bad.get_section("n"), "n: expected an object, found 5"),
        (lambda bad: bad.get_texts("list"), "list: expected a list of text, found 1 in it"),
        (lambda bad: bad.get_ints("words"), "words: expected a list of whole numbers, found 'a' in it"),
        (lambda bad: bad.get_ints("flags"), "flags: expected a list of whole numbers, found True in it"),
    ]
    for read, expected in cases:
        message = refusal(read, fields(n=5, list=[1], words=["a"], flags=[True]))
        assert message == f"config.json: {expected}", expected


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ModelError) as refused:
        fields(n="x" * 1_000_000).require_int("n")
    assert len(str(refused.value)) < 200


@given(value=JSON)
def test_any_value_is_read_or_reported_with_its_key(value: object) -> None:
    some = fields(n=value)
    for read in (
        some.require_int,
        some.get_int,
        some.get_count,
        some.get_text,
        some.get_texts,
        some.get_ints,
        some.get_section,
    ):
        try:
            read("n")
        except ModelError as error:
            assert str(error).startswith("config.json: n: ")  # noqa: PT017  # most values are refused, some are not
