"""Client of one llama-server process: reads it in the order that does no harm.

/props comes first, since it neither wakes a sleeping server nor keeps one awake; only then /metrics and, right after,
/slots. /health tells whether a server that gives no page still answers at all.
"""

from typing import Final

import httpx

from phasewatch.backends.client import ServerClient, decode_page, parse_json
from phasewatch.backends.llamacpp.facts import ModelMeta, Props, parse_model, parse_props
from phasewatch.backends.llamacpp.reading import refuse_loading
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.scrape.http import HTTP_OK, Response

_TEXT: Final = "text/plain;version=0.0.4"

_LONGEST_HEALTH_SECONDS: Final = 1.0
"""Seconds for /health, which is asked after a page has already taken the target's whole timeout."""

_NOT_FOUND: Final = 404


class LlamacppClient(ServerClient):
    """HTTP client of one llama-server process.

    Args:
        target: the server.
        query: what a router needs to pass a request on to one of its processes, without "?"; empty for a process.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, query: str = "", transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(target, transport)
        self._query = f"?{query}" if query else ""

    async def fetch_props(self) -> Props:
        """What the server says about itself; empty for a build that does not have /props.

        Raises:
            ScrapeError: there was no usable response; `no_metrics` if it is not that of a llama-server.
        """
        response = await self.get(f"/props{self._query}")
        if response.status == _NOT_FOUND:
            return Props()
        refuse_loading(response)
        decode_page(response)  # for the errors of statuses
        props = parse_props(parse_json(response.body))
        if props is None:
            raise ScrapeError(
                Reason.NO_METRICS, "the answer to /props is not a llama-server's: is url its base address?"
            )
        return props

    async def fetch_model(self, name: str = "") -> ModelMeta | None:
        """The model that the server has loaded, of this name where there are several; None if it does not say."""
        return parse_model(await self.get_json_or_none("/v1/models"), name)

    async def fetch_metrics(self) -> Response:
        """The page of metrics, of any status.

        Raises:
            ScrapeError: there was no complete response.
        """
        return await self.get(f"{self._target.metrics_path}{self._query}", _TEXT)

    async def fetch_slots(self) -> Response:
        """The slots, of any status.

        Raises:
            ScrapeError: there was no complete response.
        """
        return await self.get(f"/slots{self._query}")

    async def is_alive(self) -> bool:
        """Whether /health answers. That proves that the server accepts requests, not that it works on any."""
        try:
            response = await self.get("/health", deadline=min(_LONGEST_HEALTH_SECONDS, self._target.timeout))
        except ScrapeError:
            return False
        return response.status == HTTP_OK
