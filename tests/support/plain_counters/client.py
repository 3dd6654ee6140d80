"""Asks the server for its page; it says nothing else of itself."""

import httpx

from phasewatch.backends.page_client import PageClient
from phasewatch.config.settings import Target
from phasewatch.snapshot.target import ServerFacts
from tests.support.plain_counters.metric_names import METRIC_NAMES


class PlainCountersClient(PageClient):
    """Asks one server."""

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(target, METRIC_NAMES, transport)

    async def fetch_facts(self) -> ServerFacts:
        """Nothing is known of the server but its counters."""
        return ServerFacts()
