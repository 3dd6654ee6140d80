from typing import Any

from phasewatch.models.costs import AttentionCosts, KvLayers
from phasewatch.models.fields import JsonFields
from phasewatch.models.shape.gguf_attention import compute_cache_and_attention, count_layers
from tests.support.model_folders import refusal

PLAIN: dict[str, Any] = {
    "block_count": 4,
    "embedding_length": 512,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
}


def info(**changes: Any) -> JsonFields:
    """Keys of a file; a double underscore stands for a dot."""
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return JsonFields({**PLAIN, **keys}, "/api/show: model_info.arch.")


def cached_layers(architecture: str = "llama", **changes: Any) -> tuple[KvLayers, ...]:
    return compute_cache_and_attention(architecture, info(**changes))[0].layers


def test_keys_and_values_are_cached_for_each_key_head() -> None:
    cache, attention = compute_cache_and_attention("llama", info())
    assert cache.layers == (KvLayers(4.0 * 2 * 2 * 64),)
    assert cache.compute_bytes_per_token() == 2 * 4 * 2 * 2 * 64
    assert attention == (AttentionCosts(4.0 * 4 * 8 * 64),)


def test_keys_and_values_may_have_different_sizes() -> None:
    assert cached_layers(attention__key_length=192, attention__value_length=128) == (KvLayers(4.0 * 2 * (192 + 128)),)


def test_a_model_without_a_number_of_key_heads_has_as_many_as_query_heads() -> None:
    assert cached_layers(attention__head_count_kv=None) == (KvLayers(4.0 * 8 * 128),)


def test_layers_without_key_heads_cache_nothing() -> None:
    assert cached_layers(attention__head_count_kv=[0, 2, 0, 4], ssm__state_size=16) == (KvLayers((2 + 4) * 128.0),)


def test_layers_for_speculative_decoding_do_not_count() -> None:
    assert count_layers(info(block_count=5, nextn_predict_layers=1)) == 4
    assert cached_layers(block_count=5, nextn_predict_layers=1) == cached_layers()
    assert (
        cached_layers(block_count=5, nextn_predict_layers=1, attention__head_count_kv=[2, 2, 2, 2, 2])
        == cached_layers()
    )
    assert count_layers(info(block_count=1, nextn_predict_layers=10**6)) == 1


def test_in_a_hybrid_every_nth_layer_attends() -> None:
    assert cached_layers("qwen3next", full_attention_interval=4, ssm__state_size=16) == (KvLayers(1.0 * 2 * 128),)


def test_a_parallel_hybrid_attends_in_every_layer() -> None:
    assert cached_layers("falcon-h1", ssm__state_size=16) == cached_layers()


def test_layers_with_a_sliding_window_are_grouped_apart() -> None:
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("gemma2", {}, 2),
        ("gemma3", {"block_count": 6}, 5),
        ("gpt-oss", {}, 2),
        ("gptoss", {}, 2),
        ("cohere2", {}, 3),
        ("anything", {"attention__sliding_window_pattern": [True, False, True, True]}, 3),
        ("anything", {"attention__sliding_window_pattern": 2}, 2),
        ("anything", {"attention__sliding_window_pattern": 1}, 0),
    ]
    for architecture, changes, sliding in cases:
        keys = {"block_count": 4, "attention__sliding_window": 1024, **changes}
        by_span = {kind.span: kind.elements_per_token / 256 for kind in cached_layers(architecture, **keys)}
        assert by_span.get(1024, 0) == sliding, (architecture, changes)
        assert by_span[None] == keys["block_count"] - sliding, (architecture, changes)


def test_sliding_window_layers_may_have_another_head_size() -> None:
    pattern = [True, True, True, False]
    sizes = {"attention__key_length": 512, "attention__value_length": 512}
    narrow = {"attention__key_length_swa": 256, "attention__value_length_swa": 256}
    layers = cached_layers(
        "gemma4", attention__sliding_window=8, attention__sliding_window_pattern=pattern, **sizes, **narrow
    )
    assert set(layers) == {KvLayers(3.0 * 2 * 512, 8), KvLayers(1.0 * 2 * 1024)}


def test_sliding_window_layers_attend_to_their_window() -> None:
    sliding = info(attention__sliding_window=8, attention__sliding_window_pattern=[True, True, True, False])
    _, attention = compute_cache_and_attention("gemma4", sliding)
    assert set(attention) == {AttentionCosts(3.0 * 4 * 8 * 64, 8), AttentionCosts(1.0 * 4 * 8 * 64)}


def test_latent_attention_caches_one_vector() -> None:
    latent = {"attention__kv_lora_rank": 512, "rope__dimension_count": 64, "attention__head_count_kv": 1}
    sizes = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    cache, attention = compute_cache_and_attention("deepseek2", info(**latent, **sizes))
    assert cache.layers == (KvLayers(4.0 * 576),)
    assert attention == (AttentionCosts(2.0 * 4 * 8 * 320),)


def test_an_invalid_or_unsupported_key_is_reported() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("llama", {"block_count": None}, "block_count: missing; expected a whole number above 0"),
        ("llama", {"block_count": 10**9}, "block_count: expected at most 10000, found 1000000000"),
        (
            "llama",
            {"attention__head_count": -8},
            "attention.head_count: expected a whole number of 0 or more, found -8",
        ),
        (
            "llama",
            {"attention__head_count_kv": [2, 2]},
            "attention.head_count_kv: expected one entry for each of 4 layers, found 2",
        ),
        ("llama", {"attention__head_count": 7}, "attention.head_count: 7 does not divide the embedding_length of 512"),
        ("llama", {"embedding_length": None}, "embedding_length: missing; expected a whole number above 0"),
        (
            "mamba",
            {"attention__head_count": 0, "attention__head_count_kv": 0},
            "attention.head_count_kv: no layer keeps anything of single tokens",
        ),
        (
            "gemma3n",
            {"attention__shared_kv_layers": 15},
            "attention.shared_kv_layers: layers that share keys and values are not counted yet",
        ),
        (
            "jamba",
            {"ssm__state_size": 16},
            "attention.head_count_kv: which of the layers attend is not told; expected a list",
        ),
        (
            "newcomer",
            {"attention__sliding_window": 8},
            "attention.sliding_window: which layers of 'newcomer' slide is not told",
        ),
        (
            "newcomer",
            {"attention__sliding_window": 8, "attention__sliding_window_pattern": [True]},
            "attention.sliding_window_pattern: expected true or false for each of 4 layers",
        ),
        ("llama4", {}, "attention.chunk_size: attention in chunks is not counted yet"),
        (
            "deepseek2",
            {"attention__kv_lora_rank": 512},
            "attention.key_length_mla: missing; expected a whole number above 0",
        ),
        (
            "deepseek32",
            {"attention__indexer__top_k": 2048},
            "attention.indexer: attention that chooses tokens by an index is not counted yet",
        ),
    ]
    for architecture, changes, expected in cases:
        message = refusal(cached_layers, architecture, **changes)
        assert message == f"/api/show: model_info.arch.{expected}", (architecture, changes)
