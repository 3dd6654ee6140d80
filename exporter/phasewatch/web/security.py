"""TLS and basic authentication for our own endpoints, configured in the format of Prometheus' exporter-toolkit.

Supported keys: `tls_server_config` with cert_file, key_file, client_ca_file, client_auth_type and
min_version, and `basic_auth_users` with bcrypt hashes. Any other key is an error: ignoring it
silently would leave the server less protected than its operator believes.
"""

import asyncio
import base64
import hashlib
import importlib.util
import re
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.config.schema import SectionSchema, list_sections
from phasewatch.config.values import File
from phasewatch.config.yaml_file import describe_error, read_mapping

_MIN_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_BCRYPT: Final = re.compile(r"\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_BCRYPT_EXPECTED: Final = "expected a bcrypt hash, as `htpasswd -nBC 10 USER` makes it"
_MAX_WAITING_CHECKS: Final = 8
"""Password checks in progress or queued from which further ones are refused with 503."""

_MAX_PASSED_DIGESTS: Final = 1024
"""Bound on the digests of accepted passwords that are remembered."""


@dataclass(frozen=True)
class ServerTls:
    """Settings of TLS.

    Attributes:
        cert_file: the server's certificate.
        key_file: its private key.
        client_ca_file: authority of the client certificates that are required; None if none are.
        min_version: lowest accepted TLS version.
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None
    min_version: ssl.TLSVersion


@dataclass(frozen=True)
class WebConfig:
    """Protection of our endpoints.

    Attributes:
        tls: settings of TLS; None for plain HTTP.
        users: names to bcrypt hashes; empty for no authentication.
    """

    tls: ServerTls | None = None
    users: dict[str, bytes] = field(default_factory=dict, repr=False)


def _check_bcrypt_hash(value: str) -> str:
    if not _BCRYPT.fullmatch(value):
        raise ValueError(_BCRYPT_EXPECTED)
    return value


class _TlsServerSchema(SectionSchema):
    cert_file: File
    key_file: File
    client_ca_file: File | None = None
    client_auth_type: Literal["NoClientCert", "RequireAndVerifyClientCert"] = "NoClientCert"
    min_version: Literal["TLS12", "TLS13"] = "TLS12"

    @model_validator(mode="after")
    def _check_client_certificates(self) -> "_TlsServerSchema":
        if (self.client_auth_type == "RequireAndVerifyClientCert") != (self.client_ca_file is not None):
            raise ValueError("client_ca_file and client_auth_type: RequireAndVerifyClientCert belong together")
        return self


class _WebSchema(SectionSchema):
    tls_server_config: _TlsServerSchema | None = None
    basic_auth_users: dict[str, Annotated[str, AfterValidator(_check_bcrypt_hash)]] = Field(default_factory=dict)


def load_web_config(path: Path | None) -> WebConfig:
    """Load the file of --web.config.file; without one nothing is protected.

    Raises:
        ConfigError: with every mistake, certificates that cannot be loaded included.
    """
    if path is None:
        return WebConfig()
    raw, problems = read_mapping(path)
    try:
        schema = _WebSchema.model_validate(raw)
    except ValidationError as error:
        secret = frozenset({"basic_auth_users"})
        problems += [
            describe_error(details, _WebSchema, list_sections(_WebSchema), secret)
            for details in error.errors(include_url=False)
        ]
        raise ConfigError(problems) from error
    problems += _check_users(schema.basic_auth_users)
    tls = schema.tls_server_config
    config = WebConfig(
        tls=_resolve_tls(tls, path.parent) if tls else None,
        users={name: hashed.encode() for name, hashed in schema.basic_auth_users.items()},
    )
    if config.tls:
        try:
            _create_tls_context(config.tls)
        except OSError as error:
            problems.append(Problem("tls_server_config", f"a file cannot be used: {error.strerror or error}"))
    if problems:
        raise ConfigError(problems)
    return config


def _check_users(users: dict[str, str]) -> Iterator[Problem]:
    """List the users whose hashes bcrypt cannot use, or the absence of bcrypt."""
    if not users:
        return
    if importlib.util.find_spec("bcrypt") is None:
        yield Problem(
            "basic_auth_users",
            "needs bcrypt: `pip install bcrypt`, with the pip of the environment that runs PhaseWatch",
        )
        return
    import bcrypt  # noqa: PLC0415  # an extra

    for name, hashed in users.items():
        try:
            bcrypt.checkpw(b"", hashed.encode())
        except ValueError:
            yield Problem(f"basic_auth_users.{name}", _BCRYPT_EXPECTED)


def _resolve_tls(tls: _TlsServerSchema, base: Path) -> ServerTls:
    """Resolve relative paths against the folder of the file that contains them."""
    authority = base / tls.client_ca_file if tls.client_ca_file else None
    return ServerTls(base / tls.cert_file, base / tls.key_file, authority, _MIN_VERSIONS[tls.min_version])


def _create_tls_context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = tls.min_version
    context.load_cert_chain(tls.cert_file, tls.key_file, password="")  # never ask the terminal
    if tls.client_ca_file:
        context.load_verify_locations(tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def create_tls_arguments(config: WebConfig) -> dict[str, Any]:
    """Create the arguments with which uvicorn serves TLS; empty for plain HTTP."""
    tls = config.tls
    if tls is None:
        return {}
    return {
        "ssl_certfile": str(tls.cert_file),
        "ssl_context_factory": lambda _config, _default: _create_tls_context(tls),
    }


def protect(app: ASGIApp, config: WebConfig) -> ASGIApp:
    """Put every endpoint of an application behind basic authentication; unchanged without users."""
    return BasicAuth(app, config.users) if config.users else app


class BasicAuth:
    """ASGI middleware for basic authentication.

    A bcrypt check takes tens of milliseconds by design, so it runs on a thread, and digests of accepted passwords are
    kept.
    """

    def __init__(self, app: ASGIApp, users: dict[str, bytes]) -> None:
        self._app = app
        self._users = users
        self._passed: set[bytes] = set()
        self._waiting = 0
        # A separate thread: password guesses must not delay scrapes.
        self._checker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bcrypt")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        refusal = await self._refuse(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    async def _refuse(self, headers: Headers) -> Response | None:
        """Create the response to a request that is refused; None if it is accepted."""
        denied = PlainTextResponse("Unauthorized\n", 401, {"WWW-Authenticate": 'Basic realm="phasewatch"'})
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return denied
        try:
            name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8
            return denied
        digest = hashlib.sha256(f"{name}\0{password}".encode()).digest()
        if digest in self._passed:
            return None
        if self._waiting >= _MAX_WAITING_CHECKS:
            return PlainTextResponse("Too many passwords to check\n", 503, {"Retry-After": "1"})
        self._waiting += 1
        try:
            passed = await asyncio.get_running_loop().run_in_executor(
                self._checker, self._check_password, name, password
            )
        finally:
            self._waiting -= 1
        if passed and len(self._passed) < _MAX_PASSED_DIGESTS:
            self._passed.add(digest)
        return None if passed else denied

    def _check_password(self, name: str, password: str) -> bool:
        import bcrypt  # noqa: PLC0415  # an extra; load_web_config has checked that it is installed

        # An unknown user takes as much time as a known one, so that the time does not reveal which names exist.
        user_hash = self._users.get(name)
        hashed = user_hash or next(iter(self._users.values()))
        return bcrypt.checkpw(password.encode()[:72], hashed) and user_hash is not None
