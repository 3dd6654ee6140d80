"""Ollama HTTP client: version, ps, tags, show, generate."""

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from phasewatch.backends.ollama.inventory import LoadedModel, StoredModel, parse_loaded_models, parse_stored_models
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.resolve import Target
from phasewatch.scrape.http import HTTP_OK, Response, get, new_client, post, read_authorization_header

_JSON: Final = "application/json"


class OllamaClient:
    """Asks one Ollama.

    Args:
        target: the server.
        transport: stands in for the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def fetch_version(self) -> str | None:
        """The server's version; None if it answers and does not say.

        Raises:
            ScrapeError: it does not answer.
        """
        told = (await self._json("/api/version")).get("version")
        return told if isinstance(told, str) and told.encode(errors="ignore").decode() == told else None

    async def fetch_loaded_models(self) -> tuple[tuple[LoadedModel, ...], float | None]:
        """The models in memory, and the server's clock in whole seconds of Unix time, if it tells.

        Raises:
            ScrapeError: they could not be had.
        """
        answer = await self._get("/api/ps")
        return parse_loaded_models(_object(answer, "/api/ps")), answer.date

    async def fetch_stored_models(self) -> dict[str, StoredModel]:
        """The models on disk, by name.

        Raises:
            ScrapeError: they could not be had.
        """
        return parse_stored_models(await self._json("/api/tags"))

    async def show_model(self, name: str) -> dict[str, Any]:
        """What the server knows of a model; it reads the file for that and does not load it.

        Raises:
            ScrapeError: it could not be had.
        """
        answer = await self._post("/api/show", {"model": name}, self._target.timeout)
        return _object(answer, "/api/show")

    async def generate(self, body: Mapping[str, object], deadline: float) -> Response:
        """Let a model complete a prompt.

        Raises:
            ScrapeError: there was no complete answer.
        """
        return await self._post("/api/generate", body, deadline)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _json(self, path: str) -> dict[str, Any]:
        return _object(await self._get(path), path)

    async def _get(self, path: str) -> Response:
        client, headers = self._connection()
        timeout, limit = self._target.timeout, self._target.body_size_limit
        return await get(client, path, headers=headers, deadline=timeout, limit=limit)

    async def _post(self, path: str, body: Mapping[str, object], deadline: float) -> Response:
        client, headers = self._connection()
        limit = self._target.body_size_limit
        return await post(client, path, body, headers=headers, deadline=deadline, limit=limit)

    def _connection(self) -> tuple[httpx.AsyncClient, dict[str, str]]:
        if self._client is None:
            self._client = new_client(self._target.url, self._target.tls, self._transport)
        return self._client, {"Accept": _JSON, **read_authorization_header(self._target.authorization)}


def _object(answer: Response, path: str) -> dict[str, Any]:
    """The JSON object of an answer.

    Raises:
        ScrapeError: it is of another status, or no JSON object.
    """
    if answer.status in {401, 403}:
        raise ScrapeError(
            Reason.AUTH,
            f"the server answered {answer.status}: set authorization; without one an Ollama on a loopback address "
            "refuses names it does not know, give its url by IP address",
        )
    if answer.status != HTTP_OK:
        raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {answer.status} to {path} instead of 200")
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise ScrapeError(Reason.PARSE, f"the answer to {path} is no JSON") from error
    if not isinstance(told, dict):
        raise ScrapeError(Reason.PARSE, f"the answer to {path} is no JSON object")
    return told
