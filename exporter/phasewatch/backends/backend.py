"""What the rest of the program asks of a kind of server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot

if TYPE_CHECKING:  # `check` and `--help` do without httpx
    from phasewatch.base.errors import ScrapeError
    from phasewatch.scrape.http import Response
    from phasewatch.scrape.scraper import Scraper

Clock = Callable[[], float]


class Recorder(Protocol):
    """Asks a server for what a recording keeps."""

    async def fetch_facts(self) -> ServerFacts:
        """What the server says of itself, for the header."""

    async def fetch(self) -> "Response":
        """The page of one scrape.

        Raises:
            ScrapeError: it could not be had.
        """

    def parse_page(self, response: "Response") -> object:
        """Whether the page can be used.

        Raises:
            ScrapeError: it cannot.
        """

    async def close(self) -> None:
        """Close the connections."""


class Player(ABC):
    """Runs the pipeline of `serve` over the scrapes of a recording."""

    @abstractmethod
    def play(self, scrape: "Response | ScrapeError", timing: ScrapeTiming) -> TargetSnapshot:
        """What is shown after one more scrape, whether it got a response or failed."""


@dataclass(frozen=True)
class Backend:
    """One kind of server.

    Attributes:
        rules: for the configuration, with the name.
        create_scraper: a scraper of a target, with a monotonic and a Unix clock.
        explain_missing_decode_ceiling: words for why an engine has no decode ceiling, and which key would give it one.
        explain_missing_prefill_ceiling: the same for prefill.
        create_recorder: asks a target for what a recording keeps; None where there are no pages to record.
        create_player: plays a target from the header of a recording; None where there are no recordings.
    """

    rules: BackendRules
    create_scraper: Callable[[Target, Clock, Clock], "Scraper"]
    explain_missing_decode_ceiling: Callable[[EngineSnapshot, ModelSnapshot | None], str]
    explain_missing_prefill_ceiling: Callable[[EngineSnapshot], str]
    create_recorder: Callable[[Target], Recorder] | None = None
    create_player: Callable[[Target, Mapping[str, Any]], Player] | None = None

    @property
    def name(self) -> str:
        """The value of the key `backend`, and of the label."""
        return self.rules.name
