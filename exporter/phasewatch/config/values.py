"""Types of single values in the configuration file, with the validators behind them.

An error message says what is expected. Messages about addresses never repeat the value: it may hold a password.
"""

import contextlib
import math
import os
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, ValidationInfo
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

_MIN_INTERVAL: Final = 0.1
"""Seconds."""

_MIN_PROBE_INTERVAL: Final = 1.0
"""Seconds."""

MAX_DURATION: Final = 86_400.0
"""Seconds."""

_MAX_PARAMETERS: Final = 1e15

_MIN_WEIGHTS: Final = 1e6
"""Bytes."""

_MAX_WEIGHTS: Final = 1e14
"""Bytes."""

_ADDRESS: Final = "expected an address such as http://127.0.0.1:8000"


def _check_interval(value: float) -> float:
    if value < _MIN_INTERVAL:
        raise ValueError(f"expected at least {units.format_duration(_MIN_INTERVAL)}")
    return _check_maximum(value)


def _check_probe_interval(value: float) -> float:
    if value < _MIN_PROBE_INTERVAL:
        raise ValueError(f"expected at least {units.format_duration(_MIN_PROBE_INTERVAL)}")
    return _check_maximum(value)


def _check_duration(value: float) -> float:
    if value <= 0:
        raise ValueError("expected a duration above 0")
    return _check_maximum(value)


def _check_maximum(value: float) -> float:
    if value > MAX_DURATION:
        raise ValueError(f"expected at most {units.format_duration(MAX_DURATION)}")
    return value


def _normalise_url(value: str) -> str:
    """The base address of a server, without a trailing slash and with the scheme in lower case."""
    parts = _split_url(value, expected=_ADDRESS, advice="; use authorization with a credentials_file")
    if "?" in value or "#" in value:
        raise ValueError("expected the server's base address, without a query or fragment")
    path = parts.path.rstrip("/")
    if path.endswith("/metrics"):
        raise ValueError("expected the server's base address; set metrics_path if its metrics are not at /metrics")
    if path.endswith("/v1"):
        raise ValueError("expected the server's base address; /v1 is added by itself")
    return f"{parts.scheme}{value[len(parts.scheme) :]}".rstrip("/")


def _check_metrics_path(value: str) -> str:
    if not value.startswith("/") or value.startswith("//") or not value.isascii() or not _is_unbroken(value):
        raise ValueError("expected a path on the server such as /v1/metrics")
    if "?" in value or "#" in value:
        raise ValueError("expected a path such as /v1/metrics, without a query or fragment")
    if {".", ".."} & set(unquote(value).split("/")):
        raise ValueError("expected a path such as /v1/metrics, without . or .. in it")
    return value


def _check_page_url(value: str) -> str:
    _split_url(
        value, expected="expected the address of a DCGM exporter's metrics, such as http://127.0.0.1:9400/metrics"
    )
    return value


def _split_url(value: str, *, expected: str, advice: str = "") -> SplitResult:
    """The parts of an address that can be requested.

    Raises:
        ValueError: with what was `expected`, or, for an address with a user or password, with some more `advice`.
    """
    import httpx  # noqa: PLC0415  # takes longer than the rest of `check`

    try:
        parts = urlsplit(value)
        httpx.URL(value)  # an address that it refuses would fail at each scrape
        port = parts.port
    except (ValueError, httpx.InvalidURL) as error:
        raise ValueError(expected) from error
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"user and password are not taken from the url{advice}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not _is_unbroken(value):
        raise ValueError(expected)
    return parts


def _parse_parameters(value: object) -> float:
    """The number of parameters from a number or a text: PyYAML reads 7.5e9 as text."""
    number = 0.0
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not 1 <= number <= _MAX_PARAMETERS:
        raise ValueError(f"expected a number of parameters such as 7.5e9, found {units.describe_value(value)}")
    return number


def _check_weights(value: float) -> float:
    if not _MIN_WEIGHTS <= value <= _MAX_WEIGHTS:
        raise ValueError("expected 1MB to 100TB: is the unit right?")
    return value


def _check_memory_bandwidth(value: float) -> float:
    if not MIN_MEMORY_BANDWIDTH <= value <= MAX_MEMORY_BANDWIDTH:
        raise ValueError("expected 1GB/s to 100TB/s: is the unit right?")
    return value


def _check_compute_rate(value: float) -> float:
    if not MIN_COMPUTE_RATE <= value <= MAX_COMPUTE_RATE:
        raise ValueError("expected 1GFLOPS to 100PFLOPS: is the unit right?")
    return value


def _check_cache_dtype(value: str) -> str:
    if not is_known_cache_dtype(value):
        raise ValueError(
            f"expected one of {', '.join(sorted((AUTO, *ELEMENT_BYTES)))}, found {units.describe_value(value)}"
        )
    return value


def _is_unbroken(value: str) -> bool:
    return value.isprintable() and not any(character.isspace() for character in value)


def _check_path(value: Path) -> Path:
    try:
        usable = "\0" not in str(value) and bool(os.fsencode(value))
    except UnicodeError:
        usable = False
    if not usable:
        raise ValueError("expected a path")
    return value


def _check_name(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("expected a printable name that is not empty")
    return value


def _read_off(value: object) -> object:
    """YAML reads an unquoted `off` as false."""
    return "off" if value is False else value


def _check_backend(value: object, info: ValidationInfo) -> object:
    """A name of a backend. The valid names are passed as validation context: backends lie above this package."""
    names = [repr(name) for name in info.context["backends"]] if info.context else []
    if not isinstance(value, str) or repr(value) not in names:
        expected = " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        raise PydanticCustomError("literal_error", "expected {expected}", {"expected": expected})
    return value


Interval = Annotated[float, BeforeValidator(units.parse_duration), AfterValidator(_check_interval)]
DurationOrZero = Annotated[float, BeforeValidator(units.parse_duration), AfterValidator(_check_maximum)]
Duration = Annotated[float, BeforeValidator(units.parse_duration), AfterValidator(_check_duration)]
Size = Annotated[float, BeforeValidator(units.parse_size)]
WholeSize = Annotated[float, BeforeValidator(units.parse_size), AfterValidator(math.ceil)]
Weights = Annotated[float, BeforeValidator(units.parse_size), AfterValidator(_check_weights)]
Bandwidth = Annotated[float, BeforeValidator(units.parse_bandwidth), AfterValidator(_check_memory_bandwidth)]
Compute = Annotated[float, BeforeValidator(units.parse_compute_rate), AfterValidator(_check_compute_rate)]
Count = Annotated[int, Field(ge=1, strict=True)]
Speed = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
File = Annotated[Path, AfterValidator(_check_path)]
Switch = Annotated[bool, Field(strict=True)]
Runners = Annotated[Literal["auto", "off"], BeforeValidator(_read_off)]
ProbeInterval = Annotated[float, BeforeValidator(units.parse_duration), AfterValidator(_check_probe_interval)]
Budget = Annotated[float, Field(gt=0, le=0.5, strict=True)]
Name = Annotated[str, AfterValidator(_check_name)]
BackendName = Annotated[StrictStr, BeforeValidator(_check_backend)]
BaseUrl = Annotated[str, AfterValidator(_normalise_url)]
MetricsPath = Annotated[str, AfterValidator(_check_metrics_path)]
PageUrl = Annotated[str, AfterValidator(_check_page_url)]
DeviceCount = Annotated[int, Field(ge=1, le=MAX_DEVICES, strict=True)]
Parameters = Annotated[float, BeforeValidator(_parse_parameters)]
CacheDtype = Annotated[str, AfterValidator(_check_cache_dtype)]
