"""Where the llama-server processes of a target are: at its address, or behind a router or a proxy in front of several.

Nothing here loads a model or keeps one from being unloaded. A router is asked with `autoload=false` for the models that
it has loaded; llama-swap is asked by /running alone, never through /upstream, which would load a model and count as its
use, and then each child is read at its own address.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from urllib.parse import quote, urlsplit

from phasewatch.backends.client import get_text, parse_json
from phasewatch.backends.equipment import is_local
from phasewatch.backends.llamacpp.client import LlamacppClient
from phasewatch.backends.llamacpp.facts import Props
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.http import HTTP_OK


class Arrangement(Enum):
    """What answers at the address of a target."""

    SINGLE = auto()
    """One llama-server."""
    ROUTER = auto()
    """llama-server in router mode: a process for each model."""
    SWAP = auto()
    """llama-swap: a process for each model, at an address of its own."""
    LEMONADE = auto()
    """Lemonade, whose page has those of its processes."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where one process is read.

    Attributes:
        url: base address.
        query: what its requests need, see `LlamacppClient`.
        model: name of its model; empty if it says so itself.
    """

    url: str
    query: str = ""
    model: str = ""


async def find_arrangement(client: LlamacppClient) -> Arrangement:
    """What answers at an address. Anything unknown is taken for a llama-server, whose errors are then the clearest.

    Raises:
        ScrapeError: it does not answer.
    """
    try:
        props = await client.fetch_props()
    except ScrapeError as error:
        if error.reason is not Reason.NO_METRICS:
            raise
        props = Props()
    if props.router:
        return Arrangement.ROUTER
    if props != Props():
        return Arrangement.SINGLE
    if _list_running(await client.get_json_or_none("/running")) is not None:
        return Arrangement.SWAP
    page = await client.fetch_metrics()
    lemonade = page.status == HTTP_OK and b"\nlemonade_" in b"\n" + page.body
    return Arrangement.LEMONADE if lemonade else Arrangement.SINGLE


async def list_router_addresses(client: LlamacppClient, url: str) -> tuple[Address, ...]:
    """The processes of a router: those of the models that it has loaded.

    Raises:
        ScrapeError: there was no usable response.
    """
    response = await client.get("/models")
    listed = _get_list(parse_json(response.body), "data") if response.status == HTTP_OK else None
    if listed is None:
        raise ScrapeError(Reason.PARSE, "the router does not list its models at /models")
    loaded = [get_text(entry.get("id")) for entry in listed if _get_status(entry) == "loaded"]
    return tuple(Address(url, f"model={quote(name, safe='')}&autoload=false", name) for name in loaded if name)


async def list_swap_addresses(client: LlamacppClient, url: str) -> tuple[Address, ...]:
    """The processes of llama-swap that are ready, at their own addresses.

    Raises:
        ScrapeError: there was no usable response, or the processes listen on another machine only (`no_metrics`).
    """
    response = await client.get("/running")
    running = _list_running(parse_json(response.body)) if response.status == HTTP_OK else None
    if running is None:
        raise ScrapeError(Reason.PARSE, "llama-swap does not list its models at /running")
    addresses = tuple(Address(proxy, model=model) for model, proxy in running)
    if not is_local(url) and any(is_local(address.url) for address in addresses):
        raise ScrapeError(
            Reason.NO_METRICS,
            "the children of llama-swap listen on its own machine only: run PhaseWatch there, with a loopback url",
        )
    return addresses


def _list_running(value: Any) -> list[tuple[str, str]] | None:
    """Model and address of each ready child in a value of /running; None if it is not llama-swap's. A child whose
    address is none is left out: it is configured by hand. So is one that leads to /upstream of a llama-swap.
    """
    entries = _get_list(value, "running")
    if entries is None:
        return None
    ready = [entry for entry in entries if entry.get("state") == "ready"]
    named = [(get_text(entry.get("model")), get_text(entry.get("proxy"))) for entry in ready]
    return [(model, proxy.rstrip("/")) for model, proxy in named if model and proxy and _is_address(proxy)]


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for what is no port
    except ValueError:
        return False
    if "/upstream" in parts.path:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isprintable() and " " not in url


def may_know_secret(url: str, own: str) -> bool:
    """Whether the address of a process may get the authorization of its target: it is on the same host as `own`, the
    target's address, or on this machine. What another program names as an address is not to be trusted with more.
    """
    return is_local(url) or urlsplit(url).hostname == urlsplit(own).hostname


def _get_list(value: Any, key: str) -> list[dict[str, Any]] | None:
    entries = value.get(key) if isinstance(value, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else None


def _get_status(entry: dict[str, Any]) -> Any:
    status = entry.get("status")
    return status.get("value") if isinstance(status, dict) else None
