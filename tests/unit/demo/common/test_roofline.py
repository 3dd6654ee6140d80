from dataclasses import replace
from pathlib import Path

import pytest

from phasewatch.demo.common.roofline import BANDWIDTH_SHARE, COMPUTE_SHARE, FIXED_SECONDS, StepWork, build_roofline
from phasewatch.demo.vllm.simulation import DEVICE, MODEL
from tests.support.model_folders import load_config, write_json

L40S = build_roofline(DEVICE, MODEL)
DECODE_STEP = StepWork(tokens=1, outputs=1, held=1000, attended=1000)
PREFILL_STEP = StepWork(tokens=2048, outputs=1, held=2048, attended=2048 * 1024)


def test_the_roofline_is_that_of_an_8b_model_at_16_bits_on_an_l40s() -> None:
    assert L40S.bandwidth == 864e9
    assert L40S.compute == pytest.approx(362.05e12)
    assert L40S.weight_bytes == pytest.approx(15.01e9, rel=1e-3)
    assert L40S.layer_parameters + L40S.head_parameters == pytest.approx(7.505e9, rel=1e-3)
    assert L40S.kv_bytes == 131_072
    assert L40S.attention_operations == 524_288


def test_the_models_config_is_the_published_one() -> None:
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


def test_a_single_stream_reaches_as_much_of_its_ceiling_as_measured_streams_do() -> None:
    ceiling = L40S.bandwidth / (L40S.weight_bytes + 1000 * L40S.kv_bytes)
    speed = 1 / L40S.compute_cost(DECODE_STEP).seconds
    assert 0.73 <= speed / ceiling <= 0.87
    assert speed / ceiling == pytest.approx(0.81, abs=0.005)


def test_a_decode_step_is_bound_by_bandwidth() -> None:
    cost = L40S.compute_cost(DECODE_STEP)
    assert cost.read_bytes == L40S.weight_bytes + 1000 * L40S.kv_bytes
    assert cost.seconds == pytest.approx(FIXED_SECONDS + cost.read_bytes / (864e9 * BANDWIDTH_SHARE))


def test_a_prefill_step_is_bound_by_compute() -> None:
    cost = L40S.compute_cost(PREFILL_STEP)
    assert cost.operations == pytest.approx(
        2 * (2048 * L40S.layer_parameters + L40S.head_parameters) + 524_288 * 2048 * 1024
    )
    assert cost.seconds == pytest.approx(FIXED_SECONDS + cost.operations / (362.05e12 * COMPUTE_SHARE))


def test_more_work_never_takes_less_time() -> None:
    for work in (DECODE_STEP, PREFILL_STEP):
        for name in ("tokens", "outputs", "held", "attended"):
            more = replace(work, **{name: 2 * getattr(work, name)})
            assert L40S.compute_cost(more).seconds >= L40S.compute_cost(work).seconds, (work, name)


def test_a_device_that_is_not_in_the_table_is_an_error() -> None:
    for name in ("NVIDIA L40S mk II", ""):
        with pytest.raises(ValueError, match=f"no single device {name!r}: see `phasewatch devices`"):
            build_roofline(name, MODEL)


def test_a_model_without_the_required_dimensions_is_an_error(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"model_type": "llama"})
    with pytest.raises(ValueError, match="not known"):
        build_roofline(DEVICE, tmp_path)
