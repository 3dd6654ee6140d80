"""vLLM: its page of metrics, 0.8 to 0.33."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from phasewatch.backends.backend import Backend, Player, Recorder
from phasewatch.backends.missing_ceiling import explain_missing_decode_ceiling, explain_missing_prefill_ceiling
from phasewatch.backends.vllm.handbook import VLLM_HANDBOOK
from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target

if TYPE_CHECKING:
    from phasewatch.scrape.scraper import Scraper

# Scraper and client are imported when they are needed: `--help` does not wait for httpx.


def _create_scraper(target: Target, clock: Callable[[], float], wall_clock: Callable[[], float]) -> "Scraper":
    from phasewatch.backends.vllm.scraper import VllmScraper  # noqa: PLC0415

    return VllmScraper(target, clock, wall_clock)


def _create_recorder(target: Target) -> Recorder:
    from phasewatch.backends.vllm.client import VllmClient  # noqa: PLC0415

    return VllmClient(target)


def _create_player(target: Target, header: Mapping[str, Any]) -> Player:
    from phasewatch.backends.vllm.scraper import create_player  # noqa: PLC0415

    return create_player(target, header)


VLLM: Final = Backend(
    rules=BackendRules(
        name="vllm",
        default_url="http://127.0.0.1:8000",
        unused_keys={
            "probe": "accepted, but not used: a vllm target is never sent a prompt",
            "ollama": "accepted, but not used: only an ollama target has children",
        },
    ),
    handbook=VLLM_HANDBOOK,
    create_scraper=_create_scraper,
    explain_missing_decode_ceiling=explain_missing_decode_ceiling,
    explain_missing_prefill_ceiling=explain_missing_prefill_ceiling,
    create_recorder=_create_recorder,
    create_player=_create_player,
)
