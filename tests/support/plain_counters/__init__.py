"""A kind of server that exists for tests only: five small modules, as a new backend has them, and its `Backend`.

Its page has nothing but four plain counters, as that of a server without histograms.
"""

from typing import Final

from phasewatch.backends.backend import Backend
from phasewatch.backends.missing_ceiling import explain_missing_decode_ceiling, explain_missing_prefill_ceiling
from phasewatch.config.backend_rules import BackendRules
from tests.support.plain_counters.client import PlainCountersClient
from tests.support.plain_counters.scraper import PlainCountersScraper, create_player

PLAIN_COUNTERS: Final = Backend(
    rules=BackendRules(
        name="plain_counters",
        unused_keys={"probe": "accepted, but not used: a plain_counters target is never sent a prompt"},
        refused_keys={"kv_cache_dtype": "a plain_counters target has no KV cache"},
    ),
    create_scraper=PlainCountersScraper,
    explain_missing_decode_ceiling=explain_missing_decode_ceiling,
    explain_missing_prefill_ceiling=explain_missing_prefill_ceiling,
    create_recorder=PlainCountersClient,
    create_player=create_player,
)
