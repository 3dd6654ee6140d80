from phasewatch.models.sources.ggml import TYPE_SIZES


def test_a_tensor_type_has_the_width_of_its_format() -> None:
    cases = [
        *(("F32", 32), ("F16", 16), ("BF16", 16), ("Q8_0", 8.5), ("Q6_K", 6.5625), ("Q5_K", 5.5), ("Q5_0", 5.5)),
        *(("Q5_1", 6), ("Q4_K", 4.5), ("Q4_0", 4.5), ("Q4_1", 5), ("Q3_K", 3.4375), ("Q2_K", 2.625)),
        *(("IQ4_NL", 4.5), ("IQ4_XS", 4.25), ("IQ3_S", 3.4375), ("IQ3_XXS", 3.0625), ("IQ2_S", 2.5625)),
        *(("IQ2_XS", 2.3125), ("IQ2_XXS", 2.0625), ("IQ1_M", 1.75), ("IQ1_S", 1.5625), ("TQ1_0", 1.6875)),
        *(("TQ2_0", 2.0625), ("MXFP4", 4.25), ("NVFP4", 4.5), ("Q1_0", 1.125)),
    ]
    for name, bits in cases:
        size, block = TYPE_SIZES[name]
        assert size * 8 / block == bits, name
