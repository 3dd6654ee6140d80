"""Base of all clients: a lazily created HTTP client, its headers, JSON, and the meaning of statuses."""

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.scrape.http import HTTP_OK, Response, create_client, get, post, read_authorization_header

JSON: Final = "application/json"


class ServerClient:
    """HTTP client of one server.

    Args:
        target: the server.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def get(self, path: str, accept: str = JSON, deadline: float | None = None) -> Response:
        """GET a path within `deadline` seconds, or else the target's timeout.

        Raises:
            ScrapeError: there was no complete response.
        """
        client, headers = self._connect(accept)
        timeout, limit = self._target.timeout if deadline is None else deadline, self._target.body_size_limit
        return await get(client, path, headers=headers, deadline=timeout, limit=limit)

    async def post(self, path: str, body: Mapping[str, object], deadline: float) -> Response:
        """POST a JSON object to a path.

        Raises:
            ScrapeError: there was no complete response within `deadline` seconds.
        """
        client, headers = self._connect(JSON)
        limit = self._target.body_size_limit
        return await post(client, path, body, headers=headers, deadline=deadline, limit=limit)

    async def get_json_or_none(self, path: str) -> Any:
        """The JSON value at a path; None if there is no valid response."""
        try:
            response = await self.get(path)
        except ScrapeError:
            return None
        return parse_json(response.body) if response.status == HTTP_OK else None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _connect(self, accept: str) -> tuple[httpx.AsyncClient, dict[str, str]]:
        if self._client is None:
            self._client = create_client(self._target.url, self._target.tls_config, self._transport)
        return self._client, {"Accept": accept, **read_authorization_header(self._target.authorization)}


def decode_page(response: Response) -> str:
    """The text of a page of metrics from a response of any status. Bytes that are not UTF-8 become surrogates: on a
    line that is not read they do no harm.

    Raises:
        ScrapeError: `auth` or `http_status` for a status other than 200.
    """
    if response.status in {401, 403}:
        raise ScrapeError(Reason.AUTH, f"the server answered {response.status}: set authorization, or renew its secret")
    if 300 <= response.status < 400:  # noqa: PLR2004  # redirects
        raise ScrapeError(
            Reason.HTTP_STATUS,
            f"the server answered {response.status}, a redirect that is not followed: set url, or metrics_path for "
            "another path of the same server, to where it leads",
        )
    if response.status == 404:  # noqa: PLR2004  # not found
        raise ScrapeError(
            Reason.HTTP_STATUS,
            "the server answered 404: is url its base address, and metrics_path the path of its metrics?",
        )
    if response.status != HTTP_OK:
        raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {response.status} instead of 200")
    return response.body.decode(errors="surrogateescape")


def parse_json(body: bytes) -> Any:
    """The value of a JSON text; None if it is invalid."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def is_showable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: one from JSON may contain half of a surrogate pair."""
    return text.encode(errors="ignore").decode() == text


def get_text(value: Any) -> str | None:
    """A JSON value if it is a text that can be encoded, otherwise None."""
    return value if isinstance(value, str) and is_showable(value) else None
