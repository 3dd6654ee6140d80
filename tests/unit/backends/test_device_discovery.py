"""Finding the devices of a target: the operator first, then drivers, then a DCGM exporter; once, and with a line."""

import asyncio
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from phasewatch.backends.device_discovery import PAGE_LIMIT, RETRY_TICKS, DeviceDiscovery
from phasewatch.backends.equipment import resolve_devices
from phasewatch.hardware.dcgm import parse_dcgm_page
from phasewatch.hardware.facts import DeviceFacts, DeviceLayout, DeviceSource
from phasewatch.hardware.reported import DetectedDevices
from tests.support.targets import parse_config

REMOTE = "http://server.invalid:8000"
LOCAL = "http://127.0.0.1:8000"
DCGM = 'DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1",modelName="NVIDIA L40S"} 45000\n'

RESOLVE = partial(resolve_devices, usual_layout=DeviceLayout.TENSOR)


def create_discovery(url: str, responses: list[httpx.Response] | None = None, **keys: Any) -> DeviceDiscovery:
    """A discovery whose DCGM exporter sends these responses, one after the other."""
    text = f"targets: [{{name: chat, backend: vllm, url: '{url}', {', '.join(f'{k}: {v}' for k, v in keys.items())}}}]"
    left = iter(responses or [])
    return DeviceDiscovery(parse_config(text).targets[0], RESOLVE, httpx.MockTransport(lambda _: next(left)))


def page(body: str, status: int = 200) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(body.encode()))


def discover(discovery: DeviceDiscovery, times: int = 1) -> tuple[list[DeviceFacts | None], list[str]]:
    async def work() -> list[DeviceFacts | None]:
        return [await discovery.discover() for _ in range(times)]

    with capture_logs() as logs:
        devices = asyncio.run(work())
    return devices, [line["note"] for line in logs if line["event"] == "device"]


@pytest.fixture(autouse=True)
def without_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver library, whatever is installed where the tests run."""
    for library in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, library, None)


@pytest.fixture
def l4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that reports one L4."""
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _: "NVIDIA L4",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=23034 * 2**20),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def test_a_configured_device_needs_neither_driver_nor_exporter() -> None:
    (facts,), notes = discover(
        create_discovery(LOCAL, device="{name: NVIDIA L40S}", device_from="http://dcgm.invalid:9400/metrics")
    )
    assert facts is not None
    assert (facts.memory_bandwidth, notes) == (864e9, [])


@pytest.mark.usefixtures("l4")
def test_the_local_driver_reports_the_devices_of_a_local_target() -> None:
    (facts,), notes = discover(create_discovery(LOCAL))
    assert facts is not None
    assert (facts.name, facts.memory_bandwidth, facts.bandwidth_source, notes) == ("L4", 300e9, DeviceSource.TABLE, [])


@pytest.mark.usefixtures("l4")
def test_the_local_driver_is_not_used_for_a_remote_target() -> None:
    (facts,), (note,) = discover(create_discovery(REMOTE))
    assert facts is not None
    assert facts.memory_bandwidth is None
    assert note.startswith("no device is known: set device.memory_bandwidth")


def test_a_dcgm_exporter_reports_the_devices_of_a_remote_target() -> None:
    (facts,), notes = discover(create_discovery(REMOTE, [page(DCGM)], device_from="http://dcgm.invalid:9400/metrics"))
    assert facts is not None
    assert (facts.name, facts.memory_bandwidth, notes) == ("L40S", 864e9, [])


def test_devices_are_discovered_once() -> None:
    discovery = create_discovery(REMOTE, [page(DCGM)], device_from="http://dcgm.invalid:9400/metrics")
    (first, *others), _ = discover(discovery, times=1 + 2 * RETRY_TICKS)
    assert first is not None
    assert others == [None] * 2 * RETRY_TICKS


@pytest.mark.usefixtures("l4")
def test_a_driver_that_starts_later_is_found_on_the_fourth_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    discovery = create_discovery(LOCAL)
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "pynvml", None)
        (first, *others), (note,) = discover(discovery, times=RETRY_TICKS + 1)
    assert first == DeviceFacts()
    assert others == [None] * RETRY_TICKS
    assert note.startswith("no device is known")
    later, notes = discover(discovery, times=RETRY_TICKS)
    assert [facts.name for facts in later if facts] == ["L4"]
    assert notes == []
    assert discover(discovery, times=2 * RETRY_TICKS) == ([None] * 2 * RETRY_TICKS, [])


def test_a_page_beyond_its_own_limit_is_not_read() -> None:
    large = DCGM + f"# {'x' * PAGE_LIMIT}\n"
    (facts,), (note,) = discover(
        create_discovery(REMOTE, [page(large)], device_from="http://dcgm.invalid:9400/metrics")
    )
    assert facts is None
    assert note.startswith("device_from cannot be read: too_large: ")


def test_a_page_is_parsed_outside_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []

    def read(text: str) -> DetectedDevices:
        readers.append(threading.current_thread())
        return parse_dcgm_page(text)

    monkeypatch.setattr("phasewatch.backends.device_discovery.parse_dcgm_page", read)
    discover(create_discovery(REMOTE, [page(DCGM)], device_from="http://dcgm.invalid:9400/metrics"))
    assert readers
    assert threading.main_thread() not in readers


def test_a_failing_dcgm_exporter_is_asked_again_and_logged_once() -> None:
    for body, status, reason in (
        ("", 500, "http_status"),
        ("up 1\n", 200, "no_metrics"),
        ("<html>", 200, "no_metrics"),
    ):
        responses = [page(body, status), page("", 500), page(DCGM)]
        discovery = create_discovery(REMOTE, responses, device_from="http://dcgm.invalid:9400/metrics")
        (first, second, third), (note,) = discover(discovery, times=3)
        assert (first, second) == (None, None), body
        assert third is not None, body
        assert third.memory_bandwidth == 864e9, body
        assert note.startswith(f"device_from cannot be read: {reason}: "), body
