from phasewatch.base.optional import add, average, multiply


def test_what_is_known_is_computed() -> None:
    assert (add(2.0, 3.0), multiply(2.0, 3.0), average(2.0, 3.0)) == (5, 6, 2.5)
    assert (add(0.0, 0.0), multiply(0.0, 3.0), average(0.0, 0.0)) == (0, 0, 0)


def test_what_follows_from_an_unknown_figure_is_unknown() -> None:
    for sides in ((None, 1.0), (1.0, None), (None, 0.0), (None, None)):
        assert (add(*sides), multiply(*sides), average(*sides)) == (None, None, None), sides
