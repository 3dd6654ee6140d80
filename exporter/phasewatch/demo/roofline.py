"""How long a step of an engine takes on a device: the roofline model.

A step reads all weights, and the keys and values of everything that its requests hold; meanwhile it computes. The
slower of the two decides:

    seconds = fixed + max(bytes / (bandwidth x share), operations / (compute rate x share))
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from phasewatch.hardware.resolve import ResolvedDevice, resolve_device
from phasewatch.models.sources.folder import read_folder_costs

Figure = TypeVar("Figure")

FIXED_SECONDS: Final = 0.001
"""Launches, sampling and the scheduler's own work in each step."""

BANDWIDTH_SHARE: Final = 0.85
"""Share of the published bandwidth that a step reaches. With `FIXED_SECONDS` a single stream of an 8B at 16 bits comes
to 81 % of its ceiling on an L40S; 73 to 87 % were measured on such cards (docs/ceiling.md, "What is healthy")."""

COMPUTE_SHARE: Final = 0.7
"""Share of the published compute rate: matrix products alone reach 70 to 87 % of it (docs/ceiling.md, "Prefill and
compute"), and a model has more to do."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a step does.

    Attributes:
        tokens: that pass through the layers.
        outputs: tokens that it puts out.
        held: tokens whose keys and values it reads, for each request its own.
        attended: tokens that each of `tokens` attends to, summed over them.
    """

    tokens: int
    outputs: int
    held: int
    attended: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What that takes: seconds, bytes read, and floating point operations."""

    seconds: float
    read_bytes: float
    operations: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on a device.

    Attributes:
        bandwidth: bytes per second that the device publishes.
        compute: operations per second that it publishes, dense, at the model's precision.
        weight_bytes: that a step reads.
        layer_parameters: that each token is multiplied with.
        head_parameters: of the output head, with which only tokens that are put out are multiplied.
        kv_bytes: of the keys and values of one token.
        attention_operations: that one token takes for each token that it attends to.
    """

    bandwidth: float
    compute: float
    weight_bytes: float
    layer_parameters: float
    head_parameters: float
    kv_bytes: float
    attention_operations: float

    def cost(self, work: Work) -> Cost:
        """What a step takes."""
        read = self.weight_bytes + self.kv_bytes * work.held
        operations = (
            2 * (self.layer_parameters * work.tokens + self.head_parameters * work.outputs)
            + self.attention_operations * work.attended
        )
        reading = read / (self.bandwidth * BANDWIDTH_SHARE)
        computing = operations / (self.compute * COMPUTE_SHARE)
        return Cost(FIXED_SECONDS + max(reading, computing), read, operations)


def machine(device_name: str, folder: Path) -> Machine:
    """A model on a device of the table.

    Args:
        device_name: as `phasewatch devices` lists it.
        folder: with the model's config.json.

    Raises:
        ValueError: the table has no such device, or device or model do not tell what the roofline needs.
    """
    device = resolve_device(device_name)
    if not isinstance(device, ResolvedDevice):
        raise ValueError(f"the table has no single device {device_name!r}: see `phasewatch devices`")  # noqa: TRY004
    costs, _ = read_folder_costs(folder)
    reads = _known(costs.reads, f"weights that a step of {folder} reads")
    cache = _known(costs.kv_cache, f"KV cache of {folder}")
    return Machine(
        bandwidth=_known(device.memory_bandwidth, f"memory bandwidth of {device_name}"),
        compute=_known(device.compute.bits16, f"compute rate of {device_name}"),
        weight_bytes=reads.bytes_per_step(),
        layer_parameters=_known(reads.active_parameters(), f"parameters of {folder}") - reads.head_parameters,
        head_parameters=reads.head_parameters,
        kv_bytes=_known(cache.bytes_per_token(), f"bytes of a token in the KV cache of {folder}"),
        attention_operations=_known(costs.attention_operations(1.0), f"shape of the attention of {folder}"),
    )


def _known(figure: Figure | None, what: str) -> Figure:
    if figure is None:
        raise ValueError(f"not known: {what}")
    return figure
