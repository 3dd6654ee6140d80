import pytest

from phasewatch.models.costs import AttentionCosts, Experts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads

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


def test_drafts_that_are_turned_down_touch_the_experts_that_the_docs_say() -> None:
    accepted, verified = (mixture(128, 8).bytes_per_step(tokens) for tokens in (3.1, 6.4))
    assert (round(accepted), round(verified)) == (23, 43)


def test_less_than_one_token_a_step_still_reads_the_experts_of_one() -> None:
    assert mixture(128, 8).bytes_per_step(0.25) == pytest.approx(8)


def test_active_parameters_are_the_dense_ones_and_those_of_the_experts_of_one_token() -> None:
    assert DENSE.active_parameters() == 7.5e9
    assert mixture(128, 8).active_parameters() == 4.0


def test_active_parameters_are_unknown_if_a_part_of_them_is() -> None:
    assert WeightReads(15e9, None).active_parameters() is None
    assert WeightReads(1.0, 1.0, experts=(Experts(8, 2, 1.0, None),)).active_parameters() is None


def test_a_cache_of_an_unknown_data_type_has_a_shape_and_no_bytes() -> None:
    cache = KvCache((KvLayers(100.0), KvLayers(0.0, None, 132.0)), None, ModelSource.CONFIG_JSON)
    assert cache.bytes_per_token() is None
    assert cache.read_bytes(10) is None


def test_what_is_kept_besides_takes_the_same_bytes_in_every_data_type() -> None:
    for size in (1.0, 2.0):
        cache = KvCache((KvLayers(500.0, span=10), KvLayers(0.0, None, 132.0)), size, ModelSource.CONFIG_JSON)
        assert cache.bytes_per_token() == 500 * size + 132
        assert cache.read_bytes(100) == 5000 * size + 13_200


def test_a_window_bounds_what_is_attended_to_and_one_beyond_any_context_does_not() -> None:
    costs = ModelCosts(attention=(AttentionCosts(3.0), AttentionCosts(5.0, span=1024), AttentionCosts(7.0, 262_144)))
    assert costs.attention_operations(1000) == 15 * 1000
    assert costs.attention_operations(131_072) == 10 * 131_072 + 5 * 1024
    assert ModelCosts().attention_operations(1000) is None


def test_a_stream_passes_all_weights_but_the_experts_that_it_leaves_alone() -> None:
    routed = WeightReads(7e9, 3.5e9, experts=(Experts(8, 2, bytes_each=1e9, parameters_each=0.5e9),))
    assert ModelCosts(weight_bytes=16e9, reads=DENSE).stream_bytes() == 16e9
    assert ModelCosts(weight_bytes=16e9).stream_bytes() == 16e9
    assert ModelCosts(reads=DENSE).stream_bytes() is None
    assert ModelCosts(weight_bytes=16e9, reads=routed).stream_bytes() == 10e9
    assert ModelCosts(weight_bytes=12e9, reads=routed).stream_bytes() == 9e9


def test_of_a_sparse_model_that_is_not_understood_it_is_not_known_what_a_stream_passes() -> None:
    assert ModelCosts(weight_bytes=16e9, sparse=True).stream_bytes() is None
    assert ModelCosts(weight_bytes=16e9, reads=WeightReads(3e9, None), sparse=True).stream_bytes() == 3e9


def test_a_window_bounds_what_is_read_but_not_what_another_token_takes() -> None:
    cache = KvCache((KvLayers(100.0), KvLayers(500.0, span=1024)), 2.0, ModelSource.CONFIG_JSON)
    assert cache.bytes_per_token() == 1200
    assert cache.read_bytes(1000) == 1200 * 1000
    assert cache.read_bytes(8192) == 200 * 8192 + 1000 * 1024
