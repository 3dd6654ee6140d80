from phasewatch.models.shape.cache_types import AUTO, ELEMENT_BYTES, is_known_cache_dtype


def test_data_types_are_known_in_any_case() -> None:
    for name in (AUTO, "AUTO", *ELEMENT_BYTES, "FP8_E4M3"):
        assert is_known_cache_dtype(name), name


def test_data_types_with_a_layout_of_their_own_are_unknown() -> None:
    for name in ("", "fp4", "fp8_ds_mla", "turboquant_k8v4", " fp8"):
        assert not is_known_cache_dtype(name), name


def test_no_element_is_wider_than_32_bits_or_narrower_than_4() -> None:
    assert all(0.5 <= size <= 4 for size in ELEMENT_BYTES.values())
