from typing import Any

import pytest

from phasewatch.models.shape.weights import compute_weights
from tests.support.model_folders import load_model, refusal

AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128}
FP8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic"}


def test_a_step_of_one_token_reads_all_but_the_embedding_and_the_experts_it_is_not_routed_to() -> None:
    cases = [
        ("llama-3.2-1b", 2.47, 2.47),
        ("qwen3-0.6b", 1.192, 1.192),
        ("llama-3.1-8b", 16.06, 15.01),
        ("qwen3-8b", 16.38, 15.14),
        ("qwen2.5-7b", 15.23, 14.14),
        ("qwen3-32b", 65.52, 63.97),
        ("llama-3.3-70b", 141.1, 139.0),
        ("llama-2-7b", 13.48, 13.21),
        ("gpt-oss-20b", 13.76, 3.707),
        ("deepseek-v3", 673.2, 37.67),
    ]
    for name, total, read in cases:
        found_total, reads = compute_weights(load_model(name))
        assert found_total / 1e9 == pytest.approx(total, rel=1e-3), name
        assert reads.compute_bytes_per_step() / 1e9 == pytest.approx(read, rel=1e-3), name


def test_a_quantised_format_leaves_embedding_and_head_in_16_bits() -> None:
    cases: list[tuple[str, dict[str, Any], float, float]] = [
        ("llama-3.1-8b", AWQ, 5.73, 4.68),
        ("llama-3.1-8b", FP8, 9.08, 8.03),
        ("llama-3.3-70b", AWQ, 39.8, 37.7),
    ]
    for name, format_, total, read in cases:
        found_total, reads = compute_weights(load_model(name, quantization_config=format_))
        assert found_total / 1e9 == pytest.approx(total, rel=2e-3), (name, format_)
        assert reads.compute_bytes_per_step() / 1e9 == pytest.approx(read, rel=2e-3), (name, format_)


def test_a_quantised_head_is_smaller_unless_it_is_tied() -> None:
    narrow = {**AWQ, "quant_method": "gptq", "lm_head": True}
    untied = compute_weights(load_model("llama-3.1-8b", quantization_config=AWQ))[1].dense_bytes
    assert untied - compute_weights(load_model("llama-3.1-8b", quantization_config=narrow))[
        1
    ].dense_bytes == pytest.approx(128_256 * 4096 * (16 - 4.15625) / 8)
    tied = compute_weights(load_model("llama-3.2-1b", quantization_config=AWQ))
    assert tied == compute_weights(load_model("llama-3.2-1b", quantization_config=narrow))


def test_a_quantised_mixture_may_exclude_its_attention() -> None:
    _, reads = compute_weights(load_model("gpt-oss-20b"))
    _, narrow = compute_weights(load_model("gpt-oss-20b", quantization_config={"quant_method": "mxfp4"}))
    attention = 24 * 2 * 2880 * (64 * 64 + 8 * 64)
    assert reads.dense_bytes - narrow.dense_bytes == pytest.approx(attention * (16 - 4.25) / 8)


def test_the_number_of_parameters_does_not_depend_on_the_format() -> None:
    _, wide = compute_weights(load_model("llama-3.1-8b"))
    _, narrow = compute_weights(load_model("llama-3.1-8b", quantization_config=AWQ))
    assert wide.compute_active_parameters() == narrow.compute_active_parameters() == 7_504_924_672
    assert wide.head_parameters == narrow.head_parameters == 128_256 * 4096


def test_weights_whose_size_does_not_follow_from_their_width_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"dynamic": {"-:.*down.*": {}}}, "dynamic: modules of different widths are not counted"),
        (
            {"sparsity_config": {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}},
            "sparsity_config: weights without their zeros are not counted",
        ),
        ({"sparsity_config": {"sparsity_structure": "2:4"}}, "sparsity_config: weights without their zeros are not"),
    ]
    for section, reason in cases:
        message = refusal(compute_weights, load_model("llama-3.1-8b", quantization_config={**AWQ, **section}))
        assert message.startswith(f"config.json: quantization_config.{reason}"), reason


def test_a_key_that_leaves_the_weights_unchanged_is_ignored() -> None:
    cases: list[dict[str, Any]] = [{"dynamic": {}}, {"sparsity_config": {}}, {"sparsity_config": {"format": "dense"}}]
    for section in cases:
        plain = compute_weights(load_model("llama-3.1-8b", quantization_config=AWQ))
        assert compute_weights(load_model("llama-3.1-8b", quantization_config={**AWQ, **section})) == plain, section
