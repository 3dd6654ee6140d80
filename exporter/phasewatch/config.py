"""The configuration: a YAML file in, one validated and immutable `Config` out.

Nothing downstream sees a raw dictionary or the schema: `load` and `parse` give frozen dataclasses in base units
(seconds), with the global defaults already filled into each target, or raise one `ConfigError` with every mistake.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from phasewatch import units
from phasewatch.errors import ConfigError, Problem
from phasewatch.schema import (
    DEFAULT_BODY_SIZE_LIMIT,
    DEFAULT_INTERVAL,
    DEFAULT_TIMEOUT,
    DEFAULT_WINDOW,
    LONGEST,
    SECTIONS,
    FileSchema,
    SaturationSchema,
    ServerSchema,
    TargetSchema,
    TlsSchema,
)
from phasewatch.yamlfile import parse_mapping, problem, read_mapping


@dataclass(frozen=True)
class Authorization:
    """How a target wants to be asked: the scheme, and the file that holds the secret (read anew for each request)."""

    type: str
    credentials_file: Path = field(repr=False)  # people put the secret itself there


@dataclass(frozen=True)
class TlsConfig:
    """Trust and client certificate for an https target."""

    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    insecure_skip_verify: bool


@dataclass(frozen=True)
class Thresholds:
    """When an engine counts as saturated, and how steadily. Times in seconds, the rest shares from 0 to 1.

    Attributes:
        memory: how far back a verdict looks. Batches come and go within seconds: shorter, and the valley between two
            reads as relief; longer, and a burst that is over still counts.
        hysteresis: shortest time that a state is kept, so that a timeline stays readable and an alert's `for` counts.
        stuck_after: how long requests may wait while nothing runs and no token comes. Loading a LoRA adapter or
            compiling a grammar takes seconds, not half a minute.
        kv_cache_free: share of the KV cache below which it counts as full, unless a mean prompt needs more than that.
            A cache is allocated in blocks and grows with every step, so the last percents are not usable.
        prefill_share: share of running requests' time in prefill from which prefill limits, where neither the server's
            settings nor full steps can tell. Requests that decode a few dozen tokens spend a tenth to a quarter there.
        step_budget_share: mean tokens per step / `max_num_batched_tokens` from which steps count as full.
        deferred_share: share of the waiting requests that are deferred from which that is the cause.
    """

    memory: float = 15.0
    hysteresis: float = 5.0
    stuck_after: float = 30.0
    kv_cache_free: float = 0.05
    prefill_share: float = 0.3
    step_budget_share: float = 0.8
    deferred_share: float = 0.5


@dataclass(frozen=True)
class Limits:
    """The server's own settings, None where nobody told."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


@dataclass(frozen=True)
class Target:
    """One server to watch; durations in seconds, sizes in bytes.

    `optional` targets stay out of /metrics until they have answered once. `api_servers` is the number of API server
    processes behind the address, where the operator told it.
    """

    name: str
    backend: str
    url: str
    interval: float = DEFAULT_INTERVAL
    window: float = DEFAULT_WINDOW
    timeout: float = DEFAULT_TIMEOUT
    body_size_limit: int = int(DEFAULT_BODY_SIZE_LIMIT)
    optional: bool = False
    authorization: Authorization | None = None
    tls: TlsConfig | None = None
    api_servers: int | None = None
    limits: Limits = Limits()
    thresholds: Thresholds = Thresholds()


@dataclass(frozen=True)
class Config:
    """All that the operator decided.

    `notes` are no mistakes, but worth a line: keys that this version does not use, files that cannot be read just now.
    """

    targets: tuple[Target, ...]
    notes: tuple[Problem, ...] = ()


DEFAULT_CONFIG: Final = Config(
    targets=(Target(name="vllm", backend="vllm", url="http://127.0.0.1:8000", optional=True),)
)


_UNUSED_KEYS: Final = {
    "device": "accepted, but not used by this version",
    "model": "accepted, but not used by this version",
    "probe": "accepted, but not used: a vllm target is never sent a request",
}


def load(path: Path) -> Config:
    """Read and validate a configuration file.

    Raises:
        ConfigError: with every mistake found.
    """
    return _validated(*read_mapping(path), base=path.parent)


def load_or_default(path: Path | None) -> Config:
    """The configuration of a file, or the built-in one for no file.

    Raises:
        ConfigError: with every mistake found.
    """
    return DEFAULT_CONFIG if path is None else load(path)


def parse(text: str, source: str = "configuration") -> Config:
    """Validate the text of a configuration.

    Args:
        text: YAML.
        source: the name used in messages about the file as a whole.

    Raises:
        ConfigError: with every mistake found.
    """
    return _validated(*parse_mapping(text, source), base=Path())


def _validated(raw: dict[Any, Any], problems: list[Problem], base: Path) -> Config:
    """The configuration of a mapping; relative paths in it start at `base`."""
    problems += [*_repeated_names(raw.get("targets")), *_contradictions(raw)]
    try:
        file = FileSchema.model_validate(raw)
    except ValidationError as error:
        secret = frozenset({"authorization", "tls_config", "url"})
        problems += [problem(details, FileSchema, SECTIONS, secret) for details in error.errors(include_url=False)]
        raise ConfigError(problems) from error
    if problems:
        raise ConfigError(problems)
    return Config(
        targets=tuple(_resolve(target, file, base) for target in file.targets),
        notes=tuple(_notes(file, base)),
    )


def _resolve(target: TargetSchema, file: FileSchema, base: Path) -> Target:
    authorization, tls, server = target.authorization, target.tls_config, target.server or ServerSchema()
    return Target(
        name=target.name,
        backend=target.backend,
        url=target.url,
        interval=file.interval if target.interval is None else target.interval,
        window=file.window if target.window is None else target.window,
        timeout=file.timeout if target.timeout is None else target.timeout,
        body_size_limit=math.ceil(file.body_size_limit if target.body_size_limit is None else target.body_size_limit),
        optional=target.optional,
        authorization=Authorization(authorization.type, base / authorization.credentials_file)
        if authorization
        else None,
        tls=_tls(tls, base) if tls else None,
        api_servers=server.api_servers,
        limits=Limits(server.max_num_seqs, server.max_num_batched_tokens),
        thresholds=Thresholds(**{**_given(file.saturation), **_given(target.saturation)}),
    )


def _given(saturation: SaturationSchema | None) -> dict[str, float]:
    return saturation.model_dump(exclude_none=True) if saturation else {}


def _tls(tls: TlsSchema, base: Path) -> TlsConfig:
    def path(file: Path | None) -> Path | None:
        return base / file if file else None

    return TlsConfig(path(tls.ca_file), path(tls.cert_file), path(tls.key_file), tls.insecure_skip_verify)


def _repeated_names(targets: object) -> Iterator[Problem]:
    """Looks at the raw list, so that a repeated name is reported together with mistakes elsewhere."""
    first_use: dict[str, int] = {}
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        name = target.get("name") if isinstance(target, dict) else None
        if not isinstance(name, str):
            continue
        if name in first_use:
            yield Problem(f"targets[{index}].name", f"{name!r} is taken by targets[{first_use[name]}]")
        first_use.setdefault(name, index)


def _contradictions(raw: dict[Any, Any]) -> Iterator[Problem]:
    """Keys that are right alone and wrong together. Looks at the raw keys, to be told with all other mistakes; what is
    wrong alone is passed over here.
    """
    targets = raw.get("targets")
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        if not isinstance(target, dict):
            continue
        interval = _seconds(_either(target, raw, "interval"), DEFAULT_INTERVAL)
        window = _seconds(_either(target, raw, "window"), DEFAULT_WINDOW)
        if window < interval:
            given = "found" if _either(target, raw, "window") is not None else "but the default is"
            yield Problem(
                f"targets[{index}].window",
                f"expected at least the interval of {units.human_duration(interval)}, "
                f"{given} {units.human_duration(window)}: one window must hold two scrapes",
            )
        if target.get("tls_config") and str(target.get("url")).lower().startswith("http:"):
            yield Problem(f"targets[{index}].tls_config", "expected an https url with it")


def _either(target: dict[Any, Any], raw: dict[Any, Any], key: str) -> object:
    """What a target says, or else the file; null says nothing."""
    own = target.get(key)
    return raw.get(key) if own is None else own


def _seconds(value: object, default: float) -> float:
    """The seconds of a key; the default where it is not given, or wrong and told as such elsewhere."""
    with contextlib.suppress(ValueError):
        seconds = default if value is None else units.duration(value)
        if 0 < seconds <= LONGEST:
            return seconds
    return default


def _notes(file: FileSchema, base: Path) -> Iterator[Problem]:
    for index, target in enumerate(file.targets):
        for key, note in _UNUSED_KEYS.items():
            if getattr(target, key) is not None:
                yield Problem(f"targets[{index}].{key}", note)
        for section in ("authorization", "tls_config"):
            for key, value in getattr(target, section) or ():
                if isinstance(value, Path):
                    yield from _unreadable(f"targets[{index}].{section}.{key}", base / value)


def _unreadable(path: str, file: Path) -> Iterator[Problem]:
    """A secret may be mounted later, so this is a note; it gives the system's word and never the value."""
    try:
        if not file.exists() or file.is_file():  # opening a pipe would wait for its other end
            file.open("rb").close()
    except OSError as error:
        yield Problem(path, f"cannot be read now: {error.strerror}")
