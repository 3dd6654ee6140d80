from typing import Any

import pytest

from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelSource
from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import read_architecture
from phasewatch.models.shape.cache_types import apply_cache_dtype
from phasewatch.models.shape.kv import compute_attention_costs, compute_kv_cache, read_element_bytes
from tests.support.model_folders import load_config, load_model
from tests.support.paths import MODELS

CACHE = KvCache((KvLayers(1000.0),), 2.0, ModelSource.CONFIG_JSON)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
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
    ],
)
def test_a_token_takes_the_bytes_that_its_architecture_keeps(name: str, expected: int) -> None:
    assert compute_kv_cache(load_model(name)).bytes_per_token() == expected
    assert apply_cache_dtype(compute_kv_cache(load_model(name)), "fp8").bytes_per_token() == expected / 2


@pytest.mark.parametrize(
    ("name", "span", "expected"),
    [
        ("gemma-3-27b", None, 81_920),
        ("gemma-3-27b", 1024, 425_984),
        ("gpt-oss-20b", None, 24_576),
        ("gpt-oss-20b", 128, 24_576),
        ("gpt-oss-120b", 128, 36_864),
        ("llama-4-scout", None, 49_152),
        ("llama-4-scout", 8192, 147_456),
        ("mistral-7b-v0.1", 4096, 131_072),
    ],
)
def test_layers_with_a_window_are_told_apart(name: str, span: int | None, expected: int) -> None:
    cache = compute_kv_cache(load_model(name))
    assert cache.bytes_per_element == 2
    assert 2 * sum(k.elements_per_token for k in cache.layers if k.span == span) == expected


@pytest.mark.parametrize(
    ("name", "context", "gigabytes"),
    [
        ("gemma-3-27b", 8192, 1.11),
        ("gemma-3-27b", 131_072, 11.2),
        ("gpt-oss-120b", 32_768, 1.21),
        ("llama-3.1-8b", 2000, 0.26),
    ],
)
def test_a_step_reads_no_more_than_the_windows_hold(name: str, context: int, gigabytes: float) -> None:
    assert compute_kv_cache(load_model(name)).read_bytes(context) == pytest.approx(gigabytes * 1e9, rel=0.01)


def test_an_index_is_kept_of_every_token_and_the_latent_vector_read_of_those_it_chooses() -> None:
    cache = compute_kv_cache(load_model("deepseek-v3", model_type="deepseek_v32", index_topk=2048, index_head_dim=128))
    assert cache.layers == (KvLayers(61.0 * 576, span=2048), KvLayers(0.0, None, 61.0 * (128 + 4)))
    assert cache.bytes_per_token() == 61 * (2 * 576 + 132)
    assert apply_cache_dtype(cache, "fp8").bytes_per_token() == 61 * (576 + 132)


@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.json")))
def test_every_published_model_has_a_cache_and_operations(name: str) -> None:
    assert compute_kv_cache(load_model(name)).source is ModelSource.CONFIG_JSON
    assert compute_attention_costs(load_model(name)) is not None


def test_a_model_that_keeps_nothing_of_single_tokens_has_no_cache() -> None:
    recurrent = {"model_type": "granitemoehybrid", "layer_types": ["mamba"], "num_attention_heads": 1}
    with pytest.raises(ModelError, match="no layer keeps anything"):
        compute_kv_cache(read_architecture({**recurrent, "num_key_value_heads": 1}))


@pytest.mark.parametrize(
    ("name", "size"),
    [
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
    ],
)
def test_the_name_of_a_data_type_tells_its_width(name: str, size: float) -> None:
    assert apply_cache_dtype(CACHE, name) == KvCache(CACHE.layers, size, CACHE.source)


@pytest.mark.parametrize("name", ["", "fp4", "nvfp4", "fp8_ds_mla", "turboquant_k8v4", "float16 ", "2"])
def test_an_unknown_data_type_has_no_width_and_leaves_the_shape(name: str) -> None:
    unknown = apply_cache_dtype(CACHE, name)
    assert unknown == KvCache(CACHE.layers, None, CACHE.source)
    assert apply_cache_dtype(unknown, "fp8") == KvCache(CACHE.layers, 1.0, CACHE.source)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "torch.bfloat16", None])
def test_a_cache_is_kept_in_16_bits_as_the_model_computes(dtype: str | None) -> None:
    assert compute_kv_cache(load_model("llama-3.1-8b", torch_dtype=dtype)).bytes_per_element == 2
    assert compute_kv_cache(load_model("llama-3.1-8b", torch_dtype=None, dtype=dtype)).bytes_per_element == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"torch_dtype": "float32"}, "dtype: expected bfloat16 or float16, found 'float32'"),
        ({"torch_dtype": 16}, "torch_dtype: expected text, found 16"),
        (
            {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
            "quantization_config.kv_cache_scheme: whether the server follows it is not known; set model.kv_cache_dtype",
        ),
    ],
)
def test_a_width_that_the_file_does_not_settle_is_unknown(changes: dict[str, Any], told: str) -> None:
    undecided = load_model("llama-3.1-8b", **changes)
    with pytest.raises(ModelError) as refused:
        read_element_bytes(undecided)
    assert str(refused.value) == f"config.json: {told}"
    cache = compute_kv_cache(undecided)
    assert (cache.bytes_per_element, cache.layers) == (None, compute_kv_cache(load_model("llama-3.1-8b")).layers)


def test_a_nested_language_model_may_ask_for_a_quantised_cache_itself() -> None:
    asked = {"quantization_config": {"kv_cache_quant_algo": "FP8"}}
    document = load_config("llama-3.1-8b")
    for changed in ({**document, "text_config": document | asked}, {**document, **asked, "text_config": document}):
        with pytest.raises(ModelError, match=r"kv_cache_quant_algo: whether the server follows it is not known"):
            read_element_bytes(read_architecture(changed))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", {None: 4 * 32 * 32 * 128}),
        ("gemma-3-27b", {None: 4 * 10 * 32 * 128, 1024: 4 * 52 * 32 * 128}),
        ("qwen3-next-80b-a3b", {None: 4 * 12 * 16 * 256}),
        ("deepseek-v3", {None: 2 * 61 * 128 * (128 + 64 + 128)}),
        ("mistral-7b-v0.1", {4096: 4 * 32 * 32 * 128}),
    ],
)
def test_attention_takes_4_operations_for_each_element_of_the_heads_within_their_window(
    name: str, expected: dict[int | None, float]
) -> None:
    assert set(compute_attention_costs(load_model(name)) or ()) == {
        AttentionCosts(cost, span) for span, cost in expected.items()
    }


@pytest.mark.parametrize("changes", [{"index_topk": 2048, "index_head_dim": 128}, {"v_head_dim": ...}])
def test_operations_are_unknown_where_tokens_are_chosen_or_heads_not_told(changes: dict[str, Any]) -> None:
    assert compute_attention_costs(load_model("deepseek-v3", **changes)) is None
