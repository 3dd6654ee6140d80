from typing import Any

import pytest

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelSource
from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import read_architecture
from phasewatch.models.shape.cache_types import apply_cache_dtype
from phasewatch.models.shape.kv import compute_attention_costs, compute_kv_cache, read_element_bytes
from tests.support.model_folders import load_config, load_model, refusal
from tests.support.paths import MODELS

CACHE = KvCache((KvLayers(1000.0),), 2.0, ModelSource.CONFIG_JSON)


def test_a_token_takes_the_published_bytes_of_its_architecture() -> None:
    cases = [
        ("llama-recordings", 23_040),
        ("llama-2-7b", 524_288),
        ("llama-3.1-8b", 131_072),
        ("llama-3.3-70b", 327_680),
        ("mistral-7b-v0.1", 131_072),
        ("mistral-small-24b", 163_840),
        ("mixtral-8x7b", 131_072),
        ("qwen2.5-7b", 57_344),
        ("qwen3-0.6b", 114_688),
        ("qwen3-8b", 147_456),
        ("qwen3-32b", 262_144),
        ("qwen3-30b-a3b", 98_304),
        ("qwen3-235b-a22b", 192_512),
        ("deepseek-v3", 70_272),
        ("kimi-k2", 70_272),
        ("glm-4.5", 376_832),
        ("glm-4.5-air", 188_416),
        ("gpt-oss-20b", 49_152),
        ("gpt-oss-120b", 73_728),
        ("gemma-3-27b", 507_904),
        ("qwen3-next-80b-a3b", 24_576),
        ("qwen3.5-35b-a3b", 20_480),
        ("jamba-mini", 16_384),
    ]
    for name, expected in cases:
        assert compute_kv_cache(load_model(name)).compute_bytes_per_token() == expected, name
        assert apply_cache_dtype(compute_kv_cache(load_model(name)), "fp8").compute_bytes_per_token() == expected / 2, (
            name
        )


def test_layers_with_a_sliding_window_are_grouped_apart() -> None:
    cases: list[tuple[str, int | None, int]] = [
        ("gemma-3-27b", None, 81_920),
        ("gemma-3-27b", 1024, 425_984),
        ("gpt-oss-20b", None, 24_576),
        ("gpt-oss-20b", 128, 24_576),
        ("gpt-oss-120b", 128, 36_864),
        ("llama-4-scout", None, 49_152),
        ("llama-4-scout", 8192, 147_456),
        ("mistral-7b-v0.1", 4096, 131_072),
    ]
    for name, span, expected in cases:
        cache = compute_kv_cache(load_model(name))
        assert cache.bytes_per_element == 2, (name, span)
        assert 2 * sum(k.elements_per_token for k in cache.layers if k.span == span) == expected, (name, span)


def test_a_step_reads_no_more_than_the_windows_span() -> None:
    cases = [
        ("gemma-3-27b", 8192, 1.11),
        ("gemma-3-27b", 131_072, 11.2),
        ("gpt-oss-120b", 32_768, 1.21),
        ("llama-3.1-8b", 2000, 0.26),
    ]
    for name, context, gigabytes in cases:
        assert compute_kv_cache(load_model(name)).read_bytes(context) == pytest.approx(gigabytes * 1e9, rel=0.01), (
            name,
            context,
        )


def test_the_index_is_read_for_every_token_and_latent_vectors_for_selected_tokens() -> None:
    cache = compute_kv_cache(load_model("deepseek-v3", model_type="deepseek_v32", index_topk=2048, index_head_dim=128))
    assert cache.layers == (KvLayers(61.0 * 576, span=2048), KvLayers(0.0, None, 61.0 * (128 + 4)))
    assert cache.compute_bytes_per_token() == 61 * (2 * 576 + 132)
    assert apply_cache_dtype(cache, "fp8").compute_bytes_per_token() == 61 * (576 + 132)


def test_every_published_model_has_a_cache_and_operations() -> None:
    for name in sorted(path.stem for path in MODELS.glob("*.json")):
        assert compute_kv_cache(load_model(name)).source is ModelSource.CONFIG_JSON, name
        assert compute_attention_costs(load_model(name)) is not None, name


def test_a_model_that_caches_nothing_per_token_has_no_kv_cache() -> None:
    recurrent = {"model_type": "granitemoehybrid", "layer_types": ["mamba"], "num_attention_heads": 1}
    with pytest.raises(ModelError, match="no layer keeps anything"):
        compute_kv_cache(read_architecture({**recurrent, "num_key_value_heads": 1}))


def test_a_data_type_has_its_element_size() -> None:
    cases = [
        ("auto", 2.0),
        ("AUTO", 2.0),
        ("bfloat16", 2.0),
        ("float16", 2.0),
        ("f16", 2.0),
        ("fp8", 1.0),
        ("fp8_e4m3", 1.0),
        ("fp8_e5m2", 1.0),
        ("fp8_inc", 1.0),
        ("int8", 1.0),
        ("q8_0", 1.0625),
        ("q4_0", 0.5625),
        ("float32", 4.0),
        ("f32", 4.0),
        ("half", 2.0),
        ("q5_0", 0.6875),
        ("q5_1", 0.75),
        ("q4_1", 0.625),
        ("iq4_nl", 0.5625),
    ]
    for name, size in cases:
        assert apply_cache_dtype(CACHE, name) == KvCache(CACHE.layers, size, CACHE.source), name


def test_an_unknown_data_type_leaves_the_shape_without_an_element_size() -> None:
    for name in ("", "fp4", "nvfp4", "fp8_ds_mla", "turboquant_k8v4", "float16 ", "2"):
        unknown = apply_cache_dtype(CACHE, name)
        assert unknown == KvCache(CACHE.layers, None, CACHE.source), name
        assert apply_cache_dtype(unknown, "fp8") == KvCache(CACHE.layers, 1.0, CACHE.source), name


def test_the_cache_of_a_16_bit_model_has_16_bit_elements() -> None:
    cases: list[str | None] = ["bfloat16", "float16", "torch.bfloat16", None]
    for dtype in cases:
        assert compute_kv_cache(load_model("llama-3.1-8b", torch_dtype=dtype)).bytes_per_element == 2, dtype
        assert compute_kv_cache(load_model("llama-3.1-8b", torch_dtype=None, dtype=dtype)).bytes_per_element == 2, dtype


def test_an_element_size_that_the_file_does_not_determine_is_unknown() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"torch_dtype": "float32"}, "dtype: expected bfloat16 or float16, found 'float32'"),
        ({"torch_dtype": 16}, "torch_dtype: expected text, found 16"),
        (
            {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
            "quantization_config.kv_cache_scheme: whether the server follows it is not known; set model.kv_cache_dtype",
        ),
    ]
    for changes, expected in cases:
        undecided = load_model("llama-3.1-8b", **changes)
        message = refusal(read_element_bytes, undecided)
        assert message == f"config.json: {expected}", changes
        cache = compute_kv_cache(undecided)
        assert (cache.bytes_per_element, cache.layers) == (None, compute_kv_cache(load_model("llama-3.1-8b")).layers), (
            changes
        )


def test_a_quantised_cache_may_be_requested_by_the_nested_section_or_the_whole_file() -> None:
    asked = {"quantization_config": {"kv_cache_quant_algo": "FP8"}}
    document = load_config("llama-3.1-8b")
    for changed in ({**document, "text_config": document | asked}, {**document, **asked, "text_config": document}):
        with pytest.raises(ModelError, match=r"kv_cache_quant_algo: whether the server follows it is not known"):
            read_element_bytes(read_architecture(changed))


def test_attention_takes_4_operations_per_head_element_within_the_window() -> None:
    cases: list[tuple[str, dict[int | None, float]]] = [
        ("llama-3.1-8b", {None: 4 * 32 * 32 * 128}),
        ("gemma-3-27b", {None: 4 * 10 * 32 * 128, 1024: 4 * 52 * 32 * 128}),
        ("qwen3-next-80b-a3b", {None: 4 * 12 * 16 * 256}),
        ("deepseek-v3", {None: 2 * 61 * 128 * (128 + 64 + 128)}),
        ("mistral-7b-v0.1", {4096: 4 * 32 * 32 * 128}),
    ]
    for name, expected in cases:
        assert set(compute_attention_costs(load_model(name)) or ()) == {
            AttentionCosts(cost, span) for span, cost in expected.items()
        }, name


def test_operations_are_unknown_with_selected_tokens_or_an_unknown_head_size() -> None:
    cases: list[dict[str, Any]] = [{"index_topk": 2048, "index_head_dim": 128}, {"v_head_dim": ...}]
    for changes in cases:
        assert compute_attention_costs(load_model("deepseek-v3", **changes)) is None, changes
