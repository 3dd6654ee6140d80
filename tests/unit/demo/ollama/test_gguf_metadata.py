import json

from phasewatch.demo.ollama.gguf_metadata import Anatomy
from tests.support.paths import RECORDINGS

SHOWN = json.loads((RECORDINGS / "ollama-0.33" / "show.json").read_text())["body"]
TINY = Anatomy()


def test_the_tensors_are_those_of_the_recorded_model() -> None:
    assert TINY.tensors() == SHOWN["tensors"]


def test_the_keys_of_the_file_are_those_of_the_recorded_model() -> None:
    assert TINY.model_info(SHOWN["model_info"]["llama.context_length"]) == SHOWN["model_info"]


def test_the_size_is_told_as_the_recorded_server_tells_it() -> None:
    assert TINY.parameter_size() == SHOWN["details"]["parameter_size"]
    assert TINY.quantization == SHOWN["details"]["quantization_level"]


def test_a_thousand_millions_are_a_billion() -> None:
    assert (
        Anatomy(layers=32, width=4096, heads=32, kv_heads=8, feed_forward=14336, vocabulary=128256).parameter_size()
        == "8.0B"
    )


def test_16_bits_are_two_bytes_and_norms_have_four() -> None:
    norms = sum(tensor["shape"][0] for tensor in TINY.tensors() if len(tensor["shape"]) == 1)
    assert TINY.weight_bytes == 2 * TINY.parameters + 2 * norms


def test_a_quantised_matrix_takes_its_blocks() -> None:
    quantised = Anatomy(layers=0, vocabulary=256, weight_type="Q4_K")
    matrices, norm = 2 * 512 * 256, 512
    assert quantised.weight_bytes == matrices // 256 * 144 + 4 * norm


def test_the_cache_holds_keys_and_values_at_16_bits() -> None:
    assert TINY.kv_cache_bytes_per_token == 2 * 12 * 2 * 64 * 2
