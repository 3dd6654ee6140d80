"""Requests from a llama-server what a recording stores: its pages, and of its slots and its /props nothing but what is
read, since both may hold what users wrote.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx

from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.facts import Props
from phasewatch.backends.llamacpp.player import PROPS
from phasewatch.backends.llamacpp.reading import ReadingParser
from phasewatch.backends.llamacpp.slots import reduce_slots
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.scrape.http import HTTP_OK, Response
from phasewatch.scrape.recorded import FetchedLine, parse_answer, record_answer


class LlamacppRecorder:
    """Records one llama-server process.

    Args:
        target: the server.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = LlamacppClient(target, transport=transport)
        self._parser = ReadingParser()

    async def fetch_header(self) -> Mapping[str, object]:
        """Request /props and /v1/models. What the server does not answer is empty."""
        try:
            props = await self._client.fetch_props()
        except ScrapeError:
            props = Props()
        model = await self._client.fetch_model()
        meta = {"size": None if model is None or model.weight_bytes is None else int(model.weight_bytes)}
        models = [] if model is None else [{"id": model.name, "meta": meta}]
        return {"version": props.build, "props": _format_props(props), "models": {"data": models}}

    async def fetch_line(self, clock: Callable[[], float]) -> FetchedLine:
        """Request /props, and unless the server sleeps, /metrics and /slots; /health, if one of them hangs."""
        answer, outcome = await record_answer(self._fetch_sleep(), clock)
        if isinstance(outcome, ScrapeError):
            return await self._add_health(answer, outcome, clock)
        if outcome.body == b"true":
            return FetchedLine(answer, outcome, PROPS)
        page, outcome = await record_answer(self._client.fetch_metrics(), clock)
        if isinstance(outcome, ScrapeError):
            return await self._add_health(page, outcome, clock)
        slots, slots_outcome = await record_answer(fetch_reduced_slots(self._client), clock)
        line = FetchedLine({**page, "slots": slots}, outcome)
        return await self._add_health(line.keys, slots_outcome, clock) if _hangs(slots_outcome) else line

    def check(self, line: FetchedLine) -> None:
        """Check that a line shows figures of a llama-server, or that it sleeps.

        Raises:
            ScrapeError: it does not.
        """
        if isinstance(line.outcome, ScrapeError):
            raise line.outcome
        if line.kind == PROPS:
            return
        slots = parse_answer(line.keys["slots"])
        if isinstance(slots, ScrapeError):
            raise slots
        self._parser.parse(line.outcome, slots)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _fetch_sleep(self) -> Response:
        """/props with nothing for a body but whether the server sleeps."""
        props = await self._client.fetch_props()
        return Response(HTTP_OK, "application/json", b"true" if props.asleep else b"false")

    async def _add_health(
        self, keys: Mapping[str, object], outcome: Response | ScrapeError, clock: Callable[[], float]
    ) -> FetchedLine:
        if not _hangs(outcome):
            return FetchedLine(keys, outcome)
        started = clock()
        alive = await self._client.is_alive()
        health = {
            "t": round(started, 4),
            "took": round(clock() - started, 4),
            "status": HTTP_OK if alive else 0,
            "body": "",
        }
        return FetchedLine({**keys, "health": health}, outcome)


async def fetch_reduced_slots(client: LlamacppClient) -> Response:
    """The answer of /slots with nothing but the fields that are read.

    Raises:
        ScrapeError: there was no complete response, or it is no list of slots.
    """
    response = await client.fetch_slots()
    return replace(response, body=reduce_slots(response.body).encode()) if response.status == HTTP_OK else response


def _hangs(outcome: Response | ScrapeError) -> bool:
    return isinstance(outcome, ScrapeError) and outcome.reason is Reason.TIMEOUT


def _format_props(props: Props) -> dict[str, Any]:
    """The known fields of /props in its own form."""
    known = {
        "build_info": props.build,
        "total_slots": props.slots,
        "model_alias": props.model,
        "model_path": props.path,
        "is_sleeping": props.asleep,
        "default_generation_settings": {"n_ctx": props.context},
    }
    return {name: value for name, value in known.items() if value is not None}
