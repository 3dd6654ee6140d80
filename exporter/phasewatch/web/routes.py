"""The HTTP endpoints of the exporter."""

import gzip
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from phasewatch.base.errors import ConfigError
from phasewatch.metrics.collector import SnapshotCollector
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.snapshot.target import TargetSnapshot
from phasewatch.web.landing import page as landing
from phasewatch.web.landing.load_history import LoadHistory
from phasewatch.web.landing.text import Moment

_GZIP_LEVEL: Final = 3
"""Metrics compress to a tenth at any level; higher levels only cost time."""

_GZIP_ACCEPTED: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")

_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src 'self'; script-src 'self'; style-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_STATIC_FILES: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Static files of the landing page, in landing/static, with their media types."""


@dataclass(frozen=True)
class View:
    """The interface of the exporter to the routes.

    Attributes:
        collect_snapshots: returns the exporter's status and the newest snapshot of every target.
        reload: reads the configuration again; raises ConfigError.
        is_ready: whether the exporter serves.
        history: the last minutes of every engine.
        is_probed: takes the names of a target and a model; returns whether the model is configured to be probed.
        notice: a sentence for a banner on the landing page; empty for none.
    """

    collect_snapshots: Callable[[], tuple[SelfStatus, Sequence[TargetSnapshot]]]
    reload: Callable[[], None]
    is_ready: Callable[[], bool]
    history: LoadHistory = field(default_factory=LoadHistory)
    is_probed: Callable[[str, str], bool] = lambda _target, _model: True
    notice: str = ""


def create_app(view: View, *, enable_lifecycle: bool) -> Starlette:
    """Create the ASGI application.

    Args:
        view: the exporter.
        enable_lifecycle: whether `POST /-/reload` is allowed.
    """

    async def report_health(_: Request) -> Response:
        return PlainTextResponse("Healthy\n")

    async def report_readiness(_: Request) -> Response:
        return PlainTextResponse("Ready\n") if view.is_ready() else PlainTextResponse("Not ready\n", 503)

    app = Starlette(
        routes=[
            Route("/", _create_index_endpoint(view)),
            *(Route(f"/{name}", _create_static_endpoint(name)) for name in _STATIC_FILES),
            Route("/metrics", _create_metrics_endpoint(view)),
            Route("/-/healthy", report_health),
            Route("/-/ready", report_readiness),
            Route("/-/reload", _create_reload_endpoint(view) if enable_lifecycle else _refuse_reload, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _render_error},
    )
    app.router.redirect_slashes = False  # a redirect would follow the client's Host header
    return app


def _create_metrics_endpoint(view: View) -> Callable[[Request], Response]:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(view.collect_snapshots))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)

    # Not a coroutine: Starlette runs it on a thread, so a large page delays neither scrapes nor health checks.
    def render_metrics(request: Request) -> Response:
        encode, content_type = _choose_encoder(request.headers.get("accept", ""))
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
        return _create_response(request, encode(registry), headers)

    return render_metrics


def _create_index_endpoint(view: View) -> Callable[[Request], Response]:
    headers = {
        **_SECURITY_HEADERS,
        "Content-Type": "text/html; charset=utf-8",
        "Vary": "Accept-Encoding",
        "Cache-Control": "no-store",
    }

    # Not a coroutine, as above.
    def render_index(request: Request) -> Response:
        status, targets = view.collect_snapshots()
        page = landing.render_page(
            status,
            targets,
            landing.RenderContext(view.history, view.is_probed, Moment(time.time(), time.monotonic())),
            view.notice,
        )
        return _create_response(request, page.encode(), headers)

    return render_index


def _create_static_endpoint(name: str) -> Callable[[Request], Awaitable[Response]]:
    body = files("phasewatch.web.landing").joinpath("static", name).read_bytes()
    headers = {**_SECURITY_HEADERS, "Cache-Control": "no-cache"}

    async def serve_file(_: Request) -> Response:
        return Response(body, media_type=_STATIC_FILES[name], headers=headers)

    return serve_file


def _create_response(request: Request, body: bytes, headers: Mapping[str, str]) -> Response:
    """Create a response, compressed if the client accepts gzip."""
    if not _GZIP_ACCEPTED.search(request.headers.get("accept-encoding", "")):
        return Response(body, headers=headers)
    return Response(gzip.compress(body, _GZIP_LEVEL), headers={**headers, "Content-Encoding": "gzip"})


def _choose_encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):  # prometheus_client 0.26 parses versions as numbers and raises on others
        return choose_encoder("")


def _create_reload_endpoint(view: View) -> Callable[[Request], Awaitable[Response]]:
    async def reload(_: Request) -> Response:
        try:
            view.reload()
        except ConfigError as error:
            problems = "".join(f"{problem}\n" for problem in error.problems)
            return PlainTextResponse(f"The configuration is invalid, the one before stays in force:\n{problems}", 500)
        return PlainTextResponse("Reloaded\n")

    return reload


async def _refuse_reload(_: Request) -> Response:
    return PlainTextResponse("Reloading over HTTP is off; start with --web.enable-lifecycle.\n", 403)


async def _render_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # the handler is registered for this type only
    post_only = (error.headers or {}).get("Allow") == "POST"
    hint = " This endpoint requires a POST request." if post_only else ""
    return PlainTextResponse(f"{error.detail}.{hint}\n", error.status_code, error.headers)
