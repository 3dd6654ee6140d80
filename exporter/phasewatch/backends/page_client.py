"""Client of a server that exposes Prometheus metrics about its engines."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

import httpx

from phasewatch.analysis.samples import Page
from phasewatch.backends.client import ServerClient, decode_page
from phasewatch.backends.metric_table import MetricTable
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.base.errors import ScrapeError
from phasewatch.config.settings import Target
from phasewatch.scrape.http import Response
from phasewatch.scrape.recorded import FetchedLine, record_answer
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

    async def fetch_header(self) -> Mapping[str, object]:
        """Request version and models, for the header of a recording."""
        facts = await self.fetch_facts()
        models = [
            {"id": name, "root": model.root, "max_model_len": model.max_model_len}
            for name, model in facts.models.items()
        ]
        return {"version": facts.version, "models": {"data": models}}

    async def fetch_line(self, clock: Callable[[], float]) -> FetchedLine:
        """Request the page of metrics, for a line of a recording."""
        return FetchedLine(*await record_answer(self.fetch(), clock))

    def check(self, line: FetchedLine) -> None:
        """Check that a line of a recording has a usable page.

        Raises:
            ScrapeError: it has none.
        """
        if isinstance(line.outcome, ScrapeError):
            raise line.outcome
        self.parse_page(line.outcome)

    @abstractmethod
    async def fetch_facts(self) -> ServerFacts:
        """Request the version, the models and the server's settings. Whatever it does not respond to stays empty."""


def parse_page(reader: PageReader, response: Response) -> Page:
    """Parse a response of any status, live or recorded, into a typed page.

    Raises:
        ScrapeError: it is not a page of the metrics in the reader's table.
    """
    return reader.read(decode_page(response), openmetrics=response.content_type.startswith(_OPENMETRICS))
