from dataclasses import replace
from pathlib import Path

import pytest

from phasewatch.demo.roofline import BANDWIDTH_SHARE, COMPUTE_SHARE, FIXED_SECONDS, Work, machine
from phasewatch.demo.vllm.simulation import DEVICE, MODEL
from tests.support.model_folders import load_config, write_json

L40S = machine(DEVICE, MODEL)
ONE_TOKEN = Work(tokens=1, outputs=1, held=1000, attended=1000)
PROMPT = Work(tokens=2048, outputs=1, held=2048, attended=2048 * 1024)


def test_the_machine_is_an_8b_at_16_bits_on_an_l40s() -> None:
    assert L40S.bandwidth == 864e9
    assert L40S.compute == pytest.approx(362.05e12)
    assert L40S.weight_bytes == pytest.approx(15.01e9, rel=1e-3)
    assert L40S.layer_parameters + L40S.head_parameters == pytest.approx(7.505e9, rel=1e-3)
    assert L40S.kv_bytes == 131_072
    assert L40S.attention_operations == 524_288


def test_the_model_is_the_published_one() -> None:
    assert (
        load_config("llama-3.1-8b").items()
        >= {
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128_256,
        }.items()
    )


def test_a_single_stream_is_as_near_to_its_ceiling_as_measured_ones_are() -> None:
    ceiling = L40S.bandwidth / (L40S.weight_bytes + 1000 * L40S.kv_bytes)
    speed = 1 / L40S.cost(ONE_TOKEN).seconds
    assert 0.73 <= speed / ceiling <= 0.87
    assert speed / ceiling == pytest.approx(0.81, abs=0.005)


def test_decode_takes_as_long_as_reading_does() -> None:
    cost = L40S.cost(ONE_TOKEN)
    assert cost.read_bytes == L40S.weight_bytes + 1000 * L40S.kv_bytes
    assert cost.seconds == pytest.approx(FIXED_SECONDS + cost.read_bytes / (864e9 * BANDWIDTH_SHARE))


def test_prefill_takes_as_long_as_computing_does() -> None:
    cost = L40S.cost(PROMPT)
    assert cost.operations == pytest.approx(
        2 * (2048 * L40S.layer_parameters + L40S.head_parameters) + 524_288 * 2048 * 1024
    )
    assert cost.seconds == pytest.approx(FIXED_SECONDS + cost.operations / (362.05e12 * COMPUTE_SHARE))


def test_more_of_anything_is_never_faster() -> None:
    for work in (ONE_TOKEN, PROMPT):
        for name in ("tokens", "outputs", "held", "attended"):
            more = replace(work, **{name: 2 * getattr(work, name)})
            assert L40S.cost(more).seconds >= L40S.cost(work).seconds


@pytest.mark.parametrize("name", ["NVIDIA L40S mk II", ""])
def test_a_device_that_the_table_does_not_have_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="phasewatch devices"):
        machine(name, MODEL)


def test_a_model_of_which_too_little_is_known_is_an_error(tmp_path: Path) -> None:

    write_json(tmp_path / "config.json", {"model_type": "llama"})
    with pytest.raises(ValueError, match="not known"):
        machine(DEVICE, tmp_path)
