"""The responses of a simulated llama-server to HTTP requests, for a server of its own and for Ollama's children."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from phasewatch.demo.llamacpp.counters import Counters
from phasewatch.demo.llamacpp.page import build_model_list, build_props, build_slots, render_metrics
from phasewatch.demo.llamacpp.settings import LlamaServerSettings
from phasewatch.demo.llamacpp.slot_view import SlotView

START_HEADER: Final = "Process-Start-Time-Unix"
"""Microseconds of a monotonic clock, in spite of its name."""

_JSON: Final = "application/json; charset=utf-8"
_TEXT: Final = "text/plain; version=0.0.4"

_NO_METRICS: Final = "This server does not support metrics endpoint. Start it with `--metrics`"


@dataclass(frozen=True, slots=True)
class LlamaResponse:
    """A response with its headers beside `Content-Type`."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class LlamaServer(Protocol):
    """A server at a moment, as its pages need it."""

    @property
    def settings(self) -> LlamaServerSettings:
        """How it was started."""

    @property
    def started(self) -> int:
        """When its process was started, microseconds of a monotonic clock."""

    @property
    def is_loading(self) -> bool:
        """Whether it still loads its model."""

    @property
    def is_sleeping(self) -> bool:
        """Whether it sleeps."""

    def read_clock(self) -> int:
        """Unix seconds of its clock."""

    def observe(self, page: str) -> None:
        """Handle a read of a page that is a task of the engine, which wakes it."""

    def list_slots(self) -> tuple[SlotView, ...]:
        """Its slots."""

    def count_deferred(self) -> int:
        """The requests that wait for a slot."""

    def get_counters(self) -> Counters:
        """Its counters."""

    def take_averages(self) -> tuple[float, float]:
        """The average gauges, which each read empties."""


def respond(server: LlamaServer, method: str, path: str) -> LlamaResponse:
    """The response to a request.

    Args:
        server: the server.
        method: HTTP method.
        path: path with the query, if there is one.
    """
    page, _, query = path.partition("?")
    page = {"/v1/health": "/health", "/models": "/v1/models"}.get(page, page)
    if method != "GET" or page not in {"/health", "/props", "/v1/models", "/slots", "/metrics"}:
        return _build_error(404, "File Not Found", "not_found_error")
    if server.is_loading:
        return _build_error(503, "Loading model", "unavailable_error")
    if page in {"/slots", "/metrics"}:
        return _respond_with_task(server, page, query)
    bodies: Mapping[str, Callable[[], Mapping[str, Any]]] = {
        "/health": lambda: {"status": "ok"},
        "/props": lambda: build_props(server.settings, is_sleeping=server.is_sleeping),
        "/v1/models": lambda: build_model_list(server.settings, server.read_clock()),
    }
    return _build_json(bodies[page]())


def _respond_with_task(server: LlamaServer, page: str, query: str) -> LlamaResponse:
    """The response of a page that is a task of the engine."""
    if page == "/metrics" and not server.settings.has_metrics:
        return _build_error(501, _NO_METRICS, "not_supported_error")
    server.observe(page)
    return _respond_with_slots(server, query) if page == "/slots" else _respond_with_metrics(server)


def _respond_with_slots(server: LlamaServer, query: str) -> LlamaResponse:
    slots = server.list_slots()
    if "fail_on_no_slot=1" in query.split("&") and all(slot.is_processing for slot in slots):
        return _build_error(503, "no slot available", "unavailable_error")
    return _build_json(build_slots(slots, server.settings))


def _respond_with_metrics(server: LlamaServer) -> LlamaResponse:
    text = render_metrics(
        server.get_counters(),
        server.take_averages(),
        processing=sum(slot.is_processing for slot in server.list_slots()),
        deferred=server.count_deferred(),
    )
    return LlamaResponse(200, _TEXT, text.encode(), {START_HEADER: str(server.started)})


def _build_json(value: Any, status: int = 200) -> LlamaResponse:
    return LlamaResponse(status, _JSON, json.dumps(value, separators=(",", ":")).encode())


def _build_error(status: int, message: str, kind: str) -> LlamaResponse:
    return _build_json({"error": {"code": status, "message": message, "type": kind}}, status)
