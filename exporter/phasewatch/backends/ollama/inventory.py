"""Inventory of an Ollama: /api/ps, /api/tags and /api/show as typed records (0.1.38 and newer)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.snapshot.models import ModelDetails

OllamaVersion = tuple[int, int, int]

ModelKey = tuple[str, str]
"""Name and digest of a model: the same name can be in memory twice, as pulled before and after."""

_VERSION: Final = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:\D.*)?", re.DOTALL)
_BLOB: Final = re.compile(r"[/\\]blobs[/\\](sha256-[0-9a-f]{64})$")
_FROM: Final = re.compile(r"^FROM[ \t]+(\S.*?)[ \t\r]*$", re.MULTILINE)
_DIGEST_SHOWN: Final = 12
_CLOCKS_AGREE: Final = 2.0


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory; None where the server does not list a field.

    Attributes:
        name: name in /api/ps, with its tag.
        digest: digest of the model's manifest.
        size: weights, KV cache and buffers in any memory, bytes.
        size_vram: share of `size` on the devices, bytes.
        context_length: context that it was loaded with, tokens (0.10 and newer).
        expires_at: Unix time at which it is unloaded unless it is requested again.
        details: format, family and size.
    """

    name: str
    digest: str
    size: float | None
    size_vram: float | None
    context_length: int | None
    expires_at: float | None
    details: ModelDetails

    @property
    def key(self) -> ModelKey:
        """Name and digest."""
        return self.name, self.digest


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model on disk. `capabilities` is None where /api/tags does not list them (before 0.30); `remote` means that
    its requests go to another machine.
    """

    name: str
    digest: str
    capabilities: frozenset[str] | None
    remote: bool
    details: ModelDetails


@dataclass(frozen=True, slots=True)
class Inventory:
    """Models in memory and on disk.

    Attributes:
        loaded: models in memory.
        stored: models on disk by name; None until /api/tags was read.
        clock_offset: how far the server's clock, by which models expire, is ahead of ours, seconds.
    """

    loaded: tuple[LoadedModel, ...]
    stored: Mapping[str, StoredModel] | None = None
    clock_offset: float = 0.0


def parse_version(text: str | None) -> OllamaVersion | None:
    """The three numbers of a version; None for any other text, and for `0.0.0`, the version of a custom build."""
    match = _VERSION.fullmatch(text) if text else None
    numbers = (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)
    return None if numbers == (0, 0, 0) else numbers


def parse_loaded_models(payload: Any) -> tuple[LoadedModel, ...]:
    """The models in the payload of /api/ps, each once.

    Raises:
        ScrapeError: `no_metrics` if it has no list of models, `parse` if a field has a wrong type or value.
    """
    entries = enumerate(_list_entries(payload, "/api/ps"))
    models = (_parse_loaded(entry, f"/api/ps models[{index}]") for index, entry in entries)
    return tuple({model.key: model for model in models}.values())


def parse_stored_models(payload: Any) -> dict[str, StoredModel]:
    """The models in the payload of /api/tags, by name.

    Raises:
        ScrapeError: as `parse_loaded_models`.
    """
    entries = enumerate(_list_entries(payload, "/api/tags"))
    models = (_parse_stored(entry, f"/api/tags models[{index}]") for index, entry in entries)
    return {model.name: model for model in models}


def parse_capabilities(payload: Any) -> frozenset[str] | None:
    """Capabilities of a model, from /api/show (0.6.4 and newer) or from an entry of /api/tags; None if not listed."""
    words = payload.get("capabilities") if isinstance(payload, dict) else None
    return frozenset(word for word in words if isinstance(word, str)) if isinstance(words, list) else None


def extract_layer(path: str) -> str | None:
    """Name of the blob that a path leads to: the digest of a layer, `sha256-` and 64 digits; None for another path."""
    match = _BLOB.search(path)
    return match[1] if match else None


def parse_layer(payload: Any) -> str | None:
    """Layer with a model's weights, from the first FROM of the modelfile of /api/show; None if that names no blob.

    The digest of a model is that of its manifest. Further FROMs are those of projectors.
    """
    modelfile = payload.get("modelfile") if isinstance(payload, dict) else None
    match = _FROM.search(modelfile) if isinstance(modelfile, str) else None
    return extract_layer(match[1].strip('"')) if match else None


def compute_clock_offset(date: float | None, wall: float) -> float:
    """Seconds by which the server's clock is ahead of ours. Its date has whole seconds: less than two count as none."""
    offset = 0.0 if date is None else date - wall
    return offset if abs(offset) >= _CLOCKS_AGREE else 0.0


def is_current(model: LoadedModel, stored: Mapping[str, StoredModel] | None) -> bool:
    """Whether a request for the name of a loaded model would reach it, and not one that was pulled since."""
    listed = stored.get(model.name) if stored else None
    return listed is not None and listed.digest == model.digest


def choose_label(model: LoadedModel, inventory: Inventory) -> str:
    """Label of a loaded model: its name, with its digest if the name no longer stands for it alone."""
    unique = [other.name for other in inventory.loaded].count(model.name) == 1
    listed = inventory.stored.get(model.name) if inventory.stored else None
    if is_current(model, inventory.stored) or (unique and listed is None):
        return model.name
    return f"{model.name}@{model.digest[:_DIGEST_SHOWN]}"


def _list_entries(payload: Any, path: str) -> list[Any]:
    if not isinstance(payload, dict) or "models" not in payload:
        raise ScrapeError(Reason.NO_METRICS, f"{path} lists no models: is this an Ollama?")
    models = payload["models"]
    if models is not None and not isinstance(models, list):
        raise ScrapeError(Reason.PARSE, f"{path}: models is no list")
    return models or []


def _parse_loaded(entry: Any, path: str) -> LoadedModel:
    return LoadedModel(
        name=_parse_text(entry, "name", path),
        digest=_parse_text(entry, "digest", path),
        size=_parse_bytes(entry, "size", path),
        size_vram=_parse_bytes(entry, "size_vram", path),
        context_length=_parse_length(entry, path),
        expires_at=_parse_time(entry, "expires_at", path),
        details=_parse_details(entry),
    )


def _parse_stored(entry: Any, path: str) -> StoredModel:
    name = _parse_text(entry, "name", path)
    has_host = bool(entry.get("remote_model") or entry.get("remote_host"))
    return StoredModel(
        name=name,
        digest=_parse_text(entry, "digest", path),
        capabilities=parse_capabilities(entry),
        remote=has_host or name.endswith((":cloud", "-cloud")),
        details=_parse_details(entry),
    )


def _parse_details(entry: Any) -> ModelDetails:
    details = entry.get("details")

    def get_text(key: str) -> str:
        value = details.get(key) if isinstance(details, dict) else None
        return value if isinstance(value, str) and _is_encodable(value) else ""

    return ModelDetails(
        format=get_text("format"),
        family=get_text("family"),
        parameter_size=get_text("parameter_size"),
        quantization=get_text("quantization_level"),
    )


def _parse_text(entry: Any, key: str, path: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value or not _is_encodable(value):
        raise ScrapeError(Reason.PARSE, f"{path}: {key} is no text")
    return value


def _is_encodable(value: str) -> bool:
    """Whether a text can be encoded: JSON may hold half of a surrogate pair."""
    return value.encode(errors="ignore").decode() == value


def _parse_bytes(entry: Any, key: str, path: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ScrapeError(Reason.PARSE, f"{path}: {key} is no number of bytes")
    return float(value)


def _parse_length(entry: Any, path: str) -> int | None:
    value = entry.get("context_length")
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise ScrapeError(Reason.PARSE, f"{path}: context_length is no number of tokens")
    return value


def _parse_time(entry: Any, key: str, path: str) -> float | None:
    """Unix time of an RFC 3339 time, in the server's zone with up to nine decimals. Go's zero time stands for none."""
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
