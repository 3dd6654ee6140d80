"""Watches the server, or plays a recording of it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from phasewatch.backends.device_discovery import DeviceDiscovery
from phasewatch.backends.equipment import resolve_devices
from phasewatch.backends.page_player import PagePlayer
from phasewatch.backends.page_scraper import PageScraper
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.snapshot.target import ServerFacts
from tests.support.plain_counters.client import PlainCountersClient
from tests.support.plain_counters.metric_names import METRIC_NAMES
from tests.support.plain_counters.totals import PAGE_RULES

_resolve_devices: Final = partial(resolve_devices, usual_layout=DeviceLayout.PIPELINE)


class PlainCountersScraper(PageScraper):
    """One server and what is known of it."""

    def __init__(self, target: Target, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        client, discovery = PlainCountersClient(target), DeviceDiscovery(target, _resolve_devices)
        super().__init__(target, clock, wall_clock, client=client, rules=PAGE_RULES, discovery=discovery)


def create_player(target: Target, _: Mapping[str, Any]) -> PagePlayer:
    """Plays a recording of the server."""
    device, _notes = _resolve_devices(target, ())
    return PagePlayer(target, ServerFacts(), table=METRIC_NAMES, rules=PAGE_RULES, device=device)
