"""The schema of the configuration file: its keys, the type of each, and its default.

A default is defined here and nowhere else. A key that is None or left out has its default; a key that a target shares
with the whole file takes the file's value first. Only `resolve` and `checks` use the schema: everything else uses
`settings`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from phasewatch.config.values import (
    BackendName,
    Bandwidth,
    BaseUrl,
    Budget,
    CacheDtype,
    Compute,
    Count,
    DeviceCount,
    Duration,
    DurationOrZero,
    File,
    Interval,
    MetricsPath,
    Name,
    PageUrl,
    Parameters,
    ProbeInterval,
    Runners,
    Share,
    Size,
    Speed,
    Switch,
    Weights,
    WholeSize,
)


class SectionSchema(BaseModel):
    """A mapping of keys. Unknown keys are errors."""

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
    def _check_key_pair(self) -> "TlsSchema":
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both or none")
        return self


class DeviceSchema(SectionSchema):
    """`device`: the devices of a target."""

    name: Name | None = None
    count: DeviceCount | None = None
    memory: Size | None = None
    layout: Literal["tensor", "pipeline", "replica"] | None = None
    memory_bandwidth: Bandwidth | None = None
    flops: Compute | None = None
    cpu_memory_bandwidth: Bandwidth | None = None


class ModelSchema(SectionSchema):
    """`model`: the costs of the model that a target serves."""

    path: File | None = None
    weights: Weights | None = None
    weights_read: Weights | None = None
    kv_cache_bytes_per_token: Size | None = None
    kv_cache_dtype: CacheDtype | None = None
    active_parameters: Parameters | None = None

    @model_validator(mode="after")
    def _check_weights_read(self) -> "ModelSchema":
        if self.weights is not None and self.weights_read is not None and self.weights_read > self.weights:
            raise ValueError("weights_read is more than weights; expected the part of them that one stream reads")
        return self


class OptionsSchema(SectionSchema):
    """`options`: the options of Ollama's runner that a model is loaded with. No other option causes a reload."""

    num_ctx: Count | None = None
    num_batch: Count | None = None
    num_gpu: Annotated[int, Field(ge=-1, strict=True)] | None = None
    main_gpu: Annotated[int, Field(ge=0, strict=True)] | None = None
    num_thread: Count | None = None
    draft_num_predict: Annotated[int, Field(ge=0, strict=True)] | None = None
    use_mmap: Switch | None = None


class ModelProbeSchema(SectionSchema):
    """An entry of `probe.models`: the probes of one model."""

    name: Name
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


class OllamaSchema(SectionSchema):
    """`ollama`: where the processes that run an Ollama's models are found."""

    runners: Runners | None = "auto"
    procfs: File | None = Path("/proc")


class ServerSchema(SectionSchema):
    """`server`: the server's own settings, as the operator gives them."""

    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    api_servers: Count | None = None
    kv_unified: Switch | None = None
    sleep_idle: DurationOrZero | None = None


class SaturationSchema(SectionSchema):
    """`saturation`: when an engine counts as saturated; see `settings.SaturationSettings`."""

    memory: Duration | None = 15.0
    hysteresis: Duration | None = 5.0
    stuck_after: Duration | None = 30.0
    kv_cache_free: Share | None = 0.05
    prefill_share: Share | None = 0.3
    step_budget_share: Share | None = 0.8
    deferred_share: Share | None = 0.5


class ObjectivesSchema(SectionSchema):
    """`objectives`: within what users are to be served; see `settings.ObjectiveSettings`."""

    inter_token_latency: Duration | None = 0.3
    time_to_first_token: Duration | None = 2.5
    decode_tokens_per_second: Speed | None = None


class TargetSchema(SectionSchema):
    """An entry of `targets`."""

    name: Name
    backend: BackendName
    url: BaseUrl
    metrics_path: MetricsPath | None = "/metrics"
    interval: Interval | None = None
    window: Duration | None = None
    timeout: Duration | None = None
    body_size_limit: WholeSize | None = None
    optional: Switch = False
    authorization: AuthorizationSchema | None = None
    tls_config: TlsSchema | None = None
    device: DeviceSchema | None = None
    device_from: PageUrl | None = None
    model: ModelSchema | None = None
    probe: ProbeSchema | None = None
    ollama: OllamaSchema | None = None
    server: ServerSchema | None = None
    saturation: SaturationSchema | None = None
    objectives: ObjectivesSchema | None = None


class FileSchema(SectionSchema):
    """The whole file."""

    interval: Interval = 5.0
    window: Duration = 60.0
    timeout: Duration = 4.0
    body_size_limit: WholeSize = 16_000_000
    saturation: SaturationSchema | None = None
    objectives: ObjectivesSchema | None = None
    targets: Annotated[list[TargetSchema], Field(min_length=1)]


def get_section(schema: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The schema of the section below a key, single or in a list; None for a key with a plain value."""
    kinds = _list_classes(schema.model_fields[key].annotation)
    return next((kind for kind in kinds if issubclass(kind, BaseModel)), None)


def list_sections(schema: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The schemas of all sections below a schema, at any depth, by key."""
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
