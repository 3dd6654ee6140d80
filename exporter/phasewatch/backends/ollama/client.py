"""Ollama HTTP client: version, ps, tags, show, generate."""

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from phasewatch.backends.ollama.inventory import (
    LoadedModel,
    StoredModel,
    is_encodable,
    parse_loaded_models,
    parse_stored_models,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.resolve import Target
from phasewatch.scrape.http import HTTP_OK, Response, get, new_client, post, read_authorization_header

_JSON: Final = "application/json"


class OllamaClient:
    """HTTP client of one Ollama.

    Args:
        target: the server.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def fetch_version(self) -> str | None:
        """The server's version; None if the response has none.

        Raises:
            ScrapeError: there was no usable response.
        """
        version = (await self._get_object("/api/version")).get("version")
        return version if isinstance(version, str) and is_encodable(version) else None

    async def fetch_loaded_models(self) -> tuple[tuple[LoadedModel, ...], float | None]:
        """The models in memory, and the Unix time of the server's clock in whole seconds, if the response has one.

        Raises:
            ScrapeError: there was no usable response.
        """
        response = await self._get("/api/ps")
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
        response = await self._post("/api/show", {"model": name}, self._target.timeout)
        return _parse_object(response, "/api/show")

    async def generate(self, body: Mapping[str, object], deadline: float) -> Response:
        """Request a completion, with `deadline` seconds for the complete response.

        Raises:
            ScrapeError: there was no complete response.
        """
        return await self._post("/api/generate", body, deadline)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _get_object(self, path: str) -> dict[str, Any]:
        return _parse_object(await self._get(path), path)

    async def _get(self, path: str) -> Response:
        client, headers = self._connect()
        timeout, limit = self._target.timeout, self._target.body_size_limit
        return await get(client, path, headers=headers, deadline=timeout, limit=limit)

    async def _post(self, path: str, body: Mapping[str, object], deadline: float) -> Response:
        client, headers = self._connect()
        limit = self._target.body_size_limit
        return await post(client, path, body, headers=headers, deadline=deadline, limit=limit)

    def _connect(self) -> tuple[httpx.AsyncClient, dict[str, str]]:
        if self._client is None:
            self._client = new_client(self._target.url, self._target.tls, self._transport)
        return self._client, {"Accept": _JSON, **read_authorization_header(self._target.authorization)}


def _parse_object(response: Response, path: str) -> dict[str, Any]:
    """The JSON object of a response.

    Raises:
        ScrapeError: its status is not 200, or its body is not a JSON object.
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
        payload = json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise ScrapeError(Reason.PARSE, f"the answer to {path} is no JSON") from error
    if not isinstance(payload, dict):
        raise ScrapeError(Reason.PARSE, f"the answer to {path} is no JSON object")
    return payload
