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


def finder(url: str, answers: list[httpx.Response] | None = None, **keys: Any) -> DeviceDiscovery:
    """A finder whose DCGM exporter gives these answers, one after the other."""
    text = f"targets: [{{name: chat, backend: vllm, url: '{url}', {', '.join(f'{k}: {v}' for k, v in keys.items())}}}]"
    left = iter(answers or [])
    return DeviceDiscovery(parse_config(text).targets[0], RESOLVE, httpx.MockTransport(lambda _: next(left)))


def page(body: str, status: int = 200) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(body.encode()))


def found(seeker: DeviceDiscovery, times: int = 1) -> tuple[list[DeviceFacts | None], list[str]]:
    async def work() -> list[DeviceFacts | None]:
        return [await seeker.discover() for _ in range(times)]

    with capture_logs() as logs:
        devices = asyncio.run(work())
    return devices, [line["note"] for line in logs if line["event"] == "device"]


@pytest.fixture(autouse=True)
def without_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed where the tests run has no say in them."""
    for library in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, library, None)


@pytest.fixture
def l4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that shows one L4."""
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _: "NVIDIA L4",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=23034 * 2**20),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def test_a_configured_name_needs_nobody_else() -> None:
    (facts,), notes = found(finder(LOCAL, device="{name: NVIDIA L40S}", device_from="http://dcgm.invalid:9400/metrics"))
    assert facts is not None
    assert (facts.memory_bandwidth, notes) == (864e9, [])


@pytest.mark.usefixtures("l4")
def test_the_driver_of_this_machine_tells_of_a_target_on_it() -> None:
    (facts,), notes = found(finder(LOCAL))
    assert facts is not None
    assert (facts.name, facts.memory_bandwidth, facts.bandwidth_source, notes) == ("L4", 300e9, DeviceSource.TABLE, [])


@pytest.mark.usefixtures("l4")
def test_the_driver_of_this_machine_says_nothing_of_a_target_elsewhere() -> None:
    (facts,), (note,) = found(finder(REMOTE))
    assert facts is not None
    assert facts.memory_bandwidth is None
    assert note.startswith("no device is known: set device.memory_bandwidth")


def test_a_dcgm_exporter_tells_of_a_target_elsewhere() -> None:
    (facts,), notes = found(finder(REMOTE, [page(DCGM)], device_from="http://dcgm.invalid:9400/metrics"))
    assert facts is not None
    assert (facts.name, facts.memory_bandwidth, notes) == ("L40S", 864e9, [])


def test_the_devices_are_found_once() -> None:
    once = finder(REMOTE, [page(DCGM)], device_from="http://dcgm.invalid:9400/metrics")
    (first, *others), _ = found(once, times=1 + 2 * RETRY_TICKS)
    assert first is not None
    assert others == [None] * 2 * RETRY_TICKS


@pytest.mark.usefixtures("l4")
def test_a_driver_that_comes_up_later_is_found_at_the_fourth_look(monkeypatch: pytest.MonkeyPatch) -> None:
    seeker = finder(LOCAL)
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "pynvml", None)
        (first, *others), (note,) = found(seeker, times=RETRY_TICKS + 1)
    assert first == DeviceFacts()
    assert others == [None] * RETRY_TICKS
    assert note.startswith("no device is known")
    later, notes = found(seeker, times=RETRY_TICKS)
    assert [facts.name for facts in later if facts] == ["L4"]
    assert notes == []
    assert found(seeker, times=2 * RETRY_TICKS) == ([None] * 2 * RETRY_TICKS, [])


def test_a_page_beyond_its_own_limit_is_not_read() -> None:
    large = DCGM + f"# {'x' * PAGE_LIMIT}\n"
    (facts,), (note,) = found(finder(REMOTE, [page(large)], device_from="http://dcgm.invalid:9400/metrics"))
    assert facts is None
    assert note.startswith("device_from cannot be read: too_large: ")


def test_a_page_is_read_beside_the_loop_that_serves_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []

    def read(text: str) -> DetectedDevices:
        readers.append(threading.current_thread())
        return parse_dcgm_page(text)

    monkeypatch.setattr("phasewatch.backends.device_discovery.parse_dcgm_page", read)
    found(finder(REMOTE, [page(DCGM)], device_from="http://dcgm.invalid:9400/metrics"))
    assert readers
    assert threading.main_thread() not in readers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(page("", 500), "http_status"), (page("up 1\n"), "no_metrics"), (page("<html>"), "no_metrics")],
)
def test_a_dcgm_exporter_that_does_not_tell_is_asked_again_and_complained_of_once(
    answer: httpx.Response, reason: str
) -> None:
    seeker = finder(REMOTE, [answer, page("", 500), page(DCGM)], device_from="http://dcgm.invalid:9400/metrics")
    (first, second, third), (note,) = found(seeker, times=3)
    assert (first, second) == (None, None)
    assert third is not None
    assert third.memory_bandwidth == 864e9
    assert note.startswith(f"device_from cannot be read: {reason}: ")
