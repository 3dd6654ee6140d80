"""The configuration: a YAML file in, one validated and immutable `Config` out.

Nothing downstream sees a raw dictionary or the schema: `load` and `parse` give frozen dataclasses in base units
(seconds), with the global defaults already filled into each target, or raise one `ConfigError` with every mistake.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.config.checks import find_contradictions, find_notes, find_repeated_names
from phasewatch.config.device_settings import DeviceSettings
from phasewatch.config.probe_settings import ModelProbe, ProbeSettings
from phasewatch.config.schema import (
    DEFAULT_BODY_SIZE_LIMIT,
    DEFAULT_INTERVAL,
    DEFAULT_TIMEOUT,
    DEFAULT_WINDOW,
    OLLAMA_INTERVAL,
    SECTIONS,
    FileSchema,
    ModelSchema,
    ProbeSchema,
    SaturationSchema,
    ServerSchema,
    TargetSchema,
    TlsSchema,
)
from phasewatch.config.yaml_file import describe_error, parse_mapping, read_mapping
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.settings import ModelSettings


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
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    model: ModelSettings = field(default_factory=ModelSettings)


@dataclass(frozen=True)
class Config:
    """All that the operator decided.

    `notes` are no mistakes, but worth a line: keys that this version does not use, files that cannot be read just now.
    """

    targets: tuple[Target, ...]
    notes: tuple[Problem, ...] = ()


DEFAULT_CONFIG: Final = Config(
    targets=(
        Target(name="vllm", backend="vllm", url="http://127.0.0.1:8000", optional=True),
        Target(name="ollama", backend="ollama", url="http://127.0.0.1:11434", optional=True),
    )
)


def load_config(path: Path) -> Config:
    """Read and validate a configuration file.

    Raises:
        ConfigError: with every mistake found.
    """
    return _validated(*read_mapping(path), base=path.parent)


def load_config_or_default(path: Path | None) -> Config:
    """The configuration of a file, or the built-in one for no file.

    Raises:
        ConfigError: with every mistake found.
    """
    return DEFAULT_CONFIG if path is None else load_config(path)


def parse_config(text: str, source: str = "configuration") -> Config:
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
    problems += [*find_repeated_names(raw.get("targets")), *find_contradictions(raw)]
    try:
        file = FileSchema.model_validate(raw)
    except ValidationError as error:
        secret = frozenset({"authorization", "tls_config", "url", "device_from"})
        problems += [
            describe_error(details, FileSchema, SECTIONS, secret) for details in error.errors(include_url=False)
        ]
        raise ConfigError(problems) from error
    if problems:
        raise ConfigError(problems)
    return Config(
        targets=tuple(_resolve(target, file, base) for target in file.targets),
        notes=tuple(find_notes(file, base)),
    )


def _resolve(target: TargetSchema, file: FileSchema, base: Path) -> Target:
    authorization, tls, server = target.authorization, target.tls_config, target.server or ServerSchema()
    return Target(
        name=target.name,
        backend=target.backend,
        url=target.url,
        interval=_interval(target, file),
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
        probe=_probe(target.probe),
        device=_device(target),
        model=_model(target.model, base),
    )


def _interval(target: TargetSchema, file: FileSchema) -> float:
    if target.interval is not None:
        return target.interval
    return max(file.interval, OLLAMA_INTERVAL) if target.backend == "ollama" else file.interval


def _device(target: TargetSchema) -> DeviceSettings:
    told = target.device.model_dump(exclude_none=True, exclude={"layout"}) if target.device else {}
    layout = target.device.layout if target.device else None
    return DeviceSettings(**told, layout=DeviceLayout(layout) if layout else None, page=target.device_from)


def _model(told: ModelSchema | None, base: Path) -> ModelSettings:
    if told is None:
        return ModelSettings()
    path = None if told.path is None else base / told.path
    return ModelSettings(path=path, **told.model_dump(exclude_none=True, exclude={"path"}))


def _probe(told: ProbeSchema | None) -> ProbeSettings:
    if told is None:
        return ProbeSettings()
    models = {
        model.name: ModelProbe(
            enabled=model.enabled,
            load=told.load if model.load is None else model.load,
            options=model.options.model_dump(exclude_none=True) if model.options else {},
        )
        for model in told.models or ()
    }
    given = told.model_dump(include={"enabled", "interval", "long_interval", "timeout", "budget"}, exclude_none=True)
    return ProbeSettings(**given, models=models)


def _given(saturation: SaturationSchema | None) -> dict[str, float]:
    return saturation.model_dump(exclude_none=True) if saturation else {}


def _tls(tls: TlsSchema, base: Path) -> TlsConfig:
    def path(file: Path | None) -> Path | None:
        return base / file if file else None

    return TlsConfig(path(tls.ca_file), path(tls.cert_file), path(tls.key_file), tls.insecure_skip_verify)
