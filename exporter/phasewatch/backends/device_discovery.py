"""Finds the devices of a target at run time, and says once what is not known."""

import asyncio
from typing import Final

import httpx

from phasewatch.backends.equipment import detect_local_devices, is_local, resolve_devices
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.log import logger
from phasewatch.config.resolve import Target
from phasewatch.hardware.detect import ReportedDevice, parse_dcgm_page
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.scrape.http import HTTP_OK, get, new_client

LOOKS_AGAIN: Final = 4
"""Of the looks, 15 seconds apart, every such one is taken where the ones before have found nothing: a driver may come
up after the server, and a folder may be mounted later.
"""

PAGE_LIMIT: Final = 4_000_000
"""Bytes of a DCGM exporter's page: some kilobytes for each GPU."""

_ACCEPT: Final = {"Accept": "text/plain;version=0.0.4"}


class DeviceFinder:
    """Asks drivers, or a DCGM exporter, until the devices of one target are known.

    Args:
        target: with the operator's word, which comes first.
        transport: stands in for the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = transport
        self._found: DeviceFacts | None = None
        self._looks = 0
        self._said: set[str] = set()
        self._no_driver: str | None = None

    async def find(self) -> DeviceFacts | None:
        """The devices; None if nothing has changed since the last look, or they cannot be known for the time being."""
        before = self._found
        self._looks += 1
        if before is not None and (before.memory_bandwidth is not None or self._looks % LOOKS_AGAIN):
            return None
        try:
            reported = await self._reported()
        except ScrapeError as error:
            self._say(f"device_from cannot be read: {error.reason}: {error.message}", once="device_from")
            return None
        facts, notes = await asyncio.to_thread(resolve_devices, self._target, reported)
        self._found = facts
        for note in notes:
            self._say(f"{note} ({self._no_driver})" if self._no_driver else note, once=note)
        return None if facts == before else facts

    async def _reported(self) -> tuple[ReportedDevice, ...]:
        """What drivers and a DCGM exporter tell, if the operator has not named the device.

        Raises:
            ScrapeError: the DCGM exporter does not answer.
        """
        if self._target.device.name is not None:
            return ()
        if is_local(self._target.url):
            detected = await asyncio.to_thread(detect_local_devices)
            if detected.devices:
                return detected.devices
            self._no_driver = detected.reason
        return await self._from_page(self._target.device.page) if self._target.device.page else ()

    async def _from_page(self, url: str) -> tuple[ReportedDevice, ...]:
        async with new_client(url, self._target.tls, self._transport) as client:
            answer = await get(client, url, headers=_ACCEPT, deadline=self._target.timeout, limit=PAGE_LIMIT)
        if answer.status != HTTP_OK:
            raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {answer.status} instead of 200")
        # A large page takes long to read; the targets go on meanwhile.
        detected = await asyncio.to_thread(lambda: parse_dcgm_page(answer.body.decode(errors="replace")))
        if not detected.devices:
            raise ScrapeError(Reason.NO_METRICS, detected.reason or "no device")
        return detected.devices

    def _say(self, note: str, *, once: str) -> None:
        if once not in self._said:
            self._said.add(once)
            logger().info("device", target=self._target.name, note=note)
