from typing import Any

import pytest

from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import is_empty, read_architecture
from tests.support.model_folders import load_config, load_model


def test_a_plain_file_is_the_language_model_itself() -> None:
    found = load_model("llama-3.1-8b")
    assert (found.model_type, found.nested, found.towers) == ("llama", False, False)
    assert found.fields.require_int("hidden_size") == 4096


def test_a_multimodal_file_nests_the_language_model() -> None:
    found = load_model("gemma-3-27b")
    assert (found.model_type, found.nested, found.towers) == ("gemma3_text", True, True)
    assert found.fields.require_int("hidden_size") == 5376


def test_an_omni_file_nests_it_twice() -> None:
    text = {"model_type": "qwen3_moe", "hidden_size": 2048}
    found = read_architecture(
        {"model_type": "omni", "thinker_config": {"text_config": text, "audio_config": {"layers": 32}}}
    )
    assert (found.model_type, found.nested, found.towers) == ("qwen3_moe", True, True)
    with pytest.raises(ModelError, match=r"^config\.json: thinker_config\.text_config\.vocab_size: missing"):
        found.fields.require_int("vocab_size")


def test_a_file_with_pictures_beside_the_keys_of_the_language_model_has_towers() -> None:
    found = read_architecture(load_config("qwen2.5-7b", model_type="qwen2_5_vl", vision_config={"depth": 32}))
    assert (found.nested, found.towers) == (False, True)


def test_what_gemma_3_leaves_out_is_the_default_of_its_class() -> None:
    fields = load_model("gemma-3-4b").fields
    left_out = ("vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window_pattern")
    assert [fields.require_int(key) for key in left_out] == [262_208, 8, 4, 256, 6]


def test_what_is_told_once_for_all_parts_counts_for_the_language_model() -> None:
    assert load_model("gemma-3-27b").get_text("torch_dtype") == "bfloat16"
    assert load_model("llama-4-scout").read_tied_embeddings() == {False}


def test_a_table_may_be_said_to_be_tied_once_or_twice_or_not_at_all() -> None:
    text = {"model_type": "llama", "tie_word_embeddings": True}
    assert read_architecture(text).read_tied_embeddings() == {True}
    assert read_architecture({"text_config": text, "tie_word_embeddings": True}).read_tied_embeddings() == {True}
    assert read_architecture({"text_config": text, "tie_word_embeddings": False}).read_tied_embeddings() == {True, False}
    assert load_model("gemma-3-27b").read_tied_embeddings() == set()
    with pytest.raises(ModelError, match=r"^config\.json: tie_word_embeddings: expected true or false, found 'no'$"):
        read_architecture({"model_type": "llama", "tie_word_embeddings": "no"}).read_tied_embeddings()


@pytest.mark.parametrize("document", [None, [], "x", 5, True])
def test_what_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(ModelError, match=r"^config\.json: expected an object$"):
        read_architecture(document)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "model_type: missing; expected the name of an architecture"),
        ({"model_type": 5}, "model_type: expected text, found 5"),
        ({"model_type": "x", "text_config": []}, "text_config: expected an object, found a list"),
    ],
)
def test_a_file_that_does_not_say_what_it_is_is_refused_by_key(document: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelError) as refused:
        read_architecture(document)
    assert str(refused.value) == f"config.json: {told}"


@pytest.mark.parametrize("value", [None, False, 0, 0.0, [], {}, ""])
def test_nothing_of_a_kind_is_empty(value: object) -> None:
    assert is_empty(value)


@pytest.mark.parametrize("value", [True, 1, [0], {"a": None}, "x", float("nan")])
def test_anything_else_is_not(value: object) -> None:
    assert not is_empty(value)
