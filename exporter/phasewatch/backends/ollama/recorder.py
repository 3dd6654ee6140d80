"""Requests from an Ollama what a recording stores: the models in memory, and what their llama-servers show.

Templates, prompts and descriptions of models are left out, and folders of the machine; of slots and arguments all but
what is read.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import httpx

from phasewatch.backends.client import get_text, parse_json
from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.recorder import fetch_reduced_slots
from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.inventory import StoredModel, parse_layer, parse_loaded_models, parse_stored_models
from phasewatch.backends.ollama.runner.children import Child, ProcessListing
from phasewatch.backends.ollama.runner.findings import may_have_children_here
from phasewatch.backends.ollama.runner.matching import match_children
from phasewatch.backends.ollama.runner.watch import create_child_target, list_own_processes
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.scrape.http import HTTP_OK, Response
from phasewatch.scrape.recorded import FetchedLine, record_answer

_KEPT_OF_SHOW: Final = ("capabilities", "tensors")
"""Keys of /api/show that the costs of a model follow from, besides parts of `details` and `model_info`."""

_KEPT_OF_MODEL: Final = (
    *("name", "model", "digest", "size", "size_vram", "context_length", "expires_at", "modified_at"),
    *("capabilities", "remote_model"),
)
"""Keys of a model in /api/tags and /api/ps that are kept, besides parts of `details`."""

_KEPT_OF_DETAILS: Final = ("format", "family", "families", "parameter_size", "quantization_level")
"""Keys of `details` that are kept. `parent_model` may be a path."""

_KEPT_OF_GENERAL: Final = frozenset({"architecture", "file_type", "parameter_count", "quantization_version"})
"""What is kept of the keys `general.*` of `model_info`. Others hold what the makers of a model wrote."""

_DROPPED_OF_INFO: Final = ("general.", "tokenizer.")
"""Beginnings of keys of `model_info` that are left out; the vocabulary may be megabytes."""


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
        self._layers: dict[str, str] = {}

    async def fetch_header(self) -> Mapping[str, object]:
        """Request version and models, and the metadata of those that run here: for a cloud model, Ollama would ask the
        network. What is not answered is empty.
        """
        release = await self._client.get_json_or_none("/api/version")
        tags = await self._client.get_json_or_none("/api/tags")
        version = get_text(release.get("version")) if isinstance(release, dict) else None
        show: dict[str, Any] = {}
        for name, model in _parse_stored(tags).items():
            if not model.remote:
                show[name] = await self._show(name)
                layer = parse_layer(show[name])
                self._layers |= {model.digest: layer} if layer is not None else {}
        return {"version": version, "release": {"version": version}, "tags": reduce_models(tags), "show": show}

    async def fetch_line(self, clock: Callable[[], float]) -> FetchedLine:
        """Request the models in memory, and the figures of the children that run them."""
        started = clock()
        listing = None
        if self._target.ollama.runners != "off" and may_have_children_here(self._target):
            listing = await asyncio.to_thread(list_own_processes, self._target)
        ps, outcome = await record_answer(self._fetch_loaded(), clock)
        found = () if listing is None or isinstance(outcome, ScrapeError) else self._match(listing, outcome)
        children = [entry for child in found if (entry := await self._record_child(child, clock)) is not None]
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

    async def _fetch_loaded(self) -> Response:
        """The answer of /api/ps with nothing but what is read.

        Raises:
            ScrapeError: there was no complete response, or it is no JSON.
        """
        response = await self._client.get("/api/ps")
        if response.status != HTTP_OK:
            return response
        return replace(response, body=json.dumps(reduce_models(parse_json(response.body))).encode())

    def _match(self, listing: ProcessListing, loaded: Response) -> Collection[Child]:
        """The children that run the models in memory: those of other Ollamas are none of ours."""
        try:
            models = parse_loaded_models(parse_json(loaded.body)) if loaded.status == HTTP_OK else ()
        except ScrapeError:
            return ()  # `check` says so
        return match_children(listing.children, models, self._layers).children.values()

    async def _record_child(self, child: Child, clock: Callable[[], float]) -> dict[str, object] | None:
        """The figures of a child; None if it sleeps, from which reading them would wake it."""
        client = LlamacppClient(create_child_target(self._target, child), transport=self._transport)
        try:
            if child.sleep_idle and (await client.fetch_props()).asleep:
                return None
            metrics, _ = await record_answer(client.fetch_metrics(), clock)
            slots, _ = await record_answer(fetch_reduced_slots(client), clock)
        except ScrapeError:
            return None  # it has ended since
        finally:
            await client.close()
        argv = format_arguments(child)
        return {"pid": child.pid, "parent": child.parent, "argv": argv, "metrics": metrics, "slots": slots}


def reduce_models(listed: Any) -> dict[str, Any]:
    """The parts of an answer of /api/tags or /api/ps that are read."""
    models = listed.get("models", False) if isinstance(listed, Mapping) else False
    if models is not None and not isinstance(models, list):
        return {}  # `check` says what is wrong
    return {"models": [_reduce_model(model) if isinstance(model, Mapping) else {} for model in models or ()]}


def _reduce_model(model: Mapping[str, Any]) -> dict[str, Any]:
    remote = {"remote_model": model["name"]} if model.get("remote_host") and "name" in model else {}
    return {**_select(model, _KEPT_OF_MODEL), **remote, "details": _select(model.get("details"), _KEPT_OF_DETAILS)}


def _parse_stored(tags: Any) -> Mapping[str, StoredModel]:
    try:
        return parse_stored_models(tags)
    except ScrapeError:
        return {}


def reduce_show(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an answer of /api/show that are read. The modelfile may hold a prompt: its layer is kept."""
    info = shown.get("model_info")
    kept = {
        key: value
        for key, value in (info.items() if isinstance(info, Mapping) else ())
        if not key.startswith(_DROPPED_OF_INFO) or key.removeprefix("general.") in _KEPT_OF_GENERAL
    }
    layer = parse_layer(shown)
    return {
        **_select(shown, _KEPT_OF_SHOW),
        "details": _select(shown.get("details"), _KEPT_OF_DETAILS),
        "model_info": kept,
        "modelfile": "" if layer is None else f"FROM {_locate(layer)}\n",
    }


def format_arguments(child: Child) -> list[str]:
    """The arguments of a child as far as they are read: others may hold a key, and the folder the name of a user."""
    options = {"--model": _locate(child.layer), "--port": child.port, "-c": child.context, "-np": child.slots}
    values = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    switches = {"--kv-unified": child.unified, "--embedding": child.embedding}
    return ["llama-server", *values, *(name for name, given in switches.items() if given)]


def _select(value: Any, keys: Iterable[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value} if isinstance(value, Mapping) else {}


def _locate(layer: str) -> str:
    """A path that ends as that of a layer does."""
    return f"/blobs/{layer}"
