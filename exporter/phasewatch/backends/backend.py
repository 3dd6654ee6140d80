"""The interface of a kind of server to the rest of the program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot

if TYPE_CHECKING:  # `check` and `--help` do not import httpx
    from phasewatch.base.errors import ScrapeError
    from phasewatch.scrape.http import Response
    from phasewatch.scrape.scraper import Scraper

Clock = Callable[[], float]


class Recorder(Protocol):
    """Requests from a server what a recording stores."""

    async def fetch_facts(self) -> ServerFacts:
        """Request the server's facts about itself, for the header."""

    async def fetch(self) -> "Response":
        """Request the page of one scrape.

        Raises:
            ScrapeError: there was no complete response.
        """

    def parse_page(self, response: "Response") -> object:
        """Check that a response is a usable page.

        Raises:
            ScrapeError: it is not.
        """

    async def close(self) -> None:
        """Close the connections."""


class Player(Protocol):
    """Runs the scrapes of a recording through the pipeline of `serve`."""

    def play(self, scrape: "Response | ScrapeError", timing: ScrapeTiming) -> TargetSnapshot:
        """The snapshot after one more scrape, which got a response or failed."""


@dataclass(frozen=True)
class Backend:
    """One kind of server.

    Attributes:
        rules: its rules of the configuration, with its name.
        create_scraper: creates the scraper of a target, with a monotonic and a Unix clock.
        explain_missing_decode_ceiling: says why an engine has no decode ceiling, and which key would provide it.
        explain_missing_prefill_ceiling: the same for prefill.
        create_recorder: creates the recorder of a target; None for servers without a page to record.
        create_player: creates the player of a recording, from a target and the header; None without recordings.
    """

    rules: BackendRules
    create_scraper: Callable[[Target, Clock, Clock], "Scraper"]
    explain_missing_decode_ceiling: Callable[[EngineSnapshot, ModelSnapshot | None], str]
    explain_missing_prefill_ceiling: Callable[[EngineSnapshot], str]
    create_recorder: Callable[[Target], Recorder] | None = None
    create_player: Callable[[Target, Mapping[str, Any]], Player] | None = None

    @property
    def name(self) -> str:
        """The value of the key `backend` and of the `backend` label."""
        return self.rules.name
