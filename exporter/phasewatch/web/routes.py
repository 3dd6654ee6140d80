"""The endpoints of the exporter."""

import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from phasewatch.errors import ConfigError
from phasewatch.exposition import SnapshotCollector
from phasewatch.metric import SelfStatus
from phasewatch.snapshot import TargetSnapshot
from phasewatch.web import landing

_GZIP_LEVEL: Final = 3
"""A page of metrics compresses to a tenth at any level; higher ones only cost time."""

_GZIP_WANTED: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")

_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class View:
    """What the routes may ask of the exporter.

    Attributes:
        metrics: its status and the newest snapshot of every target.
        reload: reads the configuration again; raises ConfigError.
        ready: whether it serves.
    """

    metrics: Callable[[], tuple[SelfStatus, Sequence[TargetSnapshot]]]
    reload: Callable[[], None]
    ready: Callable[[], bool]


def create_app(view: View, *, enable_lifecycle: bool) -> Starlette:
    """The ASGI application.

    Args:
        view: the exporter.
        enable_lifecycle: whether `POST /-/reload` is allowed.
    """

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("Healthy\n")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("Ready\n") if view.ready() else PlainTextResponse("Not ready\n", 503)

    async def index(_: Request) -> Response:
        return HTMLResponse(landing.page(*view.metrics()), headers=_SECURITY_HEADERS)

    async def style(_: Request) -> Response:
        return Response(landing.STYLE, media_type="text/css", headers=_SECURITY_HEADERS)

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/style.css", style),
            Route("/metrics", _metrics(view)),
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/-/reload", _reload(view) if enable_lifecycle else _reload_is_off, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _plain_error},
    )
    app.router.redirect_slashes = False  # the redirect would go where the client's Host header says
    return app


def _metrics(view: View) -> Callable[[Request], Response]:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(view.metrics))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)

    # No coroutine: Starlette runs it on a thread, and a large page holds up neither scrapes nor health checks.
    def metrics(request: Request) -> Response:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        body = encode(registry)
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
        if _GZIP_WANTED.search(request.headers.get("accept-encoding", "")):
            body = gzip.compress(body, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers)

    return metrics


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):  # prometheus_client 0.26 reads versions as numbers, and fails on others
        return choose_encoder("")


def _reload(view: View) -> Callable[[Request], Awaitable[Response]]:
    async def reload(_: Request) -> Response:
        try:
            view.reload()
        except ConfigError as error:
            problems = "".join(f"{problem}\n" for problem in error.problems)
            return PlainTextResponse(f"The configuration is invalid, the one before stays in force:\n{problems}", 500)
        return PlainTextResponse("Reloaded\n")

    return reload


async def _reload_is_off(_: Request) -> Response:
    return PlainTextResponse("Reloading over HTTP is off; start with --web.enable-lifecycle.\n", 403)


async def _plain_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # registered for nothing else
    post_only = (error.headers or {}).get("Allow") == "POST"
    hint = " This endpoint requires a POST request." if post_only else ""
    return PlainTextResponse(f"{error.detail}.{hint}\n", error.status_code, error.headers)
