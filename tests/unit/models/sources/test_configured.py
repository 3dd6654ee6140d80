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


def test_without_a_word_nothing_changes() -> None:
    assert apply_model_settings(DENSE, ModelSettings()) == DENSE
    assert apply_model_settings(ModelCosts(), ModelSettings()) == ModelCosts()


def test_told_weights_alone_say_nothing_of_what_is_read() -> None:
    told = apply_model_settings(ModelCosts(), ModelSettings(weights=16e9))
    assert told == ModelCosts(weight_bytes=16e9, weight_source=ModelSource.CONFIG)


@pytest.mark.parametrize("weights", [15.75e9, 16e9, 16.3e9])
@pytest.mark.parametrize("costs", [DENSE, MIXTURE])
def test_told_weights_that_agree_keep_what_is_known_to_be_read(costs: ModelCosts, weights: float) -> None:
    told = apply_model_settings(costs, ModelSettings(weights=weights))
    assert (told.weight_bytes, told.weight_source) == (weights, ModelSource.CONFIG)
    assert told.reads == costs.reads


def test_of_other_weights_of_a_dense_model_all_is_read_but_what_was_not() -> None:
    told = apply_model_settings(DENSE, ModelSettings(weights=5.7e9))
    assert told.reads is not None
    assert told.reads.dense_bytes == pytest.approx(4.7e9)
    assert told.reads.active_parameters() == 7.5e9


def test_of_other_weights_of_a_mixture_what_is_read_is_unknown_unless_told() -> None:
    unknown = apply_model_settings(MIXTURE, ModelSettings(weights=5.7e9))
    assert (unknown.reads, unknown.weight_bytes, unknown.stream_bytes()) == (None, 5.7e9, None)
    told = apply_model_settings(MIXTURE, ModelSettings(weights=9e9, weights_read=4.5e9))
    experts = (Experts(8, 2, bytes_each=0.5e9, parameters_each=0.5e9),)
    assert told.reads == WeightReads(3.5e9, 3.5e9, experts=experts)
    assert told.stream_bytes() == 9e9 - 6 * 0.5e9


def test_a_mixture_of_which_one_stream_reads_less_reads_more_for_a_batch_all_the_same() -> None:
    told = apply_model_settings(MIXTURE, ModelSettings(weights_read=3e9)).reads
    assert told is not None
    assert MIXTURE.reads is not None
    assert told.bytes_per_step() == pytest.approx(3e9)
    for tokens in (2, 8, 64):
        assert told.bytes_per_step(tokens) == pytest.approx(MIXTURE.reads.bytes_per_step(tokens) / 3)


def test_of_a_mixture_in_another_format_the_total_that_was_found_is_not_true() -> None:
    told = apply_model_settings(MIXTURE, ModelSettings(weights_read=3e9))
    assert (told.weight_bytes, told.weight_source, told.stream_bytes()) == (None, None, None)
    same = apply_model_settings(MIXTURE, ModelSettings(weights_read=9.1e9))
    assert (same.weight_bytes, same.weight_source) == (16e9, ModelSource.INDEX)


def test_a_stream_is_never_taken_to_be_limited_by_less_than_it_reads() -> None:
    # The rest of the mixture would be 6 experts of 1.67 GB, which leaves nothing of 10 GB.
    told = apply_model_settings(MIXTURE, ModelSettings(weights=10e9, weights_read=15e9))
    assert told.stream_bytes() == pytest.approx(15e9)


@pytest.mark.parametrize(("read", "stream"), [(2.57e9, 2.57e9), (6.0e9, 6.0e9), (6.1e9, 12.1e9)])
def test_figures_of_which_less_than_half_is_read_are_those_of_a_mixture(read: float, stream: float) -> None:
    assert apply_model_settings(ModelCosts(), ModelSettings(weights=12.1e9, weights_read=read)).stream_bytes() == stream


def test_parameters_no_more_than_those_of_the_head_are_told_and_not_used() -> None:
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


@pytest.mark.parametrize("weights", [0.9e9, 1e9])
def test_of_weights_no_larger_than_what_is_not_read_nothing_is_known(weights: float) -> None:
    assert apply_model_settings(DENSE, ModelSettings(weights=weights)).reads is None


def test_of_other_weights_of_an_unknown_total_nothing_is_known() -> None:
    assert apply_model_settings(ModelCosts(reads=READS), ModelSettings(weights=16e9)).reads is None


def test_what_is_told_to_be_read_beats_everything() -> None:
    assert apply_model_settings(DENSE, ModelSettings(weights_read=14e9)).reads == WeightReads(14e9, 7.5e9, 0.5e9)
    assert apply_model_settings(ModelCosts(), ModelSettings(weights_read=14e9)).reads == WeightReads(14e9, None)


@pytest.mark.parametrize("costs", [DENSE, MIXTURE])
def test_told_active_parameters_are_the_active_ones(costs: ModelCosts) -> None:
    told = apply_model_settings(costs, ModelSettings(active_parameters=8e9)).reads
    assert told is not None
    assert costs.reads is not None
    assert told.active_parameters() == 8e9
    assert told.bytes_per_step(4) == costs.reads.bytes_per_step(4)
    told = apply_model_settings(ModelCosts(), ModelSettings(weights_read=14e9, active_parameters=8e9)).reads
    assert told == WeightReads(14e9, 8e9)


def test_told_bytes_per_token_beat_the_shapes_but_windows_stay() -> None:
    cache = apply_model_settings(DENSE, ModelSettings(kv_cache_bytes_per_token=50_000, kv_cache_dtype="fp8")).kv_cache
    assert cache is not None
    assert cache.source is ModelSource.CONFIG
    assert cache.bytes_per_token() == 50_000
    assert cache.read_bytes(2048) == pytest.approx(20_000 * 2048 + 30_000 * 1024)


def test_told_bytes_per_token_of_an_unknown_model_are_those_of_all_layers() -> None:
    cache = apply_model_settings(ModelCosts(), ModelSettings(kv_cache_bytes_per_token=131_072)).kv_cache
    assert cache == KvCache((KvLayers(131_072),), 1.0, ModelSource.CONFIG)


def test_a_told_data_type_gives_the_elements_of_a_known_shape_their_size() -> None:
    assert DENSE.kv_cache is not None
    unsettled = replace(DENSE, kv_cache=replace(DENSE.kv_cache, bytes_per_element=None))
    for costs in (DENSE, unsettled):
        narrow = apply_model_settings(costs, ModelSettings(kv_cache_dtype="fp8")).kv_cache
        assert narrow is not None
        assert narrow.bytes_per_token() == 100_000
    assert apply_model_settings(ModelCosts(), ModelSettings(kv_cache_dtype="fp8")).kv_cache is None


def test_told_bytes_per_token_are_shared_by_kinds_of_layers_as_what_they_keep() -> None:
    indexed = KvCache((KvLayers(450.0, span=10), KvLayers(0.0, None, 100.0)), 2.0, ModelSource.CONFIG_JSON)
    for cache in (indexed, replace(indexed, bytes_per_element=None)):
        told = apply_model_settings(ModelCosts(kv_cache=cache), ModelSettings(kv_cache_bytes_per_token=500)).kv_cache
        assert told is not None
        assert told.bytes_per_token() == pytest.approx(500)
        assert told.read_bytes(100) == pytest.approx(450 * 10 + 50 * 100)


def test_what_nothing_is_said_about_stays() -> None:
    told = apply_model_settings(DENSE, ModelSettings(weights=16e9, weights_read=15e9, kv_cache_bytes_per_token=1))
    assert told.attention_operations(1) == 524_288.0
