import pytest

from phasewatch.models.errors import ModelError, Reasons


def fails() -> int:
    raise ModelError("config.json: n: missing")


def test_a_computation_that_succeeds_leaves_no_reason() -> None:
    reasons = Reasons()
    assert reasons.attempt(lambda: 5) == 5
    assert reasons.as_tuple() == ()


def test_each_reason_is_kept_once_in_order() -> None:
    reasons = Reasons()
    reasons.add("first")
    assert reasons.attempt(fails) is None
    assert reasons.attempt(fails) is None
    assert reasons.as_tuple() == ("first", "config.json: n: missing")


def test_other_errors_are_not_caught() -> None:
    with pytest.raises(ZeroDivisionError):
        Reasons().attempt(lambda: 1 // 0)
