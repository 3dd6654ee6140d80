from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.models.errors import ModelError, shorten
from phasewatch.models.fields import JsonFields

NOT_ABOVE_0 = "config.json: n: expected a whole number above 0, found "

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def fields(**values: Any) -> JsonFields:
    return JsonFields(values, "config.json: ", {"with_default": 7})


def test_a_whole_number_is_read_as_it_is() -> None:
    assert fields(n=32).require_int("n") == 32
    assert fields(n=32).get_int("n") == 32
    assert fields(n=32).get_count("n") == 32


@pytest.mark.parametrize("value", ["x", "32", -1, 0, 1.0, 32.5, float("nan"), True, [], {}])
def test_what_is_no_whole_number_above_0_is_told_by_key(value: object) -> None:
    with pytest.raises(ModelError) as refused:
        fields(n=value).require_int("n")
    assert str(refused.value) == NOT_ABOVE_0 + shorten(value)


def test_a_number_beyond_all_models_is_refused() -> None:
    assert fields(n=10_000).require_int("n", 10_000) == 10_000
    with pytest.raises(ModelError) as refused:
        fields(n=10**9).require_int("n", 10_000)
    assert str(refused.value) == "config.json: n: expected at most 10000, found 1000000000"


@pytest.mark.parametrize("values", [{}, {"n": None}])
def test_a_null_is_as_good_as_a_key_that_is_not_there(values: dict[str, Any]) -> None:
    missing = fields(**values)
    assert missing.get_int("n") is None
    assert missing.get_count("n") == 0
    assert missing.get_text("n") is None
    assert missing.get_list("n") == []
    assert missing.get_section("n") is None
    assert missing.get_bool("n", default=True) is True
    with pytest.raises(ModelError, match=r"^config\.json: n: missing; expected a whole number above 0$"):
        missing.require_int("n")


def test_a_default_stands_in_for_what_is_left_out_and_for_nothing_else() -> None:
    assert fields().require_int("with_default") == 7
    assert fields(with_default=8).require_int("with_default") == 8
    with pytest.raises(ModelError, match="with_default"):
        fields(with_default="x").require_int("with_default")


def test_a_number_of_each_layer_is_given_once_or_layer_by_layer() -> None:
    assert fields(n=8).require_per_layer("n", 3) == (8, 8, 8)
    assert fields(n=[8, 0, 4]).require_per_layer("n", 3) == (8, 0, 4)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([8, 8], "n: expected one entry for each of 3 layers, found 2"),
        ([8, -1, 8], "n[1]: expected a whole number of 0 or more, found -1"),
        ([8, 8, True], "n[2]: expected a whole number of 0 or more, found True"),
        (0, "n: expected a whole number above 0, found 0"),
    ],
)
def test_a_list_that_is_not_one_number_a_layer_is_refused(value: object, told: str) -> None:
    with pytest.raises(ModelError) as refused:
        fields(n=value).require_per_layer("n", 3)
    assert str(refused.value) == f"config.json: {told}"


def test_a_section_tells_its_keys_with_its_own_name() -> None:
    section = fields(text_config={"n": "x"}).get_section("text_config")
    assert section is not None
    with pytest.raises(ModelError, match=r"^config\.json: text_config\.n: expected a whole number"):
        section.require_int("n")


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda bad: bad.get_bool("n", default=False), "n: expected true or false, found 5"),
        (lambda bad: bad.get_text("n"), "n: expected text, found 5"),
        (lambda bad: bad.get_list("n"), "n: expected a list, found 5"),
        (lambda bad: bad.get_section("n"), "n: expected an object, found 5"),
        (lambda bad: bad.get_texts("list"), "list: expected a list of text, found 1 in it"),
        (lambda bad: bad.get_ints("words"), "words: expected a list of whole numbers, found 'a' in it"),
        (lambda bad: bad.get_ints("flags"), "flags: expected a list of whole numbers, found True in it"),
    ],
)
def test_a_value_of_another_type_is_told_by_key(read: Any, told: str) -> None:
    with pytest.raises(ModelError) as refused:
        read(fields(n=5, list=[1], words=["a"], flags=[True]))
    assert str(refused.value) == f"config.json: {told}"


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ModelError) as refused:
        fields(n="x" * 1_000_000).require_int("n")
    assert len(str(refused.value)) < 200


@given(value=JSON)
def test_whatever_a_value_is_it_is_read_or_told(value: object) -> None:
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
