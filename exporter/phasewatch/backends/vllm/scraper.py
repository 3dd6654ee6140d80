"""Watches a vLLM server, or runs a recording of one through the same pipeline."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import httpx

from phasewatch.backends.device_discovery import DeviceDiscovery
from phasewatch.backends.equipment import resolve_devices
from phasewatch.backends.page_player import PagePlayer
from phasewatch.backends.page_scraper import PageScraper
from phasewatch.backends.vllm.client import VllmClient, parse_facts
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.backends.vllm.totals import PAGE_RULES
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceLayout

resolve_vllm_devices: Final = partial(resolve_devices, usual_layout=DeviceLayout.TENSOR)
"""Resolves the devices of a vLLM, which divides every layer among its devices by default."""


class VllmScraper(PageScraper):
    """Watches one vLLM server.

    Args:
        target: the server.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(
            target,
            clock,
            wall_clock,
            client=VllmClient(target, transport),
            rules=PAGE_RULES,
            discovery=DeviceDiscovery(target, resolve_vllm_devices, transport),
        )


def create_player(target: Target, header: Mapping[str, Any]) -> PagePlayer:
    """The player of a recording whose header contains the responses of /version and /v1/models."""
    device, _ = resolve_vllm_devices(target, ())
    facts = parse_facts(header, header.get("models"))
    return PagePlayer(target, facts, table=METRIC_NAMES, rules=PAGE_RULES, device=device)
