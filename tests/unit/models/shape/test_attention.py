from typing import Any

import pytest

from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import read_architecture
from phasewatch.models.shape.attention import AttentionLayers, read_attention_layers
from tests.support.model_folders import load_model

PLAIN = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "num_local_experts": 8,
    "n_shared_experts": 1,
    "is_encoder_decoder": False,
    "layer_norm_eps": 1e-5,
}
"""An architecture that nobody here knows, with nothing peculiar."""


def attention_of(**document: Any) -> tuple[AttentionLayers, ...]:
    return read_attention_layers(read_architecture({"model_type": "newcomer", **PLAIN, **document}))


def refusal(**document: Any) -> str:
    with pytest.raises(ModelError) as refused:
        attention_of(**document)
    return str(refused.value)


def test_an_unknown_architecture_with_plain_keys_is_counted_by_them() -> None:
    assert attention_of() == (AttentionLayers(layers=4, heads=8, key_heads=2, head_size=64),)


def test_layer_types_mean_the_same_in_every_architecture() -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    assert attention_of(layer_types=kinds, sliding_window=128) == (
        AttentionLayers(layers=3, heads=8, key_heads=2, head_size=64, span=128),
        AttentionLayers(layers=1, heads=8, key_heads=2, head_size=64),
    )


def test_an_unknown_architecture_with_a_key_of_special_attention_is_refused() -> None:
    cases: list[tuple[str, object]] = [
        ("kv_lora_rank", 512),
        ("index_topk", 2048),
        ("swa_num_key_value_heads", 4),
        ("global_head_dim", 512),
        ("local_attention", 128),
        ("attention_chunk_size", 8192),
        ("mamba_d_state", 16),
        ("ssm_cfg", {"d": 1}),
        ("linear_num_key_heads", 16),
        ("conv_kernel", 4),
        ("hybrid_layer_pattern", [0, 1]),
        ("attention_types", [[["global", "local"], 12]]),
        ("block_types", ["recurrent", "attention"]),
        ("attn_layer_period", 8),
        ("full_attention_interval", 4),
        ("multi_query", True),
        ("use_cla", True),
        ("cross_attention_layers", [3, 8]),
        ("v_head_dim", 128),
        ("sliding_window_size", 4096),
    ]
    for key, value in cases:
        message = refusal(**{key: value})
        assert message.startswith(f"config.json: {key}: "), (key, value)
        assert "newcomer" in message or "not known" in message, (key, value)


def test_a_key_of_special_attention_that_is_off_is_ignored() -> None:
    cases: list[object] = [None, False, 0, []]
    for value in cases:
        assert attention_of(attn_layer_period=value, multi_query=value) == attention_of(), value


def test_an_invalid_or_unsupported_key_is_reported() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide the 8 of num_attention_heads"),
        (
            {"num_attention_heads": 7, "num_key_value_heads": 7},
            "num_attention_heads: 7 does not divide the hidden_size of 512",
        ),
        ({"num_key_value_heads": None}, "num_key_value_heads: missing; expected a whole number above 0"),
        ({"num_attention_heads": -8}, "num_attention_heads: expected a whole number above 0, found -8"),
        ({"num_attention_heads": True}, "num_attention_heads: expected a whole number above 0, found True"),
        ({"num_attention_heads": float("nan")}, "num_attention_heads: expected a whole number above 0, found nan"),
        ({"head_dim": "64"}, "head_dim: expected a whole number above 0, found '64'"),
        ({"hidden_size": None}, "hidden_size: missing; expected a whole number above 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected at most 10000, found 1000000000"),
        ({"num_kv_shared_layers": 15}, "num_kv_shared_layers: layers that share keys and values are not counted yet"),
        ({"block_configs": [{}]}, "block_configs: layers of different shapes are not counted yet"),
        ({"compress_rates": [4]}, "compress_rates: compressed keys and values are not counted yet"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder: models with an encoder are not counted"),
        ({"model_type": "gemma3n_text"}, "model_type: the attention of gemma3n_text is not counted yet"),
        ({"model_type": "deepseek_v4"}, "model_type: the attention of deepseek_v4 is not counted yet"),
        ({"model_type": "deepseek_v3"}, "qk_rope_head_dim: missing; expected a whole number above 0"),
    ]
    for changes, expected in cases:
        assert refusal(**changes) == f"config.json: {expected}", changes


def test_an_old_llama_has_as_many_key_heads_as_query_heads() -> None:
    assert read_attention_layers(load_model("llama-2-7b", num_key_value_heads=...)) == read_attention_layers(
        load_model("llama-2-7b")
    )


def test_heads_may_be_given_per_layer_and_a_layer_without_heads_caches_nothing() -> None:
    assert attention_of(num_key_value_heads=[2, 0, 4, 2]) == (
        AttentionLayers(layers=2, heads=8, key_heads=2, head_size=64),
        AttentionLayers(layers=1, heads=8, key_heads=4, head_size=64),
    )


def test_a_nested_unknown_architecture_needs_a_head_size() -> None:
    nested = {"model_type": "newcomer_text", **PLAIN}
    with pytest.raises(ModelError, match=r"^config\.json: text_config\.head_dim: missing"):
        read_attention_layers(read_architecture({"model_type": "newcomer", "text_config": nested}))
    (kind,) = read_attention_layers(
        read_architecture({"model_type": "newcomer", "text_config": {**nested, "head_dim": 96}})
    )
    assert kind.head_size == 96


def test_global_layers_of_gemma_4_have_larger_and_fewer_key_heads() -> None:
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    gemma = {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 1}
    assert attention_of(**gemma, layer_types=kinds, sliding_window=1024, attention_k_eq_v=True) == (
        AttentionLayers(layers=3, heads=8, key_heads=2, head_size=256, span=1024),
        AttentionLayers(layers=1, heads=8, key_heads=1, head_size=512),
    )
    (_, whole) = attention_of(**gemma, layer_types=kinds, sliding_window=1024)
    assert whole.key_heads == 2


def test_latent_attention_has_the_shape_of_its_cached_vector() -> None:
    (kind,) = read_attention_layers(load_model("deepseek-v3"))
    assert kind.latent is not None
    assert (kind.layers, kind.heads, kind.head_size) == (61, 128, 576)
    assert (kind.latent.rank, kind.latent.position_size) == (512, 64)
    assert (kind.latent.selected_tokens, kind.latent.index_size, kind.latent.expanded_size) == (None, 0, 320)


def test_an_index_shared_between_layers_is_refused() -> None:
    with pytest.raises(ModelError, match=r"^config\.json: index_topk_freq: attention that shares"):
        read_attention_layers(load_model("deepseek-v3", index_topk=2048, index_head_dim=128, index_topk_freq=4))
