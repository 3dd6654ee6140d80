"""A kind of server that exists for tests only: five small modules, as a new backend has them, and its `Backend`.

Its page has nothing but four plain counters, as that of a server without histograms.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from phasewatch.analysis.advice.handbook import CALM_ADVICE, Handbook
from phasewatch.analysis.advice.remedy import Advice
from phasewatch.backends.backend import Backend, Player, Recorder
from phasewatch.backends.missing_ceiling import explain_missing_decode_ceiling, explain_missing_prefill_ceiling
from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target

if TYPE_CHECKING:
    from phasewatch.scrape.scraper import Scraper


def _create_scraper(target: Target, clock: Callable[[], float], wall_clock: Callable[[], float]) -> "Scraper":
    from tests.support.plain_counters.scraper import PlainCountersScraper  # noqa: PLC0415

    return PlainCountersScraper(target, clock, wall_clock)


def _create_recorder(target: Target) -> Recorder:
    from tests.support.plain_counters.client import PlainCountersClient  # noqa: PLC0415

    return PlainCountersClient(target)


def _create_player(target: Target, header: Mapping[str, Any]) -> Player:
    from tests.support.plain_counters.scraper import create_player  # noqa: PLC0415

    return create_player(target, header)


PLAIN_COUNTERS: Final = Backend(
    rules=BackendRules(
        name="plain_counters",
        unused_keys={"probe": "accepted, but not used: a plain_counters target is never sent a prompt"},
        refused_keys={"kv_cache_dtype": "a plain_counters target has no KV cache"},
    ),
    handbook=Handbook(CALM_ADVICE, Advice("The stream is slow", "Tokens come slowly.")),
    create_scraper=_create_scraper,
    explain_missing_decode_ceiling=explain_missing_decode_ceiling,
    explain_missing_prefill_ceiling=explain_missing_prefill_ceiling,
    create_recorder=_create_recorder,
    create_player=_create_player,
)
