import pytest

from phasewatch.models.shape.cache_types import AUTO, ELEMENT_BYTES, is_known_cache_dtype


@pytest.mark.parametrize("name", [AUTO, "AUTO", *ELEMENT_BYTES, "FP8_E4M3"])
def test_a_name_is_known_in_any_case(name: str) -> None:
    assert is_known_cache_dtype(name)


@pytest.mark.parametrize("name", ["", "fp4", "fp8_ds_mla", "turboquant_k8v4", " fp8"])
def test_a_layout_of_its_own_is_not_known(name: str) -> None:
    assert not is_known_cache_dtype(name)


def test_no_element_is_wider_than_32_bits_or_narrower_than_4() -> None:
    assert all(0.5 <= size <= 4 for size in ELEMENT_BYTES.values())
