from dataclasses import replace

import pytest

from phasewatch.models.costs import AttentionCosts, Experts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from phasewatch.models.settings import ModelSettings
from phasewatch.models.sources.configured import apply_model_settings, describe_unfit_parameters

READS = WeightReads(dense_bytes=15e9, dense_parameters=7.5e9, head_parameters=0.5e9)
DENSE = ModelCosts(
    weight_bytes=16e9,
    weight_source=ModelSource.SAFETENSORS,
    reads=READS,
    kv_cache=KvCache((KvLayers(40_000.0), KvLayers(60_000.0, span=1024)), 2.0, ModelSource.CONFIG_JSON),
    attention=(AttentionCosts(524_288.0),),
)
MIXTURE = ModelCosts(
    weight_bytes=16e9,
    weight_source=ModelSource.INDEX,
    reads=WeightReads(7e9, 3.5e9, experts=(Experts(8, 2, bytes_each=1e9, parameters_each=0.5e9),)),
)


def test_without_settings_nothing_changes() -> None:
    assert apply_model_settings(DENSE, ModelSettings()) == DENSE
    assert apply_model_settings(ModelCosts(), ModelSettings()) == ModelCosts()


def test_configured_weights_alone_do_not_determine_the_reads() -> None:
    configured = apply_model_settings(ModelCosts(), ModelSettings(weights=16e9))
    assert configured == ModelCosts(weight_bytes=16e9, weight_source=ModelSource.CONFIG)


def test_configured_weights_that_agree_with_the_files_keep_their_reads() -> None:
    costss: list[ModelCosts] = [DENSE, MIXTURE]
    for weights in (15.75e9, 16e9, 16.3e9):
        for costs in costss:
            configured = apply_model_settings(costs, ModelSettings(weights=weights))
            assert (configured.weight_bytes, configured.weight_source) == (weights, ModelSource.CONFIG), (
                weights,
                costs,
            )
            assert configured.reads == costs.reads, (weights, costs)


def test_a_dense_model_of_another_size_reads_all_but_the_same_unread_bytes() -> None:
    configured = apply_model_settings(DENSE, ModelSettings(weights=5.7e9))
    assert configured.reads is not None
    assert configured.reads.dense_bytes == pytest.approx(4.7e9)
    assert configured.reads.compute_active_parameters() == 7.5e9


def test_the_reads_of_a_mixture_of_another_size_are_unknown_unless_configured() -> None:
    unknown = apply_model_settings(MIXTURE, ModelSettings(weights=5.7e9))
    assert (unknown.reads, unknown.weight_bytes, unknown.compute_stream_bytes()) == (None, 5.7e9, None)
    configured = apply_model_settings(MIXTURE, ModelSettings(weights=9e9, weights_read=4.5e9))
    experts = (Experts(8, 2, bytes_each=0.5e9, parameters_each=0.5e9),)
    assert configured.reads == WeightReads(3.5e9, 3.5e9, experts=experts)
    assert configured.compute_stream_bytes() == 9e9 - 6 * 0.5e9


def test_configured_reads_of_a_mixture_still_grow_with_the_batch() -> None:
    configured = apply_model_settings(MIXTURE, ModelSettings(weights_read=3e9)).reads
    assert configured is not None
    assert MIXTURE.reads is not None
    assert configured.compute_bytes_per_step() == pytest.approx(3e9)
    for tokens in (2, 8, 64):
        assert configured.compute_bytes_per_step(tokens) == pytest.approx(
            MIXTURE.reads.compute_bytes_per_step(tokens) / 3
        )


def test_configured_reads_in_another_format_discard_the_total_of_a_mixture() -> None:
    configured = apply_model_settings(MIXTURE, ModelSettings(weights_read=3e9))
    assert (configured.weight_bytes, configured.weight_source, configured.compute_stream_bytes()) == (None, None, None)
    same = apply_model_settings(MIXTURE, ModelSettings(weights_read=9.1e9))
    assert (same.weight_bytes, same.weight_source) == (16e9, ModelSource.INDEX)


def test_stream_bytes_are_never_less_than_the_configured_reads() -> None:
    # The rest of the mixture would be 6 experts of 1.67 GB, which leaves nothing of 10 GB.
    configured = apply_model_settings(MIXTURE, ModelSettings(weights=10e9, weights_read=15e9))
    assert configured.compute_stream_bytes() == pytest.approx(15e9)


def test_configured_reads_below_half_of_the_weights_mean_a_mixture() -> None:
    for read, stream in ((2.57e9, 2.57e9), (6.0e9, 6.0e9), (6.1e9, 12.1e9)):
        assert (
            apply_model_settings(ModelCosts(), ModelSettings(weights=12.1e9, weights_read=read)).compute_stream_bytes()
            == stream
        ), stream


def test_active_parameters_that_do_not_exceed_the_head_are_reported_and_not_used() -> None:
    for absurd in (1.0, 0.5e9):
        settings = ModelSettings(active_parameters=absurd)
        assert apply_model_settings(DENSE, settings).reads == READS
        note = describe_unfit_parameters(DENSE, settings)
        assert note is not None
        assert note.startswith(
            f"model.active_parameters: not used: {absurd:.3g} are no more than the 5e+08 of the output"
        )
    assert describe_unfit_parameters(DENSE, ModelSettings(active_parameters=0.6e9)) is None
    assert describe_unfit_parameters(DENSE, ModelSettings()) is None
    assert describe_unfit_parameters(ModelCosts(), ModelSettings(active_parameters=1.0)) is None


def test_weights_no_larger_than_the_unread_bytes_leave_the_reads_unknown() -> None:
    for weights in (0.9e9, 1e9):
        assert apply_model_settings(DENSE, ModelSettings(weights=weights)).reads is None, weights


def test_configured_weights_leave_the_reads_unknown_if_the_total_of_the_files_is() -> None:
    assert apply_model_settings(ModelCosts(reads=READS), ModelSettings(weights=16e9)).reads is None


def test_configured_reads_override_everything() -> None:
    assert apply_model_settings(DENSE, ModelSettings(weights_read=14e9)).reads == WeightReads(14e9, 7.5e9, 0.5e9)
    assert apply_model_settings(ModelCosts(), ModelSettings(weights_read=14e9)).reads == WeightReads(14e9, None)


def test_configured_active_parameters_are_used() -> None:
    cases: list[ModelCosts] = [DENSE, MIXTURE]
    for costs in cases:
        configured = apply_model_settings(costs, ModelSettings(active_parameters=8e9)).reads
        assert configured is not None, costs
        assert costs.reads is not None, costs
        assert configured.compute_active_parameters() == 8e9, costs
        assert configured.compute_bytes_per_step(4) == costs.reads.compute_bytes_per_step(4), costs
        configured = apply_model_settings(ModelCosts(), ModelSettings(weights_read=14e9, active_parameters=8e9)).reads
        assert configured == WeightReads(14e9, 8e9), costs


def test_configured_bytes_per_token_override_the_shapes_but_keep_their_windows() -> None:
    cache = apply_model_settings(DENSE, ModelSettings(kv_cache_bytes_per_token=50_000, kv_cache_dtype="fp8")).kv_cache
    assert cache is not None
    assert cache.source is ModelSource.CONFIG
    assert cache.compute_bytes_per_token() == 50_000
    assert cache.read_bytes(2048) == pytest.approx(20_000 * 2048 + 30_000 * 1024)


def test_configured_bytes_per_token_of_an_unknown_model_apply_to_all_layers() -> None:
    cache = apply_model_settings(ModelCosts(), ModelSettings(kv_cache_bytes_per_token=131_072)).kv_cache
    assert cache == KvCache((KvLayers(131_072),), 1.0, ModelSource.CONFIG)


def test_a_configured_data_type_sets_the_element_size_of_a_known_shape() -> None:
    assert DENSE.kv_cache is not None
    unsettled = replace(DENSE, kv_cache=replace(DENSE.kv_cache, bytes_per_element=None))
    for costs in (DENSE, unsettled):
        narrow = apply_model_settings(costs, ModelSettings(kv_cache_dtype="fp8")).kv_cache
        assert narrow is not None
        assert narrow.compute_bytes_per_token() == 100_000
    assert apply_model_settings(ModelCosts(), ModelSettings(kv_cache_dtype="fp8")).kv_cache is None


def test_configured_bytes_per_token_are_split_among_layers_by_their_shapes() -> None:
    indexed = KvCache((KvLayers(450.0, span=10), KvLayers(0.0, None, 100.0)), 2.0, ModelSource.CONFIG_JSON)
    for cache in (indexed, replace(indexed, bytes_per_element=None)):
        configured = apply_model_settings(
            ModelCosts(kv_cache=cache), ModelSettings(kv_cache_bytes_per_token=500)
        ).kv_cache
        assert configured is not None
        assert configured.compute_bytes_per_token() == pytest.approx(500)
        assert configured.read_bytes(100) == pytest.approx(450 * 10 + 50 * 100)


def test_figures_that_are_not_configured_are_kept() -> None:
    configured = apply_model_settings(DENSE, ModelSettings(weights=16e9, weights_read=15e9, kv_cache_bytes_per_token=1))
    assert configured.compute_attention_operations(1) == 524_288.0
