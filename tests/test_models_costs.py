import pytest

from phasewatch.models.costs import Experts, KvCache, KvLayers, Source, WeightReads

DENSE = WeightReads(dense_bytes=15e9, dense_parameters=7.5e9, head_parameters=0.5e9)


def mixture(total: int, per_token: int) -> WeightReads:
    return WeightReads(0.0, 0.0, experts=(Experts(total, per_token, bytes_each=1.0, parameters_each=0.5),))


@pytest.mark.parametrize("tokens", [0.0, 1.0, 8.0, 1000.0])
def test_a_dense_model_is_read_once_whatever_the_batch(tokens: float) -> None:
    assert DENSE.bytes_per_step(tokens) == 15e9


@pytest.mark.parametrize(
    ("total", "per_token", "touched"),
    [
        (8, 2, (2, 3.5, 5.5, 7.2, 7.9, 8, 8, 8)),
        (128, 8, (8, 15.5, 29, 52, 82, 112, 126, 128)),
        (32, 4, (4, 7.5, 13, 21, 28, 32, 32, 32)),
        (128, 4, (4, 7.9, 15, 29, 51, 82, 111, 126)),
        (256, 8, (8, 15.8, 31, 57, 102, 163, 222, 252)),
        (384, 8, (8, 15.8, 31, 60, 110, 188, 284, 358)),
    ],
)
def test_a_batch_touches_the_union_of_the_experts_of_its_tokens(
    total: int, per_token: int, touched: tuple[float, ...]
) -> None:
    reads = mixture(total, per_token)
    for power, expected in enumerate(touched):
        assert reads.bytes_per_step(2**power) == pytest.approx(expected, abs=0.51 if expected > 10 else 0.051)


def test_less_than_one_token_a_step_still_reads_the_experts_of_one() -> None:
    assert mixture(128, 8).bytes_per_step(0.25) == pytest.approx(8)


def test_active_parameters_are_the_dense_ones_and_those_of_the_experts_of_one_token() -> None:
    assert DENSE.active_parameters() == 7.5e9
    assert mixture(128, 8).active_parameters() == 4.0


def test_active_parameters_are_unknown_if_a_part_of_them_is() -> None:
    assert WeightReads(15e9, None).active_parameters() is None
    assert WeightReads(1.0, 1.0, experts=(Experts(8, 2, 1.0, None),)).active_parameters() is None


def test_a_window_bounds_what_is_read_but_not_what_another_token_takes() -> None:
    cache = KvCache((KvLayers(100.0), KvLayers(500.0, span=1024)), 2.0, Source.CONFIG_JSON)
    assert cache.bytes_per_token() == 1200
    assert cache.read_bytes(1000) == 1200 * 1000
    assert cache.read_bytes(8192) == 200 * 8192 + 1000 * 1024
