from typing import Any

import pytest

from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import read_architecture
from phasewatch.models.shape.parameters import ParameterCounts, count_parameters
from phasewatch.models.shape.recipes import RECIPES
from tests.support.model_folders import load_config, load_model, refusal


def count_active(counted: ParameterCounts) -> int:
    """Parameters that one token is multiplied with."""
    return counted.count_dense() + (counted.experts.per_token * counted.experts.each if counted.experts else 0)


def test_a_dense_model_has_its_published_number_of_parameters() -> None:
    cases = [
        ("llama-3.2-1b", 1.236, 1.236, True),
        ("qwen3-0.6b", 0.596, 0.596, True),
        ("llama-3.1-8b", 8.030, 7.505, False),
        ("qwen3-8b", 8.191, 7.568, False),
        ("qwen2.5-7b", 7.616, 7.071, False),
        ("qwen3-32b", 32.76, 31.98, False),
        ("llama-3.3-70b", 70.55, 69.50, False),
        ("llama-3.1-405b", 405.9, 403.8, False),
        ("llama-2-7b", 6.738, 6.607, False),
        ("mistral-7b-v0.1", 7.242, 7.111, False),
        ("mistral-small-24b", 23.57, 22.90, False),
        ("gemma-3-27b", 27.01, 27.01, True),
        ("gemma-3-4b", 3.880, 3.880, True),
    ]
    for name, total, read_by_a_token, tied in cases:
        counted = count_parameters(load_model(name))
        assert counted.count_all() / 1e9 == pytest.approx(total, rel=5e-4), (name, read_by_a_token)
        assert count_active(counted) / 1e9 == pytest.approx(read_by_a_token, rel=5e-4), (name, read_by_a_token)
        assert counted.tied is tied, (name, read_by_a_token)
        assert counted.experts is None, (name, read_by_a_token)


def test_a_mixture_has_its_published_number_of_parameters() -> None:
    cases = [
        ("mixtral-8x7b", 46.70, 12.75, 1.47, (8, 2), 0.1762 * 32),
        ("mixtral-8x22b", 140.6, 39.0, 5.14, (8, 2), 0.302 * 56),
        ("qwen3-30b-a3b", 30.53, 3.04, 1.23, (128, 8), 0.00472 * 48),
        ("qwen3-235b-a22b", 235.1, 21.57, 7.37, (128, 8), 0.0189 * 94),
        ("gpt-oss-20b", 20.91, 3.61, 1.22, (32, 4), 0.0249 * 24),
        ("gpt-oss-120b", 116.83, 5.13, 1.55, (128, 4), 0.0249 * 36),
        ("deepseek-v3", 671.0, 36.63, 16.2, (256, 8), 0.0440 * 58),
        ("kimi-k2", 1026.0, 31.69, 10.6, (384, 8), 0.0440 * 60),
        ("llama-4-scout", 107.8, 16.14, 10.1, (16, 1), 0.1258 * 48),
        ("llama-4-maverick", 400.7, 16.15, 13.1, (128, 1), 0.1258 * 24),
        ("glm-4.5", 352.8, 32.9, 16.1, (160, 8), 0.0236 * 89),
        ("glm-4.5-air", 106.9, 12.8, 6.6, (128, 8), 0.0173 * 45),
        ("minimax-m2", 228.7, 10.4, 3.4, (256, 8), 0.0142 * 62),
    ]
    for name, total, read_by_a_token, dense, experts, one_expert in cases:
        counted = count_parameters(load_model(name))
        assert counted.experts is not None, (name, read_by_a_token)
        assert (counted.experts.total, counted.experts.per_token) == experts, (name, read_by_a_token)
        assert counted.count_all() / 1e9 == pytest.approx(total, rel=1e-3), (name, read_by_a_token)
        assert count_active(counted) / 1e9 == pytest.approx(read_by_a_token, rel=5e-3), (name, read_by_a_token)
        assert counted.count_dense() / 1e9 == pytest.approx(dense, rel=7e-3), (name, read_by_a_token)
        assert counted.experts.each / 1e9 == pytest.approx(one_expert, rel=5e-3), (name, read_by_a_token)


def test_the_parameters_of_the_recorded_model_are_exact() -> None:
    counted = count_parameters(load_model("llama-recordings"))
    assert (counted.count_all(), counted.count_dense(), counted.head) == (110_922_048, 110_922_048, 8192 * 576)


SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "moe_intermediate_size": 40,
    "num_experts_per_tok": 2,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "first_k_dense_replace": 1,
}


def test_an_architecture_has_as_many_parameters_as_in_transformers() -> None:
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("llama", {}, 313_152),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, 251_840),
        ("llama", {"head_dim": 24}, 460_608),
        ("granite", {"attention_bias": True, "mlp_bias": True}, 315_840),
        ("smollm3", {}, 249_152),
        ("mistral", {}, 313_152),
        ("phi3", {}, 313_152),
        ("qwen2", {}, 313_920),
        ("qwen3", {"head_dim": 24}, 460_896),
        ("gemma", {"head_dim": 16}, 322_880),
        ("gemma", {"attention_bias": True}, 2_559_680),
        ("gemma3_text", {"attention_bias": True}, 2_563_520),
        ("qwen3", {"attention_bias": True}, 1_433_280),
        ("gemma2", {"head_dim": 16, "sliding_window": 8}, 323_648),
        ("gemma3_text", {"head_dim": 16}, 323_840),
        ("olmo2", {}, 313_728),
        ("olmo2", {"attention_bias": True}, 314_880),
        ("mixtral", {"num_local_experts": 4}, 646_464),
        ("gpt_oss", {"head_dim": 16, "num_local_experts": 8}, 1_178_400),
        ("qwen2_moe", {"num_experts": 8, "shared_expert_intermediate_size": 56}, 639_936),
        (
            "qwen2_moe",
            {"num_experts": 8, "shared_expert_intermediate_size": 56, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
            422_592,
        ),
        ("deepseek_v2", {**LATENT, "n_shared_experts": 2}, 702_976),
        ("deepseek_v2", {**LATENT, "q_lora_rank": 24, "n_shared_experts": 2}, 666_256),
        (
            "deepseek_v3",
            {**LATENT, "q_lora_rank": 24, "n_shared_experts": 1, "first_k_dense_replace": 2},
            576_688,
        ),
        (
            "glm4_moe",
            {
                "head_dim": 16,
                "n_routed_experts": 8,
                "n_shared_experts": 1,
                "first_k_dense_replace": 1,
                "use_qk_norm": True,
                "attention_bias": True,
            },
            644_648,
        ),
        ("llama4_text", {"head_dim": 16, "num_local_experts": 8, "intermediate_size_mlp": 120}, 1_274_688),
        (
            "llama4_text",
            {"head_dim": 16, "num_local_experts": 8, "intermediate_size_mlp": 120, "interleave_moe_layer_step": 2},
            844_608,
        ),
    ]
    for model_type, changes, expected in cases:
        assert (
            count_parameters(read_architecture({"model_type": model_type, **SMALL, **changes})).count_all() == expected
        ), (model_type, changes)


def test_a_step_larger_than_the_number_of_layers_leaves_no_experts() -> None:
    dense = {"num_experts": 8, "decoder_sparse_step": 7}
    assert count_parameters(read_architecture({"model_type": "qwen3_moe", **SMALL, **dense})).experts is None


def test_the_number_of_experts_has_several_keys() -> None:
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        counted = count_parameters(read_architecture({"model_type": "mixtral", **SMALL, key: 4}))
        assert counted.experts is not None, key
        assert counted.experts.total == 4, key


def test_an_architecture_without_a_recipe_is_not_counted() -> None:
    with pytest.raises(ModelError, match=r"^config\.json: model_type: the weights of this architecture"):
        count_parameters(load_model("jamba-mini"))


def test_an_invalid_or_missing_key_is_reported() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("llama-3.1-8b", {"vocab_size": ...}, "vocab_size: missing; expected a whole number above 0"),
        ("llama-3.1-8b", {"hidden_size": "4096"}, "hidden_size: expected a whole number above 0, found '4096'"),
        (
            "llama-3.1-8b",
            {"num_hidden_layers": 1e9},
            "num_hidden_layers: expected a whole number above 0, found 1000000000.0",
        ),
        (
            "llama-3.1-8b",
            {"intermediate_size": [1]},
            "intermediate_size: expected a whole number above 0, found a list",
        ),
        (
            "llama-3.1-8b",
            {"text_config": load_config("llama-3.1-8b", tie_word_embeddings=True)},
            "text_config.tie_word_embeddings: contradicts what the file says as a whole",
        ),
        ("llama-3.1-8b", {"tie_word_embeddings": "no"}, "tie_word_embeddings: expected true or false, found 'no'"),
        ("mistral-small-24b", {"attention_bias": True}, "attention_bias: no such model of this architecture is known"),
        ("deepseek-v3", {"attention_bias": True}, "attention_bias: no such model of this architecture is known"),
        ("deepseek-v3", {"v_head_dim": ...}, "v_head_dim: missing; expected a whole number above 0"),
        ("mixtral-8x7b", {"num_local_experts": ...}, "num_experts: missing; expected a whole number above 0"),
        ("mixtral-8x7b", {"num_experts_per_tok": ...}, "num_experts_per_tok: missing; expected a whole number above 0"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok: 9 of only 8 experts"),
        ("mixtral-8x7b", {"num_experts": 9}, "num_experts: contradicts num_local_experts or n_routed_experts"),
        (
            "llama-4-maverick",
            {"text_config": {"model_type": "llama4_text"}},
            "text_config.num_hidden_layers: missing; expected a whole number above 0",
        ),
    ]
    for name, changes, expected in cases:
        message = refusal(count_parameters, load_model(name, **changes))
        assert message == f"config.json: {expected}", (name, changes)


def test_every_recipe_counts_a_model() -> None:
    for model_type in sorted(RECIPES):
        document = {**LATENT, **SMALL, "model_type": model_type, "shared_expert_intermediate_size": 56}
        assert count_parameters(read_architecture(document)).count_all() > 200_000, model_type
