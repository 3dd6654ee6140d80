"""Asks a server whose /metrics is a page of Prometheus metrics about its engines."""

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
"""Asked for OpenMetrics without UTF-8 names, vLLM's prometheus_client (0.22 and newer) turns the colons of samples into
underscores but not those of families."""

_OPENMETRICS: Final = "application/openmetrics-text"


class PageClient(ServerClient):
    """Asks one server for its page, and for what it says of itself.

    Args:
        target: the server.
        table: the metrics to read.
        transport: stands in for the network in tests.
    """

    def __init__(self, target: Target, table: MetricTable, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(target, transport)
        self._reader = PageReader(table)

    async def fetch(self) -> Response:
        """Get the page of metrics.

        Raises:
            ScrapeError: it could not be had.
        """
        return await self.get("/metrics", _ACCEPT)

    def parse_page(self, response: Response) -> Page:
        """Turn a response into a typed page.

        Raises:
            ScrapeError: it is not a page of this server's metrics.
        """
        return parse_page(self._reader, response)

    @abstractmethod
    async def fetch_facts(self) -> ServerFacts:
        """Ask for the version, the models and the server's settings. What it does not answer stays empty."""


def parse_page(reader: PageReader, response: Response) -> Page:
    """Turn a response of any status into a typed page, live or from a recording.

    Raises:
        ScrapeError: it is not a page of the metrics that the reader knows.
    """
    return reader.read(decode_page(response), openmetrics=response.content_type.startswith(_OPENMETRICS))
