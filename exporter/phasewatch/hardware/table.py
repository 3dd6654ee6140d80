"""The table of devices that comes with the program: `devices.csv`, one row per device as its driver shows it."""

import csv
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from phasewatch.hardware.facts import ComputeRates

GIB: Final = 2.0**30
"""Vendors print memory in "GB" and build it in powers of two: a card of 12 GB has 12 of these."""


@dataclass(frozen=True, slots=True)
class Device:
    """A row of the table.

    Attributes:
        name: ours; no two rows share one.
        vendor: as its driver writes it; `CPU` for memory of hosts.
        kind: datacenter, workstation, geforce, laptop, embedded, radeon, apu, arc, apple, cpu, tpu or neuron.
        aliases: names that drivers report for it. Several devices may share one.
        memory: sizes that it is sold with, each as the lowest and the highest in bytes, equal where it is one size;
            empty if unknown.
        memory_bandwidth: bytes per second, as the vendor publishes it; None if unknown.
        compute: dense operations per second.
        bandwidth_status: how far the bandwidth was checked: `doc` seen in a document, `db` in a collection of others,
            `rule` follows from a rule, `mem` unconfirmed.
        compute_status: the same for the compute rates; empty where there are none.
        source: where the figures come from.
        notes: what to know about them.
    """

    name: str
    vendor: str
    kind: str
    aliases: tuple[str, ...]
    memory: tuple[tuple[float, float], ...]
    memory_bandwidth: float | None
    compute: ComputeRates
    bandwidth_status: str
    compute_status: str
    source: str
    notes: str


@functools.cache
def load_devices() -> tuple[Device, ...]:
    """The devices that come with the program, in the order of the table."""
    return parse_devices(resources.files("phasewatch.hardware").joinpath("devices.csv").read_text(encoding="utf-8"))


def parse_devices(text: str) -> tuple[Device, ...]:
    """Read a table.

    Args:
        text: of the file, with its heads in the first line.

    Raises:
        ValueError: a column is missing, or a figure is no number above 0; the message names line and column.
    """
    lines = csv.DictReader(text.splitlines(), restval="")
    missing = _COLUMNS - set(lines.fieldnames or ())
    if missing:
        raise ValueError(f"devices.csv:1: columns are missing: {', '.join(sorted(missing))}")
    return tuple(_device(row, f"devices.csv:{lines.line_num}") for row in lines)


_COLUMNS: Final = frozenset(
    {
        "name",
        "vendor",
        "class",
        "aliases",
        "memory_gb",
        "bandwidth_gbps",
        "bf16_dense_tflops",
        "fp8_dense_tflops",
        "int8_dense_tops",
        "bandwidth_status",
        "compute_status",
        "source",
        "notes",
    }
)


def _device(row: Mapping[str, str], where: str) -> Device:
    def figure(column: str, unit: float) -> float | None:
        return _number(row[column], unit, f"{where}: {column}") if row[column] else None

    return Device(
        name=row["name"],
        vendor=row["vendor"],
        kind=row["class"],
        aliases=tuple(alias for alias in row["aliases"].split(";") if alias),
        memory=_sizes(row["memory_gb"], f"{where}: memory_gb"),
        memory_bandwidth=figure("bandwidth_gbps", 1e9),
        compute=ComputeRates(
            bits16=figure("bf16_dense_tflops", 1e12),
            fp8=figure("fp8_dense_tflops", 1e12),
            int8=figure("int8_dense_tops", 1e12),
        ),
        bandwidth_status=row["bandwidth_status"],
        compute_status=row["compute_status"],
        source=row["source"],
        notes=row["notes"],
    )


def _sizes(text: str, where: str) -> tuple[tuple[float, float], ...]:
    """`16/32` are two sizes, `8-16` is a range."""
    sizes = []
    for size in text.split("/") if text else ():
        low, _, high = size.partition("-")
        sizes.append((_number(low, GIB, where), _number(high or low, GIB, where)))
    return tuple(sizes)


def _number(text: str, unit: float, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{where}: expected a number above 0, found {text!r}")
    return number * unit
