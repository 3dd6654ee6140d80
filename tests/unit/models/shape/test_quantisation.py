from typing import Any

import pytest

from phasewatch.hardware.facts import Precision
from phasewatch.models.errors import ModelError
from phasewatch.models.shape.quantisation import Quantisation, read_quantisation
from tests.support.model_folders import load_model, refusal


def quantise(**section: Any) -> Quantisation:
    return read_quantisation(load_model("llama-3.1-8b", quantization_config=section))


def group(bits: int, kind: str = "int", activations: Any = None, **weights: Any) -> dict[str, Any]:
    inputs = None if activations is None else {"num_bits": activations[0], "type": activations[1]}
    return {
        "targets": ["Linear"],
        "weights": {"num_bits": bits, "type": kind, "symmetric": True, **weights},
        "input_activations": inputs,
    }


def compressed(*groups: dict[str, Any], ignore: tuple[str, ...] = ("lm_head",)) -> Quantisation:
    numbered = {f"group_{number}": weights for number, weights in enumerate(groups)}
    return quantise(quant_method="compressed-tensors", config_groups=numbered, ignore=list(ignore))


def test_weights_are_in_16_bits_by_default() -> None:
    stored = read_quantisation(load_model("llama-3.1-8b"))
    assert (stored.bits, stored.precision) == (16, Precision.BITS16)


def test_a_format_has_its_width_and_precision() -> None:
    cases: list[tuple[dict[str, Any], float, Precision | None]] = [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, 8, Precision.FP8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384, Precision.FP8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4.15625, Precision.BITS16),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, 4.625, Precision.BITS16),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, Precision.BITS16),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, Precision.BITS16),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            4.126953125,
            Precision.BITS16,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, None),
        ({"quant_method": "mxfp4"}, 4.25, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8, Precision.FP8),
    ]
    for section, bits, precision in cases:
        stored = quantise(**section)
        assert (stored.bits, stored.precision) == (bits, precision), precision


def test_compressed_tensors_states_the_width_of_weights_and_activations() -> None:
    cases: list[tuple[dict[str, Any], float, Precision | None]] = [
        (group(4, group_size=128), 4.125, Precision.BITS16),
        (group(4, group_size=128, symmetric=False), 4.15625, Precision.BITS16),
        (group(8, "float"), 8, Precision.BITS16),
        (group(8, "float", (8, "float")), 8, Precision.FP8),
        (group(8, "int", (8, "int")), 8, Precision.INT8),
        (group(8, "int", (8, "float")), 8, None),
        (group(4, "int", (8, "int"), group_size=128), 4.125, None),
        (group(4, "float", (4, "float"), group_size=16), 4.5, None),
    ]
    for section, bits, precision in cases:
        stored = compressed(section)
        assert (stored.bits, stored.precision) == (bits, precision), precision


def test_the_head_is_quantised_only_where_the_format_says_so() -> None:
    awq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    assert not quantise(**awq).head
    assert quantise(**awq, lm_head=True).head
    assert compressed(group(4), ignore=()).head
    assert not compressed(group(4), ignore=("re:.*lm_head",)).head


def test_excluded_attention_stays_in_16_bits() -> None:
    assert not read_quantisation(load_model("gpt-oss-20b")).attention
    assert read_quantisation(load_model("deepseek-v3")).attention


def test_excluding_modules_that_are_in_16_bits_anyway_changes_nothing() -> None:
    cases = [
        "model.layers.0.mlp.gate",
        "model.layers.3.input_layernorm",
        "model.visual",
        "vision_tower.blocks.0",
        "router",
    ]
    for module in cases:
        assert quantise(quant_method="fp8", modules_to_not_convert=[module]) == quantise(quant_method="fp8"), module


def test_an_invalid_or_unsupported_format_is_reported_with_its_key() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "quant_method: the format None is not known"),
        ({"quant_method": "quip"}, "quant_method: the format 'quip' is not known"),
        ({"quant_method": 4}, "quant_method: expected text, found 4"),
        ({"quant_method": "awq"}, "bits: missing; expected a whole number above 0"),
        ({"quant_method": "awq", "bits": 400, "group_size": 128}, "bits: expected at most 8, found 400"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": "x"},
            "group_size: expected a whole number above 0, found 'x'",
        ),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit: expected this or load_in_8bit to be true"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8"}, "quant_algo: the format 'W4A8' is not known"),
        (
            {"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp.down_proj"]},
            "ignored_layers: what 'model.layers.0.mlp.down_proj' leaves out is not counted",
        ),
        (
            {"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn"]},
            "ignored_layers: what 'model.layers.0.self_attn' leaves out is not counted",
        ),
        ({"quant_method": "fp8", "ignored_layers": [5]}, "ignored_layers: expected a list of text, found 5 in it"),
        ({"quant_method": "compressed-tensors"}, "config_groups: missing; expected at least one group"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": 5}},
            "config_groups.g: expected an object, found 5",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {}}},
            "config_groups.g.weights: missing; expected what weights are quantised to",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": group(4) | {"targets": ["re:.*mlp"]}}},
            "config_groups.g.targets: only groups of all linear layers are counted",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": group(4), "b": group(8)}},
            "config_groups: groups of different widths are not counted",
        ),
    ]
    for section, message in cases:
        assert refusal(quantise, **section) == f"config.json: quantization_config.{message}", section


def test_older_files_of_compressed_tensors_use_another_key() -> None:
    section = {"quant_method": "compressed-tensors", "config_groups": {"g": group(8)}}
    assert (
        read_quantisation(load_model("llama-3.1-8b", compression_config=section))
        == quantise(**section)
        != Quantisation()
    )


def test_a_format_of_mlx_is_not_taken_for_16_bits() -> None:
    with pytest.raises(ModelError, match=r"^config\.json: quantization\.quant_method: the format None is not known$"):
        read_quantisation(load_model("llama-3.1-8b", quantization={"group_size": 64, "bits": 4}))
