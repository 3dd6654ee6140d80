import pytest

from phasewatch.models.costs import AttentionCosts, Experts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads

DENSE = WeightReads(dense_bytes=15e9, dense_parameters=7.5e9, head_parameters=0.5e9)


def mixture(total: int, per_token: int) -> WeightReads:
    return WeightReads(0.0, 0.0, experts=(Experts(total, per_token, bytes_each=1.0, parameters_each=0.5),))


def test_a_dense_model_is_read_once_whatever_the_batch() -> None:
    for tokens in (0.0, 1.0, 8.0, 1000.0):
        assert DENSE.compute_bytes_per_step(tokens) == 15e9, tokens


def test_a_batch_touches_the_union_of_the_experts_of_its_tokens() -> None:
    cases = [
        (8, 2, (2, 3.5, 5.5, 7.2, 7.9, 8, 8, 8)),
        (128, 8, (8, 15.5, 29, 52, 82, 112, 126, 128)),
        (32, 4, (4, 7.5, 13, 21, 28, 32, 32, 32)),
        (128, 4, (4, 7.9, 15, 29, 51, 82, 111, 126)),
        (256, 8, (8, 15.8, 31, 57, 102, 163, 222, 252)),
        (384, 8, (8, 15.8, 31, 60, 110, 188, 284, 358)),
    ]
    for total, per_token, touched in cases:
        reads = mixture(total, per_token)
        for power, expected in enumerate(touched):
            assert reads.compute_bytes_per_step(2**power) == pytest.approx(
                expected, abs=0.51 if expected > 10 else 0.051
            ), (
                per_token,
                touched,
            )


def test_rejected_drafts_touch_as_many_experts_as_documented() -> None:
    accepted, verified = (mixture(128, 8).compute_bytes_per_step(tokens) for tokens in (3.1, 6.4))
    assert (round(accepted), round(verified)) == (23, 43)


def test_less_than_one_token_per_step_reads_the_experts_of_one() -> None:
    assert mixture(128, 8).compute_bytes_per_step(0.25) == pytest.approx(8)


def test_active_parameters_are_dense_parameters_plus_those_of_one_tokens_experts() -> None:
    assert DENSE.compute_active_parameters() == 7.5e9
    assert mixture(128, 8).compute_active_parameters() == 4.0


def test_active_parameters_are_unknown_if_any_of_them_are() -> None:
    assert WeightReads(15e9, None).compute_active_parameters() is None
    assert WeightReads(1.0, 1.0, experts=(Experts(8, 2, 1.0, None),)).compute_active_parameters() is None


def test_a_cache_of_an_unknown_data_type_has_a_shape_but_no_size() -> None:
    cache = KvCache((KvLayers(100.0), KvLayers(0.0, None, 132.0)), None, ModelSource.CONFIG_JSON)
    assert cache.compute_bytes_per_token() is None
    assert cache.read_bytes(10) is None


def test_fixed_bytes_per_token_do_not_depend_on_the_data_type() -> None:
    for size in (1.0, 2.0):
        cache = KvCache((KvLayers(500.0, span=10), KvLayers(0.0, None, 132.0)), size, ModelSource.CONFIG_JSON)
        assert cache.compute_bytes_per_token() == 500 * size + 132
        assert cache.read_bytes(100) == 5000 * size + 13_200


def test_a_window_bounds_attention_unless_it_exceeds_the_context() -> None:
    costs = ModelCosts(attention=(AttentionCosts(3.0), AttentionCosts(5.0, span=1024), AttentionCosts(7.0, 262_144)))
    assert costs.compute_attention_operations(1000) == 15 * 1000
    assert costs.compute_attention_operations(131_072) == 10 * 131_072 + 5 * 1024
    assert ModelCosts().compute_attention_operations(1000) is None


def test_stream_bytes_are_all_weights_except_skipped_experts() -> None:
    routed = WeightReads(7e9, 3.5e9, experts=(Experts(8, 2, bytes_each=1e9, parameters_each=0.5e9),))
    assert ModelCosts(weight_bytes=16e9, reads=DENSE).compute_stream_bytes() == 16e9
    assert ModelCosts(weight_bytes=16e9).compute_stream_bytes() == 16e9
    assert ModelCosts(reads=DENSE).compute_stream_bytes() is None
    assert ModelCosts(weight_bytes=16e9, reads=routed).compute_stream_bytes() == 10e9
    assert ModelCosts(weight_bytes=12e9, reads=routed).compute_stream_bytes() == 9e9


def test_stream_bytes_of_a_sparse_model_with_unknown_experts_are_its_reads_if_known() -> None:
    assert ModelCosts(weight_bytes=16e9, sparse=True).compute_stream_bytes() is None
    assert ModelCosts(weight_bytes=16e9, reads=WeightReads(3e9, None), sparse=True).compute_stream_bytes() == 3e9


def test_a_window_bounds_the_bytes_read_but_not_those_of_another_token() -> None:
    cache = KvCache((KvLayers(100.0), KvLayers(500.0, span=1024)), 2.0, ModelSource.CONFIG_JSON)
    assert cache.compute_bytes_per_token() == 1200
    assert cache.read_bytes(1000) == 1200 * 1000
    assert cache.read_bytes(8192) == 200 * 8192 + 1000 * 1024
