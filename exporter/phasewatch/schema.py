"""The schema of the configuration file: its keys, their units, and what is wrong with a single one of them.

Only `config` uses it: everything else sees the dataclasses there.
"""

import os
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from phasewatch import units

DEFAULT_INTERVAL: Final = 5.0
DEFAULT_WINDOW: Final = 60.0
DEFAULT_TIMEOUT: Final = 4.0
DEFAULT_BODY_SIZE_LIMIT: Final = 16e6
SHORTEST_INTERVAL: Final = 0.1
LONGEST: Final = 86_400.0


def _interval(value: float) -> float:
    if value < SHORTEST_INTERVAL:
        raise ValueError(f"expected at least {units.human_duration(SHORTEST_INTERVAL)}")
    return _at_most(value)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("expected a duration above 0")
    return _at_most(value)


def _at_most(value: float) -> float:
    if value > LONGEST:
        raise ValueError(f"expected at most {units.human_duration(LONGEST)}")
    return value


_ADDRESS: Final = "expected an address such as http://127.0.0.1:8000"


def _url(value: str) -> str:
    """The server's base address without a trailing slash. Messages never repeat the value: it may hold a password."""
    import httpx  # noqa: PLC0415  # costs more than all the rest of `check`

    try:
        parts = urlsplit(value)
        httpx.URL(value)  # whatever it does not take would fail at each scrape
        port = parts.port
    except (ValueError, httpx.InvalidURL) as error:
        raise ValueError(_ADDRESS) from error
    if parts.username is not None or parts.password is not None:
        raise ValueError("user and password are not taken from the url; use authorization with a credentials_file")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not _unbroken(value):
        raise ValueError(_ADDRESS)
    if "?" in value or "#" in value:
        raise ValueError("expected the server's base address, without a query or fragment")
    for added in ("/metrics", "/v1"):
        if parts.path.rstrip("/").endswith(added):
            raise ValueError(f"expected the server's base address; {added} is added by itself")
    return f"{parts.scheme}{value[len(parts.scheme) :]}".rstrip("/")


def _unbroken(value: str) -> bool:
    return value.isprintable() and not any(character.isspace() for character in value)


def _file(value: Path) -> Path:
    try:
        usable = "\0" not in str(value) and bool(os.fsencode(value))
    except UnicodeError:
        usable = False
    if not usable:
        raise ValueError("expected a path")
    return value


def _name(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("expected a printable name that is not empty")
    return value


Interval = Annotated[float, BeforeValidator(units.duration), AfterValidator(_interval)]
Duration = Annotated[float, BeforeValidator(units.duration), AfterValidator(_positive)]
Size = Annotated[float, BeforeValidator(units.size)]
Bandwidth = Annotated[float, BeforeValidator(units.bandwidth)]
Compute = Annotated[float, BeforeValidator(units.compute)]
Count = Annotated[int, Field(ge=1, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
File = Annotated[Path, AfterValidator(_file)]
Switch = Annotated[bool, Field(strict=True)]


class Section(BaseModel):
    """A mapping of keys; unknown ones are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class AuthorizationSchema(Section):
    """`authorization`: how to authenticate to a target."""

    type: Literal["Bearer", "Basic"] = "Bearer"
    credentials_file: File


class TlsSchema(Section):
    """`tls_config`: how to verify a target."""

    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
    insecure_skip_verify: Switch = False

    @model_validator(mode="after")
    def _both_or_none(self) -> "TlsSchema":
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both or none")
        return self


class DeviceSchema(Section):
    """`device`: what a target runs on."""

    name: str | None = None
    count: Count = 1
    memory: Size | None = None
    layout: Literal["tensor", "pipeline", "replica"] = "tensor"
    memory_bandwidth: Bandwidth | None = None
    flops: Compute | None = None


class ModelSchema(Section):
    """`model`: what a target serves."""

    weights: Size | None = None
    path: File | None = None


class ProbeSchema(Section):
    """`probe`: synthetic requests."""

    enabled: Switch = True
    interval: Interval | None = None


class ServerSchema(Section):
    """`server`: what the operator knows of a target's own settings."""

    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    api_servers: Count | None = None


class SaturationSchema(Section):
    """`saturation`: when an engine counts as saturated; see `config.Thresholds`."""

    memory: Duration | None = None
    hysteresis: Duration | None = None
    stuck_after: Duration | None = None
    kv_cache_free: Share | None = None
    prefill_share: Share | None = None
    step_budget_share: Share | None = None
    deferred_share: Share | None = None


class TargetSchema(Section):
    """An entry of `targets`."""

    name: Annotated[str, AfterValidator(_name)]
    backend: Literal["vllm"]
    url: Annotated[str, AfterValidator(_url)]
    interval: Interval | None = None
    window: Duration | None = None
    timeout: Duration | None = None
    body_size_limit: Size | None = None
    optional: Switch = False
    authorization: AuthorizationSchema | None = None
    tls_config: TlsSchema | None = None
    device: DeviceSchema | None = None
    model: ModelSchema | None = None
    probe: ProbeSchema | None = None
    server: ServerSchema | None = None
    saturation: SaturationSchema | None = None


class FileSchema(Section):
    """The whole file."""

    interval: Interval = DEFAULT_INTERVAL
    window: Duration = DEFAULT_WINDOW
    timeout: Duration = DEFAULT_TIMEOUT
    body_size_limit: Size = DEFAULT_BODY_SIZE_LIMIT
    saturation: SaturationSchema | None = None
    targets: Annotated[list[TargetSchema], Field(min_length=1)]


SECTIONS: Final[dict[str, type[BaseModel]]] = {
    "targets": TargetSchema,
    "authorization": AuthorizationSchema,
    "tls_config": TlsSchema,
    "device": DeviceSchema,
    "model": ModelSchema,
    "probe": ProbeSchema,
    "server": ServerSchema,
    "saturation": SaturationSchema,
}
