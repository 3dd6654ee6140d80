"""Discovers the devices of a target at run time, and logs each note about them once."""

import asyncio
from collections.abc import Callable
from typing import Final

import httpx

from phasewatch.backends.equipment import detect_local_devices, is_local
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target
from phasewatch.hardware.dcgm import parse_dcgm_page
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.hardware.reported import ReportedDevice
from phasewatch.scrape.http import HTTP_OK, create_client, get

DISCOVERY_SECONDS: Final = 15.0
"""Seconds between two checks whether the devices are known; drivers are asked only if they are not."""

RETRY_TICKS: Final = 4
"""Discovery is retried on every fourth tick (once a minute) while nothing has been found: drivers may start late,
folders may be mounted late."""

ResolveDevices = Callable[[Target, tuple[ReportedDevice, ...]], tuple[DeviceFacts, tuple[str, ...]]]
"""Resolves the devices reported by drivers into facts and notes about them; see `equipment.resolve_devices`."""

PAGE_LIMIT: Final = 4_000_000
"""Largest page of a DCGM exporter in bytes. It has some kilobytes for each GPU."""

_ACCEPT: Final = {"Accept": "text/plain;version=0.0.4"}


class DeviceDiscovery:
    """Asks drivers, or a DCGM exporter, until the devices of one target are known.

    Args:
        target: the target; its configured devices take precedence.
        resolve: how the backend combines the configured devices with those that drivers report.
        transport: replaces the network in tests.
    """

    def __init__(
        self, target: Target, resolve: ResolveDevices, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._target = target
        self._resolve = resolve
        self._transport = transport
        self._facts: DeviceFacts | None = None
        self._ticks = 0
        self._logged: set[str] = set()
        self._missing_driver: str | None = None

    async def discover(self) -> DeviceFacts | None:
        """The devices; None if nothing has changed since the last tick, or if they cannot be determined at present."""
        before = self._facts
        self._ticks += 1
        if before is not None and (before.memory_bandwidth is not None or self._ticks % RETRY_TICKS):
            return None
        try:
            reported = await self._ask_drivers()
        except ScrapeError as error:
            self._log(f"device_from cannot be read: {error.reason}: {error.message}", once="device_from")
            return None
        facts, notes = await asyncio.to_thread(self._resolve, self._target, reported)
        self._facts = facts
        for note in notes:
            self._log(f"{note} ({self._missing_driver})" if self._missing_driver else note, once=note)
        return None if facts == before else facts

    async def _ask_drivers(self) -> tuple[ReportedDevice, ...]:
        """The devices that drivers or a DCGM exporter report; none if the device is configured by name.

        Raises:
            ScrapeError: the DCGM exporter does not respond, or reports no device.
        """
        if self._target.device.name is not None:
            return ()
        if is_local(self._target.url):
            detected = await asyncio.to_thread(detect_local_devices)
            if detected.devices:
                return detected.devices
            self._missing_driver = detected.reason
        return await self._ask_exporter(self._target.device_from) if self._target.device_from else ()

    async def _ask_exporter(self, url: str) -> tuple[ReportedDevice, ...]:
        async with create_client(url, self._target.tls_config, self._transport) as client:
            response = await get(client, url, headers=_ACCEPT, deadline=self._target.timeout, limit=PAGE_LIMIT)
        if response.status != HTTP_OK:
            raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {response.status} instead of 200")
        # In a thread: a large page takes long to parse, and other targets must not wait.
        detected = await asyncio.to_thread(lambda: parse_dcgm_page(response.body.decode(errors="replace")))
        if not detected.devices:
            raise ScrapeError(Reason.NO_METRICS, detected.reason or "no device")
        return detected.devices

    def _log(self, note: str, *, once: str) -> None:
        if once not in self._logged:
            self._logged.add(once)
            get_logger().info("device", target=self._target.name, note=note)
