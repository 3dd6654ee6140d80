"""The shipped table of devices, `devices.csv`: one row for each device that a driver can report."""

import csv
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from phasewatch.hardware.facts import ComputeRates

GIB: Final = 2.0**30
"""Bytes of a "GB" of device memory: vendors write GB and build GiB, so a card of 12 GB has 12 of these."""


@dataclass(frozen=True, slots=True)
class Device:
    """A row of the table.

    Attributes:
        name: unique in the table.
        vendor: vendor, as its driver writes it; `CPU` for host memory.
        kind: datacenter, workstation, geforce, laptop, embedded, radeon, apu, arc, apple, cpu, tpu or neuron.
        aliases: names that drivers report for the device. Several devices may share an alias.
        memory: memory sizes on sale, each as (lowest, highest) in bytes, both equal for a single size; empty if
            unknown.
        memory_bandwidth: bytes per second, as published by the vendor; None if unknown.
        compute: dense operations per second.
        bandwidth_status: how the bandwidth was verified: `doc` in a vendor document, `db` in a third-party database,
            `rule` derived by a rule, `mem` unconfirmed.
        compute_status: the same for the compute rates; empty if there are none.
        source: where the figures come from.
        notes: caveats of the figures.
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
    """The devices of the shipped table, in its order."""
    return parse_devices(resources.files("phasewatch.hardware").joinpath("devices.csv").read_text(encoding="utf-8"))


def parse_devices(text: str) -> tuple[Device, ...]:
    """The devices of a table in CSV.

    Args:
        text: content of the file; the first line names the columns.

    Raises:
        ValueError: a column is missing, or a figure is not a number above 0; the message names line and column.
    """
    lines = csv.DictReader(text.splitlines(), restval="")
    missing = _COLUMNS - set(lines.fieldnames or ())
    if missing:
        raise ValueError(f"devices.csv:1: columns are missing: {', '.join(sorted(missing))}")
    return tuple(_parse_row(row, f"devices.csv:{lines.line_num}") for row in lines)


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


def _parse_row(row: Mapping[str, str], where: str) -> Device:
    def parse_figure(column: str, unit: float) -> float | None:
        return _parse_number(row[column], unit, f"{where}: {column}") if row[column] else None

    return Device(
        name=row["name"],
        vendor=row["vendor"],
        kind=row["class"],
        aliases=tuple(alias for alias in row["aliases"].split(";") if alias),
        memory=_parse_sizes(row["memory_gb"], f"{where}: memory_gb"),
        memory_bandwidth=parse_figure("bandwidth_gbps", 1e9),
        compute=ComputeRates(
            bits16=parse_figure("bf16_dense_tflops", 1e12),
            fp8=parse_figure("fp8_dense_tflops", 1e12),
            int8=parse_figure("int8_dense_tops", 1e12),
        ),
        bandwidth_status=row["bandwidth_status"],
        compute_status=row["compute_status"],
        source=row["source"],
        notes=row["notes"],
    )


def _parse_sizes(text: str, where: str) -> tuple[tuple[float, float], ...]:
    """Memory sizes in bytes. `16/32` are two sizes, `8-16` is a range."""
    sizes = []
    for size in text.split("/") if text else ():
        low, _, high = size.partition("-")
        sizes.append((_parse_number(low, GIB, where), _parse_number(high or low, GIB, where)))
    return tuple(sizes)


def _parse_number(text: str, unit: float, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{where}: expected a number above 0, found {text!r}")
    return number * unit
