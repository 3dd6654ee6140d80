import re
from typing import Any

import pytest

from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import is_empty, read_architecture
from tests.support.model_folders import load_config, load_model, refusal


def test_a_plain_file_is_the_language_model_itself() -> None:
    architecture = load_model("llama-3.1-8b")
    assert (architecture.model_type, architecture.nested, architecture.towers) == ("llama", False, False)
    assert architecture.fields.require_int("hidden_size") == 4096


def test_a_multimodal_file_nests_the_language_model() -> None:
    architecture = load_model("gemma-3-27b")
    assert (architecture.model_type, architecture.nested, architecture.towers) == ("gemma3_text", True, True)
    assert architecture.fields.require_int("hidden_size") == 5376


def test_an_omni_file_nests_it_twice() -> None:
    text = {"model_type": "qwen3_moe", "hidden_size": 2048}
    architecture = read_architecture(
        {"model_type": "omni", "thinker_config": {"text_config": text, "audio_config": {"layers": 32}}}
    )
    assert (architecture.model_type, architecture.nested, architecture.towers) == ("qwen3_moe", True, True)
    with pytest.raises(ModelError, match=r"^config\.json: thinker_config\.text_config\.vocab_size: missing"):
        architecture.fields.require_int("vocab_size")


def test_a_file_with_vision_keys_beside_those_of_the_language_model_has_towers() -> None:
    architecture = read_architecture(load_config("qwen2.5-7b", model_type="qwen2_5_vl", vision_config={"depth": 32}))
    assert (architecture.nested, architecture.towers) == (False, True)


def test_missing_keys_of_gemma_3_have_the_defaults_of_its_class() -> None:
    fields = load_model("gemma-3-4b").fields
    left_out = ("vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window_pattern")
    assert [fields.require_int(key) for key in left_out] == [262_208, 8, 4, 256, 6]


def test_keys_of_the_whole_file_apply_to_the_language_model() -> None:
    assert load_model("gemma-3-27b").get_text("torch_dtype") == "bfloat16"
    assert load_model("llama-4-scout").read_tied_embeddings() == {False}


def test_tied_embeddings_may_be_stated_never_once_or_twice() -> None:
    text = {"model_type": "llama", "tie_word_embeddings": True}
    assert read_architecture(text).read_tied_embeddings() == {True}
    assert read_architecture({"text_config": text, "tie_word_embeddings": True}).read_tied_embeddings() == {True}
    assert read_architecture({"text_config": text, "tie_word_embeddings": False}).read_tied_embeddings() == {
        True,
        False,
    }
    assert load_model("gemma-3-27b").read_tied_embeddings() == set()
    with pytest.raises(ModelError, match=r"^config\.json: tie_word_embeddings: expected true or false, found 'no'$"):
        read_architecture({"model_type": "llama", "tie_word_embeddings": "no"}).read_tied_embeddings()


def test_a_document_that_is_not_an_object_is_refused() -> None:
    cases: list[object] = [None, [], "x", 5, True]
    for document in cases:
        assert re.search(r"^config\.json: expected an object$", refusal(read_architecture, document)), document


def test_a_file_without_a_model_type_is_refused_with_its_key() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "model_type: missing; expected the name of an architecture"),
        ({"model_type": 5}, "model_type: expected text, found 5"),
        ({"model_type": "x", "text_config": []}, "text_config: expected an object, found a list"),
    ]
    for document, expected in cases:
        message = refusal(read_architecture, document)
        assert message == f"config.json: {expected}", document


def test_null_false_zero_and_empty_containers_are_empty() -> None:
    cases: list[object] = [None, False, 0, 0.0, [], {}, ""]
    for value in cases:
        assert is_empty(value), value


def test_all_other_values_are_not_empty() -> None:
    cases: list[object] = [True, 1, [0], {"a": None}, "x", float("nan")]
    for value in cases:
        assert not is_empty(value), value
