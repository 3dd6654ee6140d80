from phasewatch.base.optional import add, average, compute_share, multiply


def test_arithmetic_on_known_operands_is_plain() -> None:
    assert (add(2.0, 3.0), multiply(2.0, 3.0), average(2.0, 3.0)) == (5, 6, 2.5)
    assert (add(0.0, 0.0), multiply(0.0, 3.0), average(0.0, 0.0)) == (0, 0, 0)


def test_the_result_is_none_if_any_operand_is() -> None:
    for sides in ((None, 1.0), (1.0, None), (None, 0.0), (None, None)):
        assert (add(*sides), multiply(*sides), average(*sides)) == (None, None, None), sides


def test_a_share_above_1_is_none() -> None:
    rows = [(1.0, 4.0, 0.25), (4.0, 4.0, 1.0), (5.0, 4.0, None), (0.0, 0.0, None), (None, 4.0, None), (1.0, None, None)]
    for part, whole, share in rows:
        assert compute_share(part, whole) == share, (part, whole)
