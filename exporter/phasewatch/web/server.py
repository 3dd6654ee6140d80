"""The web server: its listening socket, and uvicorn without signal handlers."""

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from phasewatch.base.errors import BindError
from phasewatch.web.security import WebConfig, create_tls_arguments, protect

STOP_SECONDS: Final = 4
"""Grace period for requests in progress at shutdown; everything must end within 5 seconds."""


class Server(uvicorn.Server):
    """A uvicorn server that installs no signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`: uvicorn would exit with 143 on SIGTERM and has no reload."""
        yield


def create_server(app: ASGIApp, web: WebConfig) -> Server:
    """Create the server of an application, with the TLS and authentication of the web configuration."""
    return Server(
        uvicorn.Config(
            protect(app, web),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
            **create_tls_arguments(web),
        )
    )


def format_address(host: str, port: int, web: WebConfig) -> str:
    """Format the address that the server listens on as a URL, for the log."""
    scheme = "https" if web.tls else "http"
    host = f"[{host}]" if ":" in host else host or "0.0.0.0"  # noqa: S104  # only printed, not bound
    return f"{scheme}://{host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Args:
        host: name or address; empty for all addresses.
        port: 0 for any free one.

    Raises:
        BindError: the address cannot be taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not host and socket.has_dualstack_ipv6():
        return _bind("::", port, socket.AF_INET6, dualstack=True)
    return _bind(host, port, family, dualstack=False)


def _bind(host: str, port: int, family: socket.AddressFamily, *, dualstack: bool) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=dualstack)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or error
        raise BindError(f"cannot listen on {host or '*'}:{port}: {reason}; choose with --web.listen-address") from error
