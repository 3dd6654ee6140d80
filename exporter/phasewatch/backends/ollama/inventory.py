"""What an Ollama says of its models: /api/ps, /api/tags and /api/show, typed (0.1.38 and newer)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.snapshot.models import ModelDetails

OllamaVersion = tuple[int, int, int]

_VERSION: Final = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:\D.*)?", re.DOTALL)
_DIGEST_SHOWN: Final = 12
_CLOCKS_AGREE: Final = 2.0


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory; bytes and Unix time, None where the server does not say.

    Attributes:
        name: as /api/ps has it, with its tag.
        digest: of its manifest.
        size: bytes of weights, KV cache and buffers, wherever they are.
        size_vram: of those, bytes on the devices.
        context_length: tokens of context that it was loaded with (0.10 and newer).
        expires_at: when it will be unloaded if nobody asks for it again.
        details: what it is.
    """

    name: str
    digest: str
    size: float | None
    size_vram: float | None
    context_length: int | None
    expires_at: float | None
    details: ModelDetails

    @property
    def key(self) -> tuple[str, str]:
        """Name and digest: a name alone can be in memory twice, with what was pulled before and after."""
        return self.name, self.digest


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model on disk. `parse_capabilities` is None where the server does not say (before 0.30); `remote` means that
    requests for it go to another machine.
    """

    name: str
    digest: str
    capabilities: frozenset[str] | None
    remote: bool
    details: ModelDetails


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is in memory, and what is on disk by name; `stored` is None until it was asked.

    `ahead` is how many seconds the server's clock, by which models expire, is ahead of ours.
    """

    loaded: tuple[LoadedModel, ...]
    stored: Mapping[str, StoredModel] | None = None
    ahead: float = 0.0


def parse_version(text: str | None) -> OllamaVersion | None:
    """The three numbers of a version; None for what is no version, and for `0.0.0`, which a build of one's own says."""
    found = _VERSION.fullmatch(text) if text else None
    numbers = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
    return None if numbers == (0, 0, 0) else numbers


def parse_loaded_models(answer: Any) -> tuple[LoadedModel, ...]:
    """The models in the answer of /api/ps, each once.

    Raises:
        ScrapeError: `no_metrics` if it is no such answer, `parse` if a part of it is not what it must be.
    """
    models = (_loaded(entry, f"/api/ps models[{index}]") for index, entry in enumerate(_models(answer, "/api/ps")))
    return tuple({model.key: model for model in models}.values())


def parse_stored_models(answer: Any) -> dict[str, StoredModel]:
    """The models in the answer of /api/tags, by name.

    Raises:
        ScrapeError: as `parse_loaded_models`.
    """
    models = (_stored(entry, f"/api/tags models[{index}]") for index, entry in enumerate(_models(answer, "/api/tags")))
    return {model.name: model for model in models}


def parse_capabilities(answer: Any) -> frozenset[str] | None:
    """What a model can do, from the answer of /api/show (0.6.4 and newer) or an entry of /api/tags."""
    listed = answer.get("capabilities") if isinstance(answer, dict) else None
    return frozenset(word for word in listed if isinstance(word, str)) if isinstance(listed, list) else None


def compute_clock_offset(date: float | None, wall: float) -> float:
    """Seconds by which the server's clock is ahead of ours. It tells whole seconds, so less than two may be none."""
    ahead = 0.0 if date is None else date - wall
    return ahead if abs(ahead) >= _CLOCKS_AGREE else 0.0


def is_current(model: LoadedModel, stored: Mapping[str, StoredModel] | None) -> bool:
    """Whether a request for the name of a loaded model would reach this very one, and not what was pulled since."""
    listed = stored.get(model.name) if stored else None
    return listed is not None and listed.digest == model.digest


def choose_label(model: LoadedModel, inventory: Inventory) -> str:
    """What a loaded model is called on our pages: its name, or with its digest where it no longer has that name."""
    alone = [other.name for other in inventory.loaded].count(model.name) == 1
    listed = inventory.stored.get(model.name) if inventory.stored else None
    if is_current(model, inventory.stored) or (alone and listed is None):
        return model.name
    return f"{model.name}@{model.digest[:_DIGEST_SHOWN]}"


def _models(answer: Any, path: str) -> list[Any]:
    if not isinstance(answer, dict) or "models" not in answer:
        raise ScrapeError(Reason.NO_METRICS, f"{path} lists no models: is this an Ollama?")
    models = answer["models"]
    if models is not None and not isinstance(models, list):
        raise ScrapeError(Reason.PARSE, f"{path}: models is no list")
    return models or []


def _loaded(entry: Any, path: str) -> LoadedModel:
    return LoadedModel(
        name=_text(entry, "name", path),
        digest=_text(entry, "digest", path),
        size=_bytes(entry, "size", path),
        size_vram=_bytes(entry, "size_vram", path),
        context_length=_length(entry, path),
        expires_at=_time(entry, "expires_at", path),
        details=_details(entry),
    )


def _stored(entry: Any, path: str) -> StoredModel:
    name = _text(entry, "name", path)
    elsewhere = bool(entry.get("remote_model") or entry.get("remote_host"))
    return StoredModel(
        name=name,
        digest=_text(entry, "digest", path),
        capabilities=parse_capabilities(entry),
        remote=elsewhere or name.endswith((":cloud", "-cloud")),
        details=_details(entry),
    )


def _details(entry: Any) -> ModelDetails:
    told = entry.get("details")

    def word(key: str) -> str:
        value = told.get(key) if isinstance(told, dict) else None
        return value if isinstance(value, str) and _can_be_shown(value) else ""

    return ModelDetails(word("format"), word("family"), word("parameter_size"), word("quantization_level"))


def _text(entry: Any, key: str, path: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value or not _can_be_shown(value):
        raise ScrapeError(Reason.PARSE, f"{path}: {key} is no text")
    return value


def _can_be_shown(value: str) -> bool:
    """JSON may hold half of a surrogate pair, which no page can be encoded with."""
    return value.encode(errors="ignore").decode() == value


def _bytes(entry: Any, key: str, path: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ScrapeError(Reason.PARSE, f"{path}: {key} is no number of bytes")
    return float(value)


def _length(entry: Any, path: str) -> int | None:
    value = entry.get("context_length")
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise ScrapeError(Reason.PARSE, f"{path}: context_length is no number of tokens")
    return value


def _time(entry: Any, key: str, path: str) -> float | None:
    """Unix time of an RFC 3339 time, which comes in the server's zone with up to nine digits of a second. Go's zero
    time says that nothing is known.
    """
    value = entry.get(key)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        seconds = moment.timestamp() if moment.year > 1 else None
    except (ValueError, TypeError, OverflowError) as error:
        raise ScrapeError(Reason.PARSE, f"{path}: {key} is no time") from error
    if moment.tzinfo is None:
        raise ScrapeError(Reason.PARSE, f"{path}: {key} has no time zone")
    return seconds
