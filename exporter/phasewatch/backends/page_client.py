"""Client of a server that exposes Prometheus metrics about its engines."""

from abc import abstractmethod
from typing import Final

import httpx

from phasewatch.analysis.samples import Page
from phasewatch.backends.client import ServerClient, decode_page
from phasewatch.backends.metric_table import MetricTable
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.config.settings import Target
from phasewatch.scrape.http import Response
from phasewatch.snapshot.target import ServerFacts

_ACCEPT: Final = "text/plain;version=0.0.4"
"""The text format. If asked for OpenMetrics without UTF-8 names, vLLM's prometheus_client (0.22 and newer) replaces the
colons of sample names by underscores, but not those of family names."""

_OPENMETRICS: Final = "application/openmetrics-text"


class PageClient(ServerClient):
    """Requests the page of one server, and its facts about itself.

    Args:
        target: the server.
        table: the metrics to read.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, table: MetricTable, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(target, transport)
        self._reader = PageReader(table)

    async def fetch(self) -> Response:
        """Request the page of metrics.

        Raises:
            ScrapeError: there was no complete response.
        """
        return await self.get(self._target.metrics_path, _ACCEPT)

    def parse_page(self, response: Response) -> Page:
        """Parse a response into a typed page.

        Raises:
            ScrapeError: it is not a page of this server's metrics.
        """
        return parse_page(self._reader, response)

    @abstractmethod
    async def fetch_facts(self) -> ServerFacts:
        """Request the version, the models and the server's settings. Whatever it does not respond to stays empty."""


def parse_page(reader: PageReader, response: Response) -> Page:
    """Parse a response of any status, live or recorded, into a typed page.

    Raises:
        ScrapeError: it is not a page of the metrics in the reader's table.
    """
    return reader.read(decode_page(response), openmetrics=response.content_type.startswith(_OPENMETRICS))
