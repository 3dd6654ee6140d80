"""Duration of an engine step on a device, by the roofline model.

A step reads all weights and the KV cache of its requests while it computes; the slower of the two determines its
duration:

    seconds = fixed + max(bytes / (bandwidth x share), operations / (compute rate x share))
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from phasewatch.hardware.resolve import ResolvedDevice, resolve_device
from phasewatch.models.sources.folder import read_folder_costs

Figure = TypeVar("Figure")

FIXED_SECONDS: Final = 0.001
"""Kernel launches, sampling and scheduling in each step."""

BANDWIDTH_SHARE: Final = 0.85
"""Share of the published bandwidth that a step achieves. With `FIXED_SECONDS`, a single stream of an 8B model at 16
bits reaches 81 % of its ceiling on an L40S; measurements on such cards range from 73 to 87 % (docs/ceiling.md, "What is
healthy")."""

COMPUTE_SHARE: Final = 0.7
"""Share of the published compute rate. Matrix multiplications alone reach 70 to 87 % of it (docs/ceiling.md, "Prefill
and compute"), and a model does more than those."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """The work of an engine step.

    Attributes:
        tokens: tokens that pass through the layers.
        outputs: tokens that are sampled.
        held: tokens whose keys and values are read, summed over the requests.
        attended: attended positions, summed over `tokens`.
    """

    tokens: int
    outputs: int
    held: int
    attended: float


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of an engine step: seconds, bytes read, floating point operations."""

    seconds: float
    read_bytes: float
    operations: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """A model on a device.

    Attributes:
        bandwidth: published memory bandwidth, bytes per second.
        compute: published dense compute rate at the model's precision, operations per second.
        weight_bytes: weights read in each step.
        layer_parameters: parameters that every token is multiplied with.
        head_parameters: parameters of the output head, which only sampled tokens are multiplied with.
        kv_bytes: keys and values of one token, bytes.
        attention_operations: operations for each attended position of each token.
    """

    bandwidth: float
    compute: float
    weight_bytes: float
    layer_parameters: float
    head_parameters: float
    kv_bytes: float
    attention_operations: float

    def compute_cost(self, work: StepWork) -> StepCost:
        """The cost of a step with this work."""
        read_bytes = self.weight_bytes + self.kv_bytes * work.held
        operations = (
            2 * (self.layer_parameters * work.tokens + self.head_parameters * work.outputs)
            + self.attention_operations * work.attended
        )
        memory_seconds = read_bytes / (self.bandwidth * BANDWIDTH_SHARE)
        compute_seconds = operations / (self.compute * COMPUTE_SHARE)
        return StepCost(FIXED_SECONDS + max(memory_seconds, compute_seconds), read_bytes, operations)


def build_roofline(device_name: str, folder: Path) -> Roofline:
    """The roofline of a model on a device of the table.

    Args:
        device_name: a name from `phasewatch devices`.
        folder: folder with the model's config.json.

    Raises:
        ValueError: the device is not in the table, or the device or model lacks a figure that the roofline needs.
    """
    device = resolve_device(device_name)
    if not isinstance(device, ResolvedDevice):
        raise ValueError(f"the table has no single device {device_name!r}: see `phasewatch devices`")  # noqa: TRY004
    costs, _ = read_folder_costs(folder)
    reads = _require(costs.reads, f"weights that a step of {folder} reads")
    kv_cache = _require(costs.kv_cache, f"KV cache of {folder}")
    return Roofline(
        bandwidth=_require(device.memory_bandwidth, f"memory bandwidth of {device_name}"),
        compute=_require(device.compute.bits16, f"compute rate of {device_name}"),
        weight_bytes=reads.compute_bytes_per_step(),
        layer_parameters=_require(reads.compute_active_parameters(), f"parameters of {folder}") - reads.head_parameters,
        head_parameters=reads.head_parameters,
        kv_bytes=_require(kv_cache.compute_bytes_per_token(), f"bytes of a token in the KV cache of {folder}"),
        attention_operations=_require(costs.compute_attention_operations(1.0), f"shape of the attention of {folder}"),
    )


def _require(figure: Figure | None, what: str) -> Figure:
    if figure is None:
        raise ValueError(f"not known: {what}")
    return figure
