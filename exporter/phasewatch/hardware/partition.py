"""Share of a device that one of its partitions gets: NVIDIA MIG instances and AMD compute partitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.hardware.facts import ComputeRates
from phasewatch.hardware.table import GIB, Device

MIG_SLICES: Final[Mapping[str, int]] = {
    "A30": 4,
    "A100 PCIe 40GB": 7,
    "A100 SXM4 40GB": 7,
    "A100 PCIe 80GB": 7,
    "A100 SXM4 80GB": 7,
    "A800 SXM4 80GB": 7,
    "A800 PCIe 80GB": 7,
    "H100 PCIe": 7,
    "H100 SXM5 80GB": 7,
    "H100 NVL": 7,
    "H800 SXM5": 7,
    "H20": 7,
    "H20-3e": 7,
    "GH200 96GB": 7,
    "GH200 144GB": 7,
    "H200 SXM": 7,
    "H200 NVL": 7,
    "B100": 7,
    "B200": 7,
    "GB200 (per GPU)": 7,
    "B300": 7,
    "GB300 (per GPU)": 7,
    "RTX PRO 6000 Blackwell Workstation": 4,
    "RTX PRO 6000 Blackwell Max-Q": 4,
    "RTX PRO 6000 Blackwell Server": 4,
}
"""Compute slices of the devices that support MIG, by their name in the table (NVIDIA MIG user guide: supported GPUs
and supported profiles)."""

AMD_DIES: Final[Mapping[str, int]] = {
    "Instinct MI300A": 6,
    "Instinct MI300X": 8,
    "Instinct MI325X": 8,
    "Instinct MI350X": 8,
    "Instinct MI355X": 8,
}
"""Compute dies of the devices that can be partitioned; in CPX mode each die is a separate device."""

_MEMORY_SLICES: Final[Mapping[int, Mapping[int, tuple[int, ...]]]] = {
    4: {1: (2,), 2: (4,), 4: (8,)},
    7: {1: (1, 2), 2: (2,), 3: (4,), 4: (4,), 7: (8,)},
}
"""Eighths of the memory that a profile can have, by the compute slices of the device and of the profile (NVIDIA MIG
user guide)."""

MIG_PROFILE: Final = r"(?:[1-7]c\.)?[1-7]g\.\d{1,3}gb(?:[+-][a-z]{2,4}(?:\.[a-z]{2,4})?){0,3}"
"""MIG profiles such as `3g.40gb`, `1g.10gb+me` or, for a compute instance within a GPU instance, `1c.3g.40gb`."""

_MIG_NUMBERS: Final = re.compile(r"(?:(?P<compute>\d)c\.)?(?P<slices>\d)g\.(?P<memory>\d+)gb")
_MIG: Final = re.compile(MIG_PROFILE, re.IGNORECASE | re.ASCII)
_AMD_MODES: Final[Mapping[str, int]] = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """Share of its device that a partition gets, each from 0 to 1."""

    memory_bandwidth: float
    compute: float


def compute_partition_share(device: Device, profile: str) -> PartitionShare | None:
    """The share of its device that a partition gets; None if the device has no such partition.

    For MIG, memory bandwidth is proportional to the memory slices, which the memory size in the profile implies, and
    compute to the compute slices (NVIDIA MIG user guide: fraction of memory, fraction of SMs). AMD partitions divide
    both evenly.

    Args:
        device: the whole device.
        profile: such as `3g.40gb` (MIG) or `CPX` (AMD).
    """
    if _MIG.fullmatch(profile):
        return _compute_mig_share(device, profile.lower())
    mode = profile.upper()
    if device.name not in AMD_DIES:
        return None
    partitions = AMD_DIES[device.name] if mode == "CPX" else _AMD_MODES.get(mode)
    if not partitions or AMD_DIES[device.name] % partitions:
        return None
    return PartitionShare(1 / partitions, 1 / partitions)


def scale_rates(rates: ComputeRates, factor: float) -> ComputeRates:
    """Compute rates multiplied by a factor; unknown rates stay unknown."""
    return ComputeRates(*(None if rate is None else rate * factor for rate in (rates.bits16, rates.fp8, rates.int8)))


def _compute_mig_share(device: Device, profile: str) -> PartitionShare | None:
    numbers, device_slices = _MIG_NUMBERS.match(profile), MIG_SLICES.get(device.name)
    if numbers is None or device_slices is None:
        return None
    slices, compute = int(numbers["slices"]), int(numbers["compute"] or numbers["slices"])
    # Profile names round the size, and less than the nominal size is usable (B300: 269 of 288 GB): take the nearest.
    stated = 8 * float(numbers["memory"]) * GIB / device.memory[0][1]
    possible = [
        eighths for eighths in _MEMORY_SLICES[device_slices].get(slices, ()) if abs(stated / eighths - 1) < 1 / 4
    ]
    if compute > slices or len(possible) != 1:
        return None
    return PartitionShare(possible[0] / 8, compute / device_slices)
