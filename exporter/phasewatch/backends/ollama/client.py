"""Ollama HTTP client: version, ps, tags, show, generate."""

import json
from collections.abc import Mapping
from typing import Any

from phasewatch.backends.client import ServerClient, get_text
from phasewatch.backends.ollama.inventory import LoadedModel, StoredModel, parse_loaded_models, parse_stored_models
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.http import HTTP_OK, Response


class OllamaClient(ServerClient):
    """HTTP client of one Ollama.

    Args:
        target: the server.
        transport: replaces the network in tests.
    """

    async def fetch_version(self) -> str | None:
        """The server's version; None if the response has none.

        Raises:
            ScrapeError: there was no usable response.
        """
        return get_text((await self._get_object("/api/version")).get("version"))

    async def fetch_loaded_models(self) -> tuple[tuple[LoadedModel, ...], float | None]:
        """The models in memory, and the Unix time of the server's clock in whole seconds, if the response has one.

        Raises:
            ScrapeError: there was no usable response.
        """
        response = await self.get("/api/ps")
        return parse_loaded_models(_parse_object(response, "/api/ps")), response.date

    async def fetch_stored_models(self) -> dict[str, StoredModel]:
        """The models on disk, by name.

        Raises:
            ScrapeError: there was no usable response.
        """
        return parse_stored_models(await self._get_object("/api/tags"))

    async def show_model(self, name: str) -> dict[str, Any]:
        """Metadata of a model; for these the server reads its file and does not load it.

        Raises:
            ScrapeError: there was no usable response.
        """
        response = await self.post("/api/show", {"model": name}, self._target.timeout)
        return _parse_object(response, "/api/show")

    async def generate(self, body: Mapping[str, object], deadline: float) -> Response:
        """Request a completion, with `deadline` seconds for the complete response.

        Raises:
            ScrapeError: there was no complete response.
        """
        return await self.post("/api/generate", body, deadline)

    async def _get_object(self, path: str) -> dict[str, Any]:
        return _parse_object(await self.get(path), path)


def _parse_object(response: Response, path: str) -> dict[str, Any]:
    """The JSON object of a response.

    Raises:
        ScrapeError: it is of another status, or no JSON object.
    """
    if response.status in {401, 403}:
        raise ScrapeError(
            Reason.AUTH,
            f"the server answered {response.status}: set authorization; without one an Ollama on a loopback address "
            "refuses names it does not know, give its url by IP address",
        )
    if response.status != HTTP_OK:
        raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {response.status} to {path} instead of 200")
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise ScrapeError(Reason.PARSE, f"the answer to {path} is no JSON") from error
    if not isinstance(value, dict):
        raise ScrapeError(Reason.PARSE, f"the answer to {path} is no JSON object")
    return value
