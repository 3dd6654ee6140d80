"""The schema of the configuration file: its keys, their units, their defaults, and what is wrong with a single one.

A default stands here and nowhere else. A key of None, or left out, takes the default; keys that a target shares with
the whole file take the file's value first. Only `resolve` and `checks` use the schema: everything else sees `settings`.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from phasewatch.base import units
from phasewatch.hardware.facts import (
    MAX_COMPUTE_RATE,
    MAX_DEVICES,
    MAX_MEMORY_BANDWIDTH,
    MIN_COMPUTE_RATE,
    MIN_MEMORY_BANDWIDTH,
)
from phasewatch.models.shape.cache_types import AUTO, ELEMENT_BYTES, is_known_cache_dtype

SHORTEST_INTERVAL: Final = 0.1
SHORTEST_PROBE_INTERVAL: Final = 1.0
LONGEST: Final = 86_400.0


def _interval(value: float) -> float:
    if value < SHORTEST_INTERVAL:
        raise ValueError(f"expected at least {units.human_duration(SHORTEST_INTERVAL)}")
    return _at_most(value)


def _probe_interval(value: float) -> float:
    if value < SHORTEST_PROBE_INTERVAL:
        raise ValueError(f"expected at least {units.human_duration(SHORTEST_PROBE_INTERVAL)}")
    return _at_most(value)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("expected a duration above 0")
    return _at_most(value)


def _at_most(value: float) -> float:
    if value > LONGEST:
        raise ValueError(f"expected at most {units.human_duration(LONGEST)}")
    return value


_MOST_PARAMETERS: Final = 1e15
_SMALLEST_MODEL: Final = 1e6
_LARGEST_MODEL: Final = 1e14
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


def _page(value: str) -> str:
    """The address of one page. Messages never repeat the value: it may hold a password."""
    import httpx  # noqa: PLC0415  # as above

    expected = "expected the address of a DCGM exporter's metrics, such as http://127.0.0.1:9400/metrics"
    try:
        parts = urlsplit(value)
        httpx.URL(value)
        port = parts.port
    except (ValueError, httpx.InvalidURL) as error:
        raise ValueError(expected) from error
    if parts.username is not None or parts.password is not None:
        raise ValueError("user and password are not taken from the url")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not _unbroken(value):
        raise ValueError(expected)
    return value


def _parameters(value: object) -> float:
    """PyYAML takes 7.5e9 for text."""
    number = 0.0
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not 1 <= number <= _MOST_PARAMETERS:
        raise ValueError(f"expected a number of parameters such as 7.5e9, found {units.shown(value)}")
    return number


def _weights(value: float) -> float:
    if not _SMALLEST_MODEL <= value <= _LARGEST_MODEL:
        raise ValueError("expected 1MB to 100TB: is the unit right?")
    return value


def _memory_bandwidth(value: float) -> float:
    if not MIN_MEMORY_BANDWIDTH <= value <= MAX_MEMORY_BANDWIDTH:
        raise ValueError("expected 1GB/s to 100TB/s: is the unit right?")
    return value


def _device_compute(value: float) -> float:
    if not MIN_COMPUTE_RATE <= value <= MAX_COMPUTE_RATE:
        raise ValueError("expected 1GFLOPS to 100PFLOPS: is the unit right?")
    return value


def _cache_dtype(value: str) -> str:
    if not is_known_cache_dtype(value):
        raise ValueError(f"expected one of {', '.join(sorted((AUTO, *ELEMENT_BYTES)))}, found {units.shown(value)}")
    return value


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
WholeSize = Annotated[float, BeforeValidator(units.size), AfterValidator(math.ceil)]
Weights = Annotated[float, BeforeValidator(units.size), AfterValidator(_weights)]
Bandwidth = Annotated[float, BeforeValidator(units.bandwidth), AfterValidator(_memory_bandwidth)]
Compute = Annotated[float, BeforeValidator(units.compute), AfterValidator(_device_compute)]
Count = Annotated[int, Field(ge=1, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
File = Annotated[Path, AfterValidator(_file)]
Switch = Annotated[bool, Field(strict=True)]
ProbeInterval = Annotated[float, BeforeValidator(units.duration), AfterValidator(_probe_interval)]
Budget = Annotated[float, Field(gt=0, le=0.5, strict=True)]


def _backend(value: object, info: ValidationInfo) -> object:
    """The name of a backend; the known ones come as context of the validation, since they lie above this package."""
    names = [repr(name) for name in info.context["backends"]] if info.context else []
    if not isinstance(value, str) or repr(value) not in names:
        expected = " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        raise PydanticCustomError("literal_error", "expected {expected}", {"expected": expected})
    return value


class SectionSchema(BaseModel):
    """A mapping of keys; unknown ones are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class AuthorizationSchema(SectionSchema):
    """`authorization`: how to authenticate to a target."""

    type: Literal["Bearer", "Basic"] = "Bearer"
    credentials_file: File


class TlsSchema(SectionSchema):
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


class DeviceSchema(SectionSchema):
    """`device`: what a target runs on."""

    name: Annotated[str, AfterValidator(_name)] | None = None
    count: Annotated[int, Field(ge=1, le=MAX_DEVICES, strict=True)] | None = None
    memory: Size | None = None
    layout: Literal["tensor", "pipeline", "replica"] | None = None
    memory_bandwidth: Bandwidth | None = None
    flops: Compute | None = None
    cpu_memory_bandwidth: Bandwidth | None = None


class ModelSchema(SectionSchema):
    """`model`: what a target serves."""

    path: File | None = None
    weights: Weights | None = None
    weights_read: Weights | None = None
    kv_cache_bytes_per_token: Size | None = None
    kv_cache_dtype: Annotated[str, AfterValidator(_cache_dtype)] | None = None
    active_parameters: Annotated[float, BeforeValidator(_parameters)] | None = None

    @model_validator(mode="after")
    def _read_of_all(self) -> "ModelSchema":
        if self.weights is not None and self.weights_read is not None and self.weights_read > self.weights:
            raise ValueError("weights_read is more than weights; expected the part of them that one stream reads")
        return self


class OptionsSchema(SectionSchema):
    """`options`: with which options of Ollama's runner a model is loaded. Any other than these reloads nothing."""

    num_ctx: Count | None = None
    num_batch: Count | None = None
    num_gpu: Annotated[int, Field(ge=-1, strict=True)] | None = None
    main_gpu: Annotated[int, Field(ge=0, strict=True)] | None = None
    num_thread: Count | None = None
    draft_num_predict: Annotated[int, Field(ge=0, strict=True)] | None = None
    use_mmap: Switch | None = None


class ModelProbeSchema(SectionSchema):
    """An entry of `probe.models`: one model whose probes differ."""

    name: Annotated[str, AfterValidator(_name)]
    enabled: Switch = True
    load: Switch | None = False
    options: OptionsSchema | None = None


class ProbeSchema(SectionSchema):
    """`probe`: synthetic requests to an Ollama."""

    enabled: Switch = True
    interval: ProbeInterval | None = 300.0
    long_interval: ProbeInterval | None = 3600.0
    timeout: Duration | None = 60.0
    budget: Budget | None = 0.01
    load: Switch = False
    models: list[ModelProbeSchema] | None = None


class ServerSchema(SectionSchema):
    """`server`: what the operator knows of a target's own settings."""

    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    api_servers: Count | None = None


class SaturationSchema(SectionSchema):
    """`saturation`: when an engine counts as saturated; see `settings.SaturationSettings`."""

    memory: Duration | None = 15.0
    hysteresis: Duration | None = 5.0
    stuck_after: Duration | None = 30.0
    kv_cache_free: Share | None = 0.05
    prefill_share: Share | None = 0.3
    step_budget_share: Share | None = 0.8
    deferred_share: Share | None = 0.5


class TargetSchema(SectionSchema):
    """An entry of `targets`."""

    name: Annotated[str, AfterValidator(_name)]
    backend: Annotated[StrictStr, BeforeValidator(_backend)]
    url: Annotated[str, AfterValidator(_url)]
    interval: Interval | None = None
    window: Duration | None = None
    timeout: Duration | None = None
    body_size_limit: WholeSize | None = None
    optional: Switch = False
    authorization: AuthorizationSchema | None = None
    tls_config: TlsSchema | None = None
    device: DeviceSchema | None = None
    device_from: Annotated[str, AfterValidator(_page)] | None = None
    model: ModelSchema | None = None
    probe: ProbeSchema | None = None
    server: ServerSchema | None = None
    saturation: SaturationSchema | None = None


class FileSchema(SectionSchema):
    """The whole file."""

    interval: Interval = 5.0
    window: Duration = 60.0
    timeout: Duration = 4.0
    body_size_limit: WholeSize = 16_000_000
    saturation: SaturationSchema | None = None
    targets: Annotated[list[TargetSchema], Field(min_length=1)]


def get_section(schema: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The schema of the section that a key holds, alone or in a list; None for a key that holds a plain value."""
    kinds = _list_classes(schema.model_fields[key].annotation)
    return next((kind for kind in kinds if issubclass(kind, BaseModel)), None)


def list_sections(schema: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The schema of each section below one, by the key that holds it."""
    sections: dict[str, type[BaseModel]] = {}
    for key in schema.model_fields:
        section = get_section(schema, key)
        if section is not None:
            sections |= {key: section, **list_sections(section)}
    return sections


def _list_classes(annotation: Any) -> Iterator[type]:
    """The classes in an annotation such as `list[X] | None`."""
    if isinstance(annotation, type):
        yield annotation
    for argument in get_args(annotation):
        yield from _list_classes(argument)
