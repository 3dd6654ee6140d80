"""The interface of a kind of server to the rest of the program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from phasewatch.analysis.advice.handbook import Handbook
from phasewatch.config.backend_rules import BackendRules
from phasewatch.config.settings import Target
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.target import TargetSnapshot

if TYPE_CHECKING:  # `check` and `--help` do not import httpx
    from phasewatch.scrape.recorded import FetchedLine, RecordedScrape
    from phasewatch.scrape.scraper import Scraper

Clock = Callable[[], float]


class Recorder(Protocol):
    """Requests from a server what a recording stores."""

    async def fetch_header(self) -> Mapping[str, object]:
        """Request the server's facts about itself, the backend's own keys of the header: those without an answer are
        empty or missing.
        """

    async def fetch_line(self, clock: Clock) -> "FetchedLine":
        """Request all that belongs into one line. A failed request is part of the line too, so nothing is raised.

        Args:
            clock: seconds since the start of the recording.
        """

    def check(self, line: "FetchedLine") -> None:
        """Check that an answered line can be used: that it shows figures of a server of this kind.

        Raises:
            ScrapeError: it cannot.
        """

    async def close(self) -> None:
        """Close the connections."""


class Player(Protocol):
    """Runs the scrapes of a recording through the pipeline of `serve`."""

    def play(self, scrape: "RecordedScrape", timing: ScrapeTiming) -> TargetSnapshot:
        """The snapshot after one more line.

        Raises:
            RecordingError: the line lacks something or cannot be read. The message does not name the place.
        """


@dataclass(frozen=True)
class ServerSign:
    """What tells servers of one kind from others.

    Attributes:
        path: path below the base address, harmless to ask for.
        matches: whether the JSON value that was found there is that of such a server.
    """

    path: str
    matches: Callable[[Any], bool]


@dataclass(frozen=True)
class Backend:
    """One kind of server.

    Attributes:
        rules: its rules of the configuration, with its name.
        handbook: the advice on its states, and on what its users complain about.
        create_scraper: creates the scraper of a target, with a monotonic and a Unix clock.
        explain_missing_decode_ceiling: says why an engine has no decode ceiling, and which key would provide it.
        explain_missing_prefill_ceiling: the same for prefill.
        create_recorder: creates the recorder of a target; None for servers without a page to record.
        create_player: creates the player of a recording, from a target and the header; None without recordings.
        played_kinds: kinds of lines that its player takes, each of which gets a snapshot; others are skipped.
        sign: by which `record` recognises a server of which only the address is known; None: by nothing.
    """

    rules: BackendRules
    handbook: Handbook
    create_scraper: Callable[[Target, Clock, Clock], "Scraper"]
    explain_missing_decode_ceiling: Callable[[EngineSnapshot, ModelSnapshot | None], str]
    explain_missing_prefill_ceiling: Callable[[EngineSnapshot], str]
    create_recorder: Callable[[Target], Recorder] | None = None
    create_player: Callable[[Target, Mapping[str, Any]], Player] | None = None
    played_kinds: frozenset[str] = frozenset({"scrape"})
    sign: ServerSign | None = None

    @property
    def name(self) -> str:
        """The value of the key `backend` and of the `backend` label."""
        return self.rules.name
