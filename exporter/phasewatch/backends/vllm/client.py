"""vLLM: its /metrics page, and what it says of itself at /version and /v1/models."""

import json
from dataclasses import replace
from typing import Any, Final

import httpx

from phasewatch.analysis.samples import Page
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.resolve import Limits, Target
from phasewatch.scrape.http import HTTP_OK, Response, get, new_client, read_authorization_header
from phasewatch.snapshot.target import ServedModel, ServerFacts

_ACCEPT: Final = "text/plain;version=0.0.4"
"""Asked for OpenMetrics without UTF-8 names, vLLM's prometheus_client (0.22 and newer) turns the colons of samples into
underscores but not those of families."""


class VllmClient:
    """Asks one vLLM server.

    Args:
        target: the server.
        transport: stands in for the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._reader = PageReader()

    async def fetch(self) -> Response:
        """Get the page of metrics.

        Raises:
            ScrapeError: it could not be had.
        """
        return await self._get("/metrics", _ACCEPT)

    def interpret(self, answer: Response) -> Page:
        """Turn an answer into a typed page.

        Raises:
            ScrapeError: it is no page of vLLM's metrics.
        """
        return parse_page(self._reader, answer)

    async def facts(self) -> ServerFacts:
        """Ask for the version, the models and the limits. An endpoint that does not answer leaves its part empty."""
        told = parse_facts(await self._json("/version"), await self._json("/v1/models"))
        return replace(told, limits=parse_limits(await self._json("/server_info?config_format=json")))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _get(self, path: str, accept: str) -> Response:
        if self._client is None:
            self._client = new_client(self._target.url, self._target.tls, self._transport)
        headers = {"Accept": accept, **read_authorization_header(self._target.authorization)}
        timeout, limit = self._target.timeout, self._target.body_size_limit
        return await get(self._client, path, headers=headers, deadline=timeout, limit=limit)

    async def _json(self, path: str) -> Any:
        try:
            answer = await self._get(path, "application/json")
        except ScrapeError:
            return None
        return parse_json(answer.body) if answer.status == HTTP_OK else None


def parse_page(reader: PageReader, answer: Response) -> Page:
    """Turn an answer of any status into a typed page, live or from a recording.

    Raises:
        ScrapeError: it is no page of vLLM's metrics.
    """
    if answer.status in {401, 403}:
        raise ScrapeError(Reason.AUTH, f"the server answered {answer.status}: set authorization, or renew its secret")
    if 300 <= answer.status < 400:  # noqa: PLR2004  # the redirects
        raise ScrapeError(
            Reason.HTTP_STATUS, f"the server answered {answer.status}: redirects are not followed, set url to its goal"
        )
    if answer.status != HTTP_OK:
        raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {answer.status} instead of 200")
    try:
        text = answer.body.decode()
    except UnicodeDecodeError as error:
        raise ScrapeError(Reason.PARSE, f"the page is not UTF-8 at byte {error.start}") from error
    return reader.read(text, openmetrics=answer.content_type.startswith("application/openmetrics-text"))


def parse_json(body: bytes) -> Any:
    """The value of a JSON text, None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def parse_facts(version: Any, models: Any) -> ServerFacts:
    """Facts from the answers of /version and /v1/models, whatever they are. LoRA adapters are no models."""
    told = version.get("version") if isinstance(version, dict) else None
    listed = models.get("data") if isinstance(models, dict) else None
    return ServerFacts(
        version=_text(told),
        models={
            entry["id"]: _model(entry)
            for entry in (listed if isinstance(listed, list) else ())
            if isinstance(entry, dict) and _text(entry.get("id")) is not None and not entry.get("parent")
        },
    )


def parse_limits(server_info: Any) -> Limits:
    """Limits from the answer of /server_info, which a server has in development mode only (0.32).

    Where a server admits fewer requests than it has slots, or schedules fewer tokens than a step holds, that counts.
    """
    config = server_info.get("vllm_config") if isinstance(server_info, dict) else None
    scheduler = config.get("scheduler_config") if isinstance(config, dict) else None
    told = scheduler if isinstance(scheduler, dict) else {}
    return Limits(
        max_num_seqs=_count(told.get("max_num_active_seqs")) or _count(told.get("max_num_seqs")),
        max_num_batched_tokens=_count(told.get("max_num_scheduled_tokens"))
        or _count(told.get("max_num_batched_tokens")),
    )


def _text(value: Any) -> str | None:
    """Text that can be shown: JSON may hold half of a surrogate pair, which no page can be encoded with."""
    return value if isinstance(value, str) and value.encode(errors="ignore").decode() == value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _model(entry: dict[str, Any]) -> ServedModel:
    root, length = entry.get("root"), entry.get("max_model_len")
    return ServedModel(
        root=_text(root),
        max_model_len=length if isinstance(length, int) else None,
    )
