"""Ollama: its inventory, and harmless probes of the models that it has in memory."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from phasewatch.backends.backend import Backend, Player, Recorder, ServerSign
from phasewatch.backends.missing_ceiling import knows_weights
from phasewatch.backends.ollama.advice import OLLAMA_HANDBOOK
from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot

if TYPE_CHECKING:
    from phasewatch.scrape.scraper import Scraper

_REPORTED_KEYS: Final = ("path", "weights", "weights_read", "kv_cache_bytes_per_token", "active_parameters")


def _create_scraper(target: Target, clock: Callable[[], float], wall_clock: Callable[[], float]) -> "Scraper":
    from phasewatch.backends.ollama.scraper import OllamaScraper  # noqa: PLC0415  # `--help` does without httpx

    return OllamaScraper(target, clock, wall_clock)


def _create_recorder(target: Target) -> Recorder:
    from phasewatch.backends.ollama.recorder import OllamaRecorder  # noqa: PLC0415

    return OllamaRecorder(target)


def _create_player(target: Target, header: Mapping[str, Any]) -> Player:
    from phasewatch.backends.ollama.devices import resolve_ollama_devices  # noqa: PLC0415
    from phasewatch.backends.ollama.player import OllamaPlayer  # noqa: PLC0415

    device, _ = resolve_ollama_devices(target, ())
    return OllamaPlayer(target, header, device)


def _explain_missing_decode_ceiling(engine: EngineSnapshot, model: ModelSnapshot | None) -> str:
    """Ollama describes its models itself; a part in the host's memory needs the bandwidth of that."""
    device = bool(engine.ceiling.device_memory_bandwidth_bytes_per_second)
    share = model.gpu_ratio if model else None
    if share is not None and share < 1 and (device or share <= 0):
        return "no ceiling: set `device.cpu_memory_bandwidth` in the configuration"
    if device or not knows_weights(engine.ceiling):
        return "no ceiling is known for this model"
    return "no ceiling: set `device` in the configuration"


def _explain_missing_prefill_ceiling(_: EngineSnapshot) -> str:
    return "an Ollama's prefill has no ceiling"


def _is_release(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("version"), str)


OLLAMA: Final = Backend(
    rules=BackendRules(
        name="ollama",
        default_url="http://127.0.0.1:11434",
        # /api/ps locks the scheduler (0.32.4), and before read it unguarded.
        least_interval=5.0,
        interval_note="each look at an Ollama holds up its scheduler",
        any_window=True,  # its children are read every second
        unused_keys={
            "server": "accepted, but not used: an ollama target has no such settings",
            "saturation": "used only to tell when a model is stuck: Ollama does not show what waits",
            "metrics_path": "accepted, but not used: Ollama has no page of metrics",
        },
        refused_keys=dict.fromkeys(_REPORTED_KEYS, "an ollama target tells this itself, for each of its models"),
    ),
    handbook=OLLAMA_HANDBOOK,
    create_scraper=_create_scraper,
    create_recorder=_create_recorder,
    create_player=_create_player,
    explain_missing_decode_ceiling=_explain_missing_decode_ceiling,
    explain_missing_prefill_ceiling=_explain_missing_prefill_ceiling,
    sign=ServerSign("/api/version", _is_release),
)
