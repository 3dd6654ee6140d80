from typing import Any

from phasewatch.models.shape.architecture import read_architecture
from phasewatch.models.shape.layers import LayerKind, read_layer_kinds
from tests.support.model_folders import load_config, load_model, refusal


def letters(**document: Any) -> str:
    """A for a layer that attends to all, a number for one with a span, - for one that keeps nothing."""
    kinds = read_layer_kinds(read_architecture({"model_type": "llama", **document}))
    return "".join("-" if kind is None else str(kind.span or "A") for kind in kinds)


def test_layers_attend_to_all_tokens_by_default() -> None:
    assert letters(num_hidden_layers=4) == "AAAA"


def test_every_notation_of_layer_kinds_is_read() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}, "8A"),
        ({"layer_types": ["linear_attention", "conv", "mamba", "attention"]}, "---A"),
        ({"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, "--A-"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*E"}, "---A-"),
        ({"model_type": "jamba", "num_hidden_layers": 13}, "----A-------A"),
        ({"model_type": "jamba", "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1}, "-A-A"),
        ({"model_type": "qwen3_next", "num_hidden_layers": 8}, "---A---A"),
        (
            {"model_type": "kimi_linear", "num_hidden_layers": 4, "linear_attn_config": {"full_attn_layers": [4]}},
            "---A",
        ),
        ({"model_type": "lfm2", "num_hidden_layers": 4, "full_attn_idxs": [0, 2]}, "A-A-"),
        ({"model_type": "gemma2", "num_hidden_layers": 4, "sliding_window": 8}, "8A8A"),
        ({"model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window": 8}, "88888A8"),
        (
            {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 8, "sliding_window_pattern": 2},
            "8A8A",
        ),
        ({"model_type": "cohere2", "num_hidden_layers": 4, "sliding_window": 8}, "888A"),
        ({"model_type": "gpt_oss", "num_hidden_layers": 2, "sliding_window": 8}, "8A"),
        ({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 8}, "88"),
        ({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None}, "AA"),
        ({"model_type": "llama4_text", "num_hidden_layers": 4, "attention_chunk_size": 9}, "999A"),
        (
            {"model_type": "llama4_text", "num_hidden_layers": 2, "attention_chunk_size": 9, "no_rope_layers": [0, 1]},
            "A9",
        ),
    ]
    for document, expected in cases:
        assert letters(**document) == expected, document


def test_qwen_uses_a_sliding_window_only_if_its_switch_is_on() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"use_sliding_window": False}, "AAAA"),
        ({}, "AAAA"),
        ({"use_sliding_window": True, "max_window_layers": 3}, "AAA8"),
        ({"use_sliding_window": True, "max_window_layers": 9}, "AAAA"),
    ]
    for switch, expected in cases:
        assert letters(model_type="qwen2", num_hidden_layers=4, sliding_window=8, **switch) == expected, switch


def test_an_invalid_or_unsupported_key_is_reported() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "num_hidden_layers: missing; expected a whole number above 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected at most 10000, found 1000000000"),
        (
            {"num_hidden_layers": 3, "layer_types": ["full_attention"]},
            "layer_types: expected one entry for each of 3 layers, found 1",
        ),
        ({"layer_types": ["lightning"]}, "layer_types: layers of the kind 'lightning' are not known"),
        ({"layer_types": ["sliding_attention"]}, "sliding_window: missing; expected a whole number above 0"),
        ({"hybrid_override_pattern": "M?"}, "hybrid_override_pattern: layers of the kind '?' are not known"),
        (
            {"num_hidden_layers": 2, "sliding_window": 8},
            "sliding_window: which layers slide is not told; expected layer_types",
        ),
        ({"model_type": "lfm2", "num_hidden_layers": 2}, "layer_types: missing; expected the kind of each layer"),
        (
            {"model_type": "llama4_text", "num_hidden_layers": 3, "no_rope_layers": [1]},
            "no_rope_layers: expected one entry for each of 3 layers, found 1",
        ),
    ]
    for document, expected in cases:
        message = refusal(letters, **document)
        assert message == f"config.json: {expected}", document


def test_every_layer_of_a_published_model_has_a_kind() -> None:
    kinds = read_layer_kinds(load_model("gemma-3-27b"))
    assert len(kinds) == load_config("gemma-3-27b")["text_config"]["num_hidden_layers"]
    assert (kinds.count(LayerKind()), kinds.count(LayerKind(1024))) == (10, 52)
