"""What a llama-server says about itself: /props and /v1/models, neither of which wakes a sleeping server (b10434)."""

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from phasewatch.backends.client import get_text
from phasewatch.config.settings import ServerSettings
from phasewatch.models.costs import ModelCosts, ModelSource
from phasewatch.snapshot.models import ServedModel
from phasewatch.snapshot.target import ServerFacts

_LARGEST: Final = 2**63


@dataclass(frozen=True, slots=True)
class Props:
    """A response of /props; None for what this build does not say. Templates and settings of requests are not kept.

    Attributes:
        build: text that names the build.
        slots: number of slots.
        context: tokens of context of each slot.
        model: name of the model, by its alias or its file.
        path: file of the model.
        asleep: whether the server sleeps; None for builds that cannot (before December 2025).
        router: whether it is a router, whose models have servers of their own.
    """

    build: str | None = None
    slots: int | None = None
    context: int | None = None
    model: str | None = None
    path: str | None = None
    asleep: bool | None = None
    router: bool = False


@dataclass(frozen=True, slots=True)
class ModelMeta:
    """The model of /v1/models.

    Attributes:
        name: its name.
        weight_bytes: size of all tensors; None while the model loads.
    """

    name: str
    weight_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What is known of one llama-server process besides its pages.

    Attributes:
        model: name of its model, the label of its figures.
        props: its newest /props.
        weight_bytes: size of the weights; None if unknown.
        kv_unified: whether its slots share one KV cache; None if unknown.
        queues_elsewhere: whether requests wait in front of the process, so that its own queue is always empty.
    """

    model: str = ""
    props: Props = field(default_factory=Props)
    weight_bytes: float | None = None
    kv_unified: bool | None = None
    queues_elsewhere: bool = False

    def describe_server(self) -> ServerFacts:
        """The facts in the form that all kinds of servers share."""
        served = ServedModel(root=self.props.path, max_model_len=self.props.context)
        return ServerFacts(
            version=self.props.build,
            models={self.model: served},
            server=ServerSettings(max_num_seqs=self.props.slots),
        )

    def describe_costs(self) -> ModelCosts:
        """The costs of the model, as far as the server says."""
        if self.weight_bytes is None:
            return ModelCosts()
        return ModelCosts(weight_bytes=self.weight_bytes, weight_source=ModelSource.LLAMACPP)


def parse_props(value: Any) -> Props | None:
    """Any value of /props; None if it is not that of a llama-server."""
    if not isinstance(value, dict):
        return None
    settings = value.get("default_generation_settings")
    router = value.get("role") == "router"
    if not router and not isinstance(settings, dict):
        return None
    asleep = value.get("is_sleeping")
    path = get_text(value.get("model_path")) or None
    return Props(
        build=get_text(value.get("build_info")) or None,
        slots=_get_count(value.get("total_slots")),
        context=_get_count(settings.get("n_ctx")) if isinstance(settings, dict) else None,
        model=get_text(value.get("model_alias")) or (PurePosixPath(path).name if path else None),
        path=path,
        asleep=asleep if isinstance(asleep, bool) else None,
        router=router,
    )


def parse_model(value: Any, name: str = "") -> ModelMeta | None:
    """The model of a name in any value of /v1/models, or the first one; None if there is none."""
    listed = value.get("data") if isinstance(value, dict) else None
    entries = [entry for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict)]
    entry = next((entry for entry in entries if not name or entry.get("id") == name), {})
    name = get_text(entry.get("id")) or ""
    if not name:
        return None
    meta = entry.get("meta")
    size = _get_count(meta.get("size")) if isinstance(meta, dict) else None
    return ModelMeta(name, None if size is None else float(size))


def _get_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST else None
