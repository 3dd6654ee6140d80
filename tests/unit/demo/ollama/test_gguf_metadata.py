from phasewatch.demo.ollama.gguf_metadata import GgufMetadata
from tests.support.ollama_requests import read_recording

_, SHOW = read_recording("show")
TINY = GgufMetadata()


def test_the_tensors_are_those_of_the_recorded_model() -> None:
    assert TINY.list_tensors() == SHOW["tensors"]


def test_the_model_info_is_that_of_the_recorded_model() -> None:
    assert TINY.build_model_info(SHOW["model_info"]["llama.context_length"]) == SHOW["model_info"]


def test_the_parameter_size_and_quantization_are_those_of_the_recorded_model() -> None:
    assert TINY.format_parameter_size() == SHOW["details"]["parameter_size"]
    assert TINY.quantization == SHOW["details"]["quantization_level"]


def test_a_parameter_size_of_a_thousand_million_is_a_billion() -> None:
    large = GgufMetadata(layers=32, width=4096, heads=32, kv_heads=8, feed_forward=14336, vocabulary=128256)
    assert large.format_parameter_size() == "8.0B"


def test_a_weight_of_16_bits_takes_two_bytes_and_a_norm_four() -> None:
    norms = sum(tensor["shape"][0] for tensor in TINY.list_tensors() if len(tensor["shape"]) == 1)
    assert TINY.weight_bytes == 2 * TINY.parameters + 2 * norms


def test_a_quantized_matrix_takes_the_size_of_its_blocks() -> None:
    quantized = GgufMetadata(layers=0, vocabulary=256, weight_type="Q4_K")
    matrices, norm = 2 * 512 * 256, 512
    assert quantized.weight_bytes == matrices // 256 * 144 + 4 * norm


def test_the_kv_cache_holds_keys_and_values_at_16_bits() -> None:
    assert TINY.kv_cache_bytes_per_token == 2 * 12 * 2 * 64 * 2
