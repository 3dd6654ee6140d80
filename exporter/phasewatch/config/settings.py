"""The resolved configuration: frozen dataclasses in base units, the only form that the rest of the program uses.

Their fields have the names of the keys in the schema (`resolve` enforces it). Defaults are defined in the schema; here
a field has one only if None, or an empty value, means that the operator has not given it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from phasewatch.base.errors import Problem
from phasewatch.hardware.facts import DeviceLayout
from phasewatch.models.settings import ModelSettings


@dataclass(frozen=True)
class Authorization:
    """How to authenticate to a target: the scheme, and the file with the secret, which is read for each request."""

    type: str
    credentials_file: Path = field(repr=False)  # people write the secret itself here by mistake


@dataclass(frozen=True)
class TlsConfig:
    """Trust and client certificate for an https target."""

    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    insecure_skip_verify: bool


@dataclass(frozen=True)
class DeviceSettings:
    """The devices of a target as configured; None where not given.

    Attributes:
        name: name of the device, as drivers or vendors write it.
        count: number of devices.
        memory: memory of each device in bytes, to distinguish devices of the same name.
        layout: how the model is divided among the devices.
        memory_bandwidth: memory bandwidth of each device, bytes per second.
        flops: dense operations per second of each device at the precision of the model.
        cpu_memory_bandwidth: bandwidth of host memory, bytes per second.
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
        name: name of the model, as the server reports it; empty for models that the configuration does not name.
        enabled: whether the model is probed at all.
        load: whether a probe may load the model if no model is loaded.
        options: options of the runner that the model is loaded with; sent with each probe.
    """

    name: str
    enabled: bool
    load: bool
    options: Mapping[str, int | bool]


@dataclass(frozen=True)
class ProbeSettings:
    """How an Ollama server is probed; durations in seconds.

    Attributes:
        enabled: whether it is probed at all.
        interval: time between two probes of a model.
        long_interval: time between two long probes of a model.
        timeout: time within which a response must be complete.
        budget: largest share of the time that probes may take, above 0.
        load: default of `load` for the entries of `models`. They have it already, so it does not count in a comparison.
        models: settings of single models by name.
    """

    enabled: bool
    interval: float
    long_interval: float
    timeout: float
    budget: float
    load: bool = field(compare=False)
    models: Mapping[str, ModelProbeSettings]


@dataclass(frozen=True)
class OllamaSettings:
    """Where the llama-server processes that run an Ollama's models are found.

    Attributes:
        runners: whether they are looked for; `auto` looks wherever they can be.
        procfs: folder in which the process list of the server's machine is mounted.
    """

    runners: Literal["auto", "off"]
    procfs: Path


@dataclass(frozen=True)
class ServerSettings:
    """The server's own settings, as configured or as the server reports them; None where unknown.

    Attributes:
        max_num_seqs: maximum number of running requests.
        max_num_batched_tokens: maximum number of tokens in one engine step.
        api_servers: number of API server processes behind the address.
        kv_unified: whether the slots of a llama-server share one KV cache.
        sleep_idle: seconds without a request after which a llama-server falls asleep; 0 if it never does.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    api_servers: int | None = None
    kv_unified: bool | None = None
    sleep_idle: float | None = None


@dataclass(frozen=True)
class SaturationSettings:
    """Thresholds of the saturation state. Times in seconds, the rest shares from 0 to 1.

    Attributes:
        memory: length of the history that the state is computed from. Batches come and go within seconds: if it is
            shorter, the gap between two looks like the end of saturation; if it is longer, a burst that is over still
            counts.
        hysteresis: minimum time that a state is kept, so that a timeline is readable and an alert's `for` can elapse.
        stuck_after: how long an engine may have requests without doing any work. Loading a LoRA adapter or compiling a
            grammar takes seconds, not half a minute.
        kv_cache_free: free share of the KV cache below which it counts as full, unless a mean prompt needs more. The
            cache is allocated in blocks and grows with every step, so its last few percent are not usable.
        prefill_share: share of running requests' time in prefill from which prefill is the limit, if neither the
            server's settings nor full steps can decide it. Requests that decode a few dozen tokens spend 10 to 25 % of
            their time in prefill.
        step_budget_share: mean tokens per step / `max_num_batched_tokens` from which steps count as full.
        deferred_share: share of deferred requests among the waiting ones from which deferral is the cause.
    """

    memory: float
    hysteresis: float
    stuck_after: float
    kv_cache_free: float
    prefill_share: float
    step_budget_share: float
    deferred_share: float


@dataclass(frozen=True)
class ObjectiveSettings:
    """Within what the users of a target are to be served. The defaults of latencies are the thresholds of the alerts.

    Attributes:
        inter_token_latency: seconds between two outputs of a stream that 99 in 100 must not exceed.
        time_to_first_token: seconds to the first token that 95 in 100 must not exceed.
        decode_tokens_per_second: mean speed that a stream must keep; None for no such objective.
    """

    inter_token_latency: float
    time_to_first_token: float
    decode_tokens_per_second: float | None


@dataclass(frozen=True)
class Target:
    """One server to watch; durations in seconds, sizes in bytes.

    `metrics_path` is the path of the page of metrics below `url`. An `optional` target is left out of /metrics until it
    has responded once. `device_from` is the address of a DCGM exporter's page.
    """

    name: str
    backend: str
    url: str
    metrics_path: str
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
    ollama: OllamaSettings
    server: ServerSettings
    saturation: SaturationSettings
    objectives: ObjectiveSettings


@dataclass(frozen=True)
class Config:
    """The whole configuration.

    `notes` are no errors: keys without effect, files that cannot be read at present.
    """

    targets: tuple[Target, ...]
    notes: tuple[Problem, ...] = ()
