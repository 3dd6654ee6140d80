import pytest

from phasewatch.base.optional import mean, product, total


def test_what_is_known_is_computed() -> None:
    assert (total(2.0, 3.0), product(2.0, 3.0), mean(2.0, 3.0)) == (5, 6, 2.5)
    assert (total(0.0, 0.0), product(0.0, 3.0), mean(0.0, 0.0)) == (0, 0, 0)


@pytest.mark.parametrize("sides", [(None, 1.0), (1.0, None), (None, 0.0), (None, None)])
def test_what_follows_from_an_unknown_figure_is_unknown(sides: tuple[float | None, float | None]) -> None:
    assert (total(*sides), product(*sides), mean(*sides)) == (None, None, None)
