"""The rows about the ceilings."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from phasewatch.analysis.ceiling import Basis, Ceiling, RateSource
from phasewatch.hardware.facts import DeviceSource
from phasewatch.metrics.ceiling import CEILING_METRICS
from phasewatch.metrics.descriptor import ENGINE_LABELS
from phasewatch.models.costs import ModelSource

KNOWN = Ceiling(
    device_info=("NVIDIA L40S", 2),
    device_memory_bandwidth_bytes_per_second={DeviceSource.TABLE: 1.0},
    device_flops_per_second={DeviceSource.CONFIG: 2.0},
    weight_bytes={ModelSource.SAFETENSORS: 3.0},
    weight_read_bytes=4.0,
    kv_cache_bytes_per_token={ModelSource.CONFIG_JSON: 5.0},
    decode_ceiling_tokens_per_second={Basis.WEIGHTS: 6.0, Basis.READ: 7.0},
    decode_ceiling_ratio={Basis.WEIGHTS: 8.0, Basis.READ: 9.0},
    memory_read_bytes_per_second={RateSource.DERIVED: 10.0, RateSource.ENGINE: 11.0},
    memory_bandwidth_utilization_ratio={RateSource.DERIVED: 12.0, RateSource.ENGINE: 13.0},
    compute_utilization_ratio={RateSource.DERIVED: 14.0, RateSource.ENGINE: 15.0},
    prefill_ceiling_tokens_per_second=16.0,
    prefill_ceiling_ratio=17.0,
)


def shown(ceiling: Ceiling) -> dict[str, list[Any]]:
    engine: Any = SimpleNamespace(ceiling=ceiling)
    return {metric.name: list(metric.read(engine)) for metric in CEILING_METRICS}


def test_every_field_is_a_metric_of_its_name_and_every_metric_a_field() -> None:
    assert [metric.name for metric in CEILING_METRICS] == [f"llm_{field.name}" for field in fields(Ceiling)]


def test_known_values_are_shown_with_their_labels() -> None:
    assert shown(KNOWN) == {
        "llm_device_info": [({"device": "NVIDIA L40S", "count": "2"}, 1)],
        "llm_device_memory_bandwidth_bytes_per_second": [({"source": "table"}, 1)],
        "llm_device_flops_per_second": [({"source": "config"}, 2)],
        "llm_weight_bytes": [({"source": "safetensors"}, 3)],
        "llm_weight_read_bytes": [({}, 4)],
        "llm_kv_cache_bytes_per_token": [({"source": "config_json"}, 5)],
        "llm_decode_ceiling_tokens_per_second": [({"basis": "weights"}, 6), ({"basis": "read"}, 7)],
        "llm_decode_ceiling_ratio": [({"basis": "weights"}, 8), ({"basis": "read"}, 9)],
        "llm_memory_read_bytes_per_second": [({"source": "derived"}, 10), ({"source": "engine"}, 11)],
        "llm_memory_bandwidth_utilization_ratio": [({"source": "derived"}, 12), ({"source": "engine"}, 13)],
        "llm_compute_utilization_ratio": [({"source": "derived"}, 14), ({"source": "engine"}, 15)],
        "llm_prefill_ceiling_tokens_per_second": [({}, 16)],
        "llm_prefill_ceiling_ratio": [({}, 17)],
    }


def test_unknown_values_are_not_shown() -> None:
    assert not any(shown(Ceiling()).values())


def test_samples_carry_the_labels_that_the_row_announces() -> None:
    for metric in CEILING_METRICS:
        scope, own = metric.labels[: len(ENGINE_LABELS)], metric.labels[len(ENGINE_LABELS) :]
        assert scope == ENGINE_LABELS, metric.name
        for labels, _ in shown(KNOWN)[metric.name]:
            assert tuple(labels) == own, metric.name
