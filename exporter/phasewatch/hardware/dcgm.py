"""Detect GPUs from the metrics page of a DCGM exporter."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from phasewatch.hardware.facts import MAX_DEVICES
from phasewatch.hardware.reported import MIB, DetectedDevices, ReportedDevice, format_error, parse_memory


def parse_dcgm_page(page: str) -> DetectedDevices:
    """The devices on a DCGM exporter's page.

    Args:
        page: the page in the Prometheus text format. Each series identifies its GPU by `UUID`, `gpu` or `device` and
            names it by `modelName`; series of a MIG instance also have `GPU_I_ID` and `GPU_I_PROFILE`.
    """
    by_instance: dict[tuple[str, str], _DcgmDevice] = {}
    try:
        for labels, metric, value in _parse_samples(page):
            gpu = labels.get("UUID") or labels.get("gpu") or labels.get("device") or ""
            key = (gpu, labels.get("GPU_I_ID", ""))
            device = by_instance.setdefault(key, _DcgmDevice(labels["modelName"], labels.get("GPU_I_PROFILE") or None))
            device.values[metric] = value
            if len(by_instance) > MAX_DEVICES:
                return DetectedDevices(
                    (), f"the page shows more than {MAX_DEVICES} devices; it is no single DCGM exporter's"
                )
    except Exception as error:  # noqa: BLE001  # the parser raises whatever a broken line leads it to
        return DetectedDevices((), f"the page is not in the text format of Prometheus: {format_error(error)}")
    split = {gpu for gpu, instance in by_instance if instance}
    devices = tuple(device.report() for (gpu, instance), device in by_instance.items() if instance or gpu not in split)
    return DetectedDevices(devices, None if devices else "the page has no DCGM_FI_ metrics with a modelName")


@dataclass(frozen=True, slots=True)
class _DcgmDevice:
    """A GPU or MIG instance on the page.

    Attributes:
        name: its `modelName`.
        profile: profile of a MIG instance; None for a whole device.
        values: value of each metric, by its name; framebuffer sizes are in MiB.
    """

    name: str
    profile: str | None
    values: dict[str, float] = field(default_factory=dict)

    def report(self) -> ReportedDevice:
        total = self.values.get("DCGM_FI_DEV_FB_TOTAL")
        used, free = self.values.get("DCGM_FI_DEV_FB_USED"), self.values.get("DCGM_FI_DEV_FB_FREE")
        if total is None and used is not None and free is not None:
            total = used + free + self.values.get("DCGM_FI_DEV_FB_RESERVED", 0.0)
        return ReportedDevice(self.name, None if total is None else parse_memory(total * MIB), self.profile)


def _parse_samples(page: str) -> Iterator[tuple[Mapping[str, str], str, float]]:
    """Labels, name and value of each DCGM sample; other lines of the page are not parsed, as they may be many."""
    dcgm_lines = "".join(f"{line}\n" for line in page.split("\n") if line.startswith("DCGM_FI_"))
    for family in text_string_to_metric_families(dcgm_lines):
        for sample in family.samples:
            if sample.labels.get("modelName"):
                yield sample.labels, sample.name, sample.value
