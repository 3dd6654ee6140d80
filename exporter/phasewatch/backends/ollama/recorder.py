"""Requests from an Ollama what a recording stores: the models in memory, and what their llama-servers show.

Templates and system prompts of models are left out, and of slots and arguments all but what is read.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx

from phasewatch.backends.client import parse_json
from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.recorder import fetch_reduced_slots
from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.inventory import parse_layer, parse_loaded_models, parse_stored_models
from phasewatch.backends.ollama.runner.children import Child
from phasewatch.backends.ollama.runner.findings import may_have_children_here
from phasewatch.backends.ollama.runner.watch import create_address, list_own_processes
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.scrape.http import HTTP_OK
from phasewatch.scrape.recorded import FetchedLine, record_answer

_KEPT_OF_SHOW: Final = ("details", "capabilities", "model_info", "tensors")
"""Keys of /api/show that the costs of a model follow from."""

_VOCABULARY: Final = "tokenizer."
"""Beginning of keys of `model_info` that hold the vocabulary, which may be megabytes."""


class OllamaRecorder:
    """Records one Ollama and its children.

    Args:
        target: the server.
        transport: replaces the network in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._target = target
        self._transport = transport
        self._client = OllamaClient(target, transport)

    async def fetch_header(self) -> Mapping[str, object]:
        """Request version and models, and the metadata of those that run here: for a cloud model, Ollama would ask the
        network. What is not answered is empty.
        """
        release = await self._client.get_json_or_none("/api/version")
        tags = await self._client.get_json_or_none("/api/tags")
        version = release.get("version") if isinstance(release, dict) else None
        try:
            stored = parse_stored_models(tags)
        except ScrapeError:
            stored = {}
        show = {name: await self._show(name) for name, model in stored.items() if not model.remote}
        return {"version": version, "release": release, "tags": tags, "show": show}

    async def fetch_line(self, clock: Callable[[], float]) -> FetchedLine:
        """Request the models in memory, and the figures of the children that run them."""
        started = clock()
        listing = None
        if self._target.ollama.runners != "off" and may_have_children_here(self._target):
            listing = await asyncio.to_thread(list_own_processes, self._target)
        ps, outcome = await record_answer(self._client.get("/api/ps"), clock)
        children = [await self._record_child(child, clock) for child in (listing.children if listing else ())]
        took = round(clock() - started, 4)
        times = {"t": round(started, 4), "took": took}
        if isinstance(outcome, ScrapeError):
            return FetchedLine({**ps, **times}, outcome)
        return FetchedLine({**times, "ps": ps, "children": children}, outcome)

    def check(self, line: FetchedLine) -> None:
        """Check that a line lists the models in memory.

        Raises:
            ScrapeError: it does not.
        """
        if isinstance(line.outcome, ScrapeError):
            raise line.outcome
        if line.outcome.status != HTTP_OK:
            raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {line.outcome.status} to /api/ps, not 200")
        parse_loaded_models(parse_json(line.outcome.body))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _show(self, name: str) -> dict[str, Any]:
        try:
            shown = await self._client.show_model(name)
        except ScrapeError:
            return {}
        return reduce_show(shown)

    async def _record_child(self, child: Child, clock: Callable[[], float]) -> dict[str, object]:
        client = LlamacppClient(create_address(self._target, child), transport=self._transport)
        try:
            metrics, _ = await record_answer(client.fetch_metrics(), clock)
            slots, _ = await record_answer(fetch_reduced_slots(client), clock)
        finally:
            await client.close()
        argv = format_arguments(child)
        return {"pid": child.pid, "parent": child.parent, "argv": argv, "metrics": metrics, "slots": slots}


def reduce_show(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an answer of /api/show that are read. The modelfile may hold a prompt: its first line is kept."""
    kept = {key: shown[key] for key in _KEPT_OF_SHOW if key in shown}
    info = kept.get("model_info")
    if isinstance(info, dict):
        kept["model_info"] = {key: value for key, value in info.items() if not key.startswith(_VOCABULARY)}
    layer = parse_layer(shown)
    return {**kept, "modelfile": "" if layer is None else f"FROM /blobs/{layer}\n"}


def format_arguments(child: Child) -> list[str]:
    """The arguments of a child as far as they are read: others may hold a key."""
    options = {"--model": child.model_path, "--port": child.port, "-c": child.context, "-np": child.slots}
    values = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    switches = {"--kv-unified": child.unified, "--embedding": child.embedding}
    return ["llama-server", *values, *(name for name, given in switches.items() if given)]
