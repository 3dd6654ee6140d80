"""The resolved configuration: frozen dataclasses in base units, which is all that the rest of the program sees.

Their fields are the keys of the schema, under the same names (`resolve` holds the two together). Defaults stand in the
schema alone; a field has one here only where None or nothing means that the operator said nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from phasewatch.base.errors import Problem
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.settings import ModelSettings


@dataclass(frozen=True)
class Authorization:
    """How to authenticate to a target: the scheme, and the file that holds the secret, read again for each request."""

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
class DeviceSettings:
    """The devices of a target in the operator's words; None where they say nothing.

    Attributes:
        name: of the device, as drivers or vendors write it.
        count: how many there are.
        memory: bytes of each, which tells devices of the same name apart.
        layout: how the model is divided among them.
        memory_bandwidth: bytes per second of each.
        flops: dense operations per second of each, at the precision of the model.
        cpu_memory_bandwidth: bytes per second of the host's memory.
    """

    name: str | None = None
    count: int | None = None
    memory: float | None = None
    layout: DeviceLayout | None = None
    memory_bandwidth: float | None = None
    flops: float | None = None
    cpu_memory_bandwidth: float | None = None


@dataclass(frozen=True)
class ModelProbeSettings:
    """The probes of one Ollama model.

    Attributes:
        name: as the server calls it; empty for models that the configuration does not name.
        enabled: whether it is probed at all.
        load: whether a probe may load it while nothing else is loaded.
        options: options of the runner that the model is loaded with, to be sent with each probe.
    """

    name: str
    enabled: bool
    load: bool
    options: Mapping[str, int | bool]


@dataclass(frozen=True)
class ProbeSettings:
    """How an Ollama is probed; durations in seconds.

    Attributes:
        enabled: whether it is.
        interval: between two probes of a model.
        long_interval: between two long probes of a model.
        timeout: until a response must be complete.
        budget: largest share of the time that probes may take, above 0.
        load: whether probes may load those of `models` that do not say otherwise.
        models: by name, where a model differs.
    """

    enabled: bool
    interval: float
    long_interval: float
    timeout: float
    budget: float
    load: bool
    models: Mapping[str, ModelProbeSettings]


@dataclass(frozen=True)
class ServerSettings:
    """The server's own settings, None where unknown: as the operator gives them, or as the server reports them.

    Attributes:
        max_num_seqs: requests that may run at once.
        max_num_batched_tokens: tokens that one engine step may hold.
        api_servers: API server processes behind the address.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    api_servers: int | None = None


@dataclass(frozen=True)
class SaturationSettings:
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

    memory: float
    hysteresis: float
    stuck_after: float
    kv_cache_free: float
    prefill_share: float
    step_budget_share: float
    deferred_share: float


@dataclass(frozen=True)
class Target:
    """One server to watch; durations in seconds, sizes in bytes.

    `optional` targets stay out of /metrics until they have answered once. `device_from` is the address of a DCGM
    exporter's page.
    """

    name: str
    backend: str
    url: str
    interval: float
    window: float
    timeout: float
    body_size_limit: int
    optional: bool
    authorization: Authorization | None
    tls_config: TlsConfig | None
    device: DeviceSettings
    device_from: str | None
    model: ModelSettings
    probe: ProbeSettings
    server: ServerSettings
    saturation: SaturationSettings


@dataclass(frozen=True)
class Config:
    """All that the operator decided.

    `notes` are not mistakes, but worth a line: keys without effect, files that cannot be read just now.
    """

    targets: tuple[Target, ...]
    notes: tuple[Problem, ...] = ()
