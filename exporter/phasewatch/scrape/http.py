"""One bounded HTTP request: a deadline for the whole response, a size limit, and a `ScrapeError` for every failure."""

import asyncio
import errno
import os
import socket
import ssl
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx

from phasewatch import __version__
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.units import format_duration
from phasewatch.config.settings import Authorization, TlsConfig

HTTP_OK: Final = 200

_MAX_SECRET_BYTES: Final = 65_536

_MAX_ERROR_BYTES: Final = 65_536
"""Largest body that is read from a response to POST with a status other than 200."""

_REDIRECTS: Final = frozenset({301, 302, 307, 308})

_REFUSED: Final = frozenset({errno.ECONNREFUSED, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors of connecting to a server whose process has ended, by all its addresses: the last two are those of an address
family that this machine does not have (`localhost` without IPv6), by which it never reached the server."""

_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
"""Window size for zlib that detects either format by its header."""


def _create_cookie_jar() -> CookieJar:
    """A cookie jar that refuses all cookies: a server that sets a new one each time would fill it without limit."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


@dataclass(frozen=True, slots=True)
class Response:
    """A response of any status. `body` is complete and decompressed, or empty if it was not read; `date` is the
    server's clock as Unix time in whole seconds, None without a valid `Date` header; `start` is the header
    `Process-Start-Time-Unix` as it was sent, None without it. It changes when the server restarts.
    """

    status: int
    content_type: str
    body: bytes
    date: float | None = None
    start: str | None = None


def create_client(
    url: str, tls_config: TlsConfig | None, transport: httpx.AsyncBaseTransport | None = None
) -> httpx.AsyncClient:
    """Create the client of one target: no proxies from the environment, no redirects (but see `get`).

    Args:
        url: the target's base address.
        tls_config: trust and client certificate, for https.
        transport: replaces the network in tests.

    Raises:
        ScrapeError: `tls` if a file of `tls_config` cannot be used.
    """
    return httpx.AsyncClient(
        base_url=url,
        verify=_create_tls_context(url, tls_config),
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113  # `get` sets one deadline for everything
        # One connection per request: a server may close an idle one (vLLM after 5 s) just when it is reused.
        limits=httpx.Limits(max_keepalive_connections=0),
        cookies=_create_cookie_jar(),
        headers={"User-Agent": f"phasewatch/{__version__}", "Accept-Encoding": "identity"},
    )


def _create_tls_context(url: str, tls_config: TlsConfig | None) -> ssl.SSLContext:
    if not url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; loading the system's certificates takes megabytes
    try:
        context = ssl.create_default_context(
            cafile=str(tls_config.ca_file) if tls_config and tls_config.ca_file else None
        )
        if tls_config and tls_config.cert_file:
            # Without a password, OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(tls_config.cert_file, tls_config.key_file, password="")
    except (OSError, ssl.SSLError) as error:
        raise ScrapeError(Reason.TLS, f"a file of tls_config cannot be used: {error.strerror or error}") from error
    if tls_config and tls_config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def read_authorization_header(authorization: Authorization | None) -> dict[str, str]:
    """The `Authorization` header for a target. The secret is read from its file each time, so that it can be rotated.

    Raises:
        ScrapeError: `auth` if the file cannot be read or does not contain a single line of text.
    """
    if authorization is None:
        return {}
    try:
        if not authorization.credentials_file.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with authorization.credentials_file.open("rb") as file:
            secret = file.read(_MAX_SECRET_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ScrapeError(Reason.AUTH, f"credentials_file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ScrapeError(Reason.AUTH, "credentials_file must hold ASCII text") from None
    if not secret or not secret.isprintable():
        raise ScrapeError(Reason.AUTH, "credentials_file must hold one line with the secret")
    return {"Authorization": f"{authorization.type} {secret}"}


async def get(
    client: httpx.AsyncClient, path: str, *, headers: Mapping[str, str], deadline: float, limit: int
) -> Response:
    """GET a path of a target. The body is read for status 200 only. A redirect that does nothing but add or remove the
    trailing slash of the path is followed once, within the same deadline: web frameworks answer so for an application
    that is mounted at the path.

    Args:
        client: the target's client.
        path: path below the base address.
        headers: headers of the request.
        deadline: seconds for everything, from connecting to the last byte.
        limit: largest body in bytes, after decompression.

    Raises:
        ScrapeError: `connect` (also if the response is not HTTP), `timeout`, `tls`, `too_large`, or `parse` for a
            truncated body.
    """
    request = client.build_request("GET", path, headers=dict(headers))
    return await _exchange(client, request, deadline, limit, error_limit=0)


async def post(
    client: httpx.AsyncClient,
    path: str,
    body: Mapping[str, object],
    *,
    headers: Mapping[str, str],
    deadline: float,
    limit: int,
) -> Response:
    """POST a JSON object to a path of a target. The body is read for every status.

    Args:
        client: the target's client.
        path: path below the base address.
        body: the object.
        headers: headers of the request.
        deadline: seconds for everything, from connecting to the last byte.
        limit: largest body in bytes, after decompression.

    Raises:
        ScrapeError: as for `get`.
    """
    request = client.build_request("POST", path, headers=dict(headers), json=dict(body))
    return await _exchange(client, request, deadline, limit, error_limit=min(limit, _MAX_ERROR_BYTES))


async def _exchange(
    client: httpx.AsyncClient, request: httpx.Request, deadline: float, limit: int, *, error_limit: int
) -> Response:
    """One request and its response. `error_limit`: largest body of a status other than 200; at 0 it is not read."""
    try:
        async with asyncio.timeout(deadline):
            response = await _send(client, request)
            try:
                if response.status_code == HTTP_OK:
                    body = await _read_body(response, limit)
                else:
                    body = await _read_body(response, error_limit) if error_limit else b""
            finally:
                await response.aclose()
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ScrapeError(Reason.TIMEOUT, f"no complete answer within {format_duration(deadline)}") from error
    except httpx.ConnectError as error:
        raise _explain_connect_error(error) from error
    except httpx.NetworkError as error:
        raise ScrapeError(Reason.CONNECT, f"the connection broke off{_describe_cause(error)}") from error
    except httpx.RemoteProtocolError as error:
        raise ScrapeError(Reason.CONNECT, "the server closed the connection without a valid answer") from error
    except httpx.HTTPError as error:
        raise ScrapeError(Reason.INTERNAL, f"the request failed: {type(error).__name__}") from error
    headers = response.headers
    return Response(
        response.status_code,
        headers.get("content-type", ""),
        body,
        date=_parse_date(headers.get("date")),
        start=headers.get("process-start-time-unix"),
    )


async def _send(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    if client.is_closed:  # by another task, while this one was between two requests
        raise ScrapeError(Reason.CONNECT, "the connection is closed: this server is no longer watched")
    response = await client.send(request, stream=True)
    if request.method != "GET" or not _moves_by_slash(request.url, response):
        return response
    await response.aclose()
    moved = client.build_request("GET", _toggle_slash(request.url), headers=request.headers)
    return await client.send(moved, stream=True)


def _moves_by_slash(url: httpx.URL, response: httpx.Response) -> bool:
    """Whether a response is a redirect to the same address with or without the trailing slash of its path."""
    if response.status_code not in _REDIRECTS:
        return False
    try:
        return url.join(response.headers.get("location", "")) == _toggle_slash(url)
    except (httpx.InvalidURL, ValueError):
        return False


def _toggle_slash(url: httpx.URL) -> httpx.URL:
    return url.copy_with(path=url.path[:-1] if url.path.endswith("/") else f"{url.path}/")


def _parse_date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


async def _read_body(response: httpx.Response, limit: int) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding not in {"identity", "gzip", "x-gzip", "deflate"}:
        raise ScrapeError(Reason.PARSE, "the answer has a content encoding that was not asked for")
    inflate = None if encoding == "identity" else zlib.decompressobj(_ZLIB_OR_GZIP)
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += inflate.decompress(chunk, limit + 1 - len(body)) if inflate else chunk
            if len(body) > limit:
                raise ScrapeError(Reason.TOO_LARGE, f"the page is larger than body_size_limit ({limit / 1e6:g} MB)")
    except zlib.error as error:
        raise ScrapeError(Reason.PARSE, "the answer cannot be decompressed") from error
    except httpx.RemoteProtocolError as error:
        raise ScrapeError(Reason.PARSE, "the page is cut off: the connection was closed before its end") from error
    if inflate and (not inflate.eof or inflate.unused_data):
        raise ScrapeError(Reason.PARSE, "the page is cut off: its compressed form has no end, or more than one")
    return bytes(body)


def _explain_connect_error(error: httpx.ConnectError) -> ScrapeError:
    causes = list(_list_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ScrapeError(Reason.TLS, f"the certificate is not trusted: {cause.verify_message}")
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLWantReadError):
            return ScrapeError(Reason.TLS, f"no TLS connection, does it speak https? {cause.reason or cause}")
        if isinstance(cause, socket.gaierror):
            return ScrapeError(Reason.CONNECT, f"the host name in url cannot be resolved: {cause.strerror}")
    numbers = _list_error_numbers(causes)
    if errno.EMFILE in numbers:
        return ScrapeError(
            Reason.CONNECT,
            "the exporter has too many open files: raise its limit (ulimit -n, or LimitNOFILE= in systemd)",
        )
    refused = errno.ECONNREFUSED in numbers and numbers <= _REFUSED
    return ScrapeError(Reason.CONNECT, f"cannot connect{_describe_cause(error)}", refused=refused)


def _describe_cause(error: Exception) -> str:
    """The operating system's words for what broke a connection, after a colon; empty if there are none."""
    texts = sorted(os.strerror(number) for number in _list_error_numbers(_list_causes(error)))
    return f": {', '.join(texts)}" if texts else ""


def _list_error_numbers(causes: Iterable[BaseException]) -> set[int]:
    """The operating system's error numbers among the causes. Those of OpenSSL and of name resolution are others."""
    return {
        cause.errno
        for cause in causes
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError | socket.gaierror) and cause.errno
    }


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes. A connection that was tried at several addresses fails with an exception group."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for part in error.exceptions:
                yield from _list_causes(part)
        error = error.__cause__ or error.__context__
