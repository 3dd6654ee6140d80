"""llama.cpp's llama-server: its page of metrics and its slots, 2024 to b10434 and newer."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from phasewatch.backends.backend import Backend, Player, Recorder, ServerSign
from phasewatch.backends.llamacpp.advice import LLAMACPP_HANDBOOK
from phasewatch.backends.missing_ceiling import explain_missing_decode_ceiling, explain_missing_prefill_ceiling
from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target

if TYPE_CHECKING:
    from phasewatch.scrape.scraper import Scraper

# Scraper and client are imported when they are needed: `--help` does not wait for httpx.


def _create_scraper(target: Target, clock: Callable[[], float], wall_clock: Callable[[], float]) -> "Scraper":
    from phasewatch.backends.llamacpp.scraper import LlamacppScraper  # noqa: PLC0415

    return LlamacppScraper(target, clock, wall_clock)


def _create_recorder(target: Target) -> Recorder:
    from phasewatch.backends.llamacpp.recorder import LlamacppRecorder  # noqa: PLC0415

    return LlamacppRecorder(target)


def _create_player(target: Target, header: Mapping[str, Any]) -> Player:
    from phasewatch.backends.llamacpp.player import LlamacppPlayer  # noqa: PLC0415
    from phasewatch.backends.llamacpp.scraper import resolve_llamacpp_devices  # noqa: PLC0415

    device, _ = resolve_llamacpp_devices(target, ())
    return LlamacppPlayer(target, header, device)


def _is_props(value: Any) -> bool:
    from phasewatch.backends.llamacpp.facts import parse_props  # noqa: PLC0415

    return parse_props(value) is not None


LLAMACPP: Final = Backend(
    rules=BackendRules(
        name="llamacpp",
        unused_keys={
            "probe": "accepted, but not used: a llamacpp target is never sent a prompt",
            "ollama": "accepted, but not used: only an ollama target has children",
        },
    ),
    handbook=LLAMACPP_HANDBOOK,
    create_scraper=_create_scraper,
    explain_missing_decode_ceiling=explain_missing_decode_ceiling,
    explain_missing_prefill_ceiling=explain_missing_prefill_ceiling,
    create_recorder=_create_recorder,
    create_player=_create_player,
    played_kinds=frozenset({"scrape", "props"}),
    sign=ServerSign("/props", _is_props),
)
