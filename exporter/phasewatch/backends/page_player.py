"""Plays a recording of a server with a page of metrics through the pipeline of `serve`."""

from dataclasses import replace

from phasewatch.analysis.samples import Page
from phasewatch.backends.backend import Player
from phasewatch.backends.equipment import Equipment
from phasewatch.backends.metric_table import MetricTable
from phasewatch.backends.page_client import parse_page
from phasewatch.backends.page_state import PageRules, PageState, build_snapshot, fold_failure, fold_page
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.base.errors import ScrapeError
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.scrape.http import Response
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot


class PagePlayer(Player):
    """One target that a recording plays.

    Args:
        target: gives the name, the window and what is known of the server; its address is not contacted.
        facts: what the recorded server said of itself. Live it is asked again after a restart; a recording has one set.
        table: the metrics to read.
        rules: what the backend knows about them.
        device: from the configuration: this machine's devices are not those of the recording.
    """

    def __init__(
        self, target: Target, facts: ServerFacts, *, table: MetricTable, rules: PageRules, device: DeviceFacts
    ) -> None:
        path = target.model.path
        self._target = target
        self._facts = facts
        self._rules = rules
        self._reader = PageReader(table)
        self._state = PageState(equipment=Equipment(device, None if path is None else read_folder_costs(path)[0]))

    def play(self, scrape: Response | ScrapeError, timing: ScrapeTiming) -> TargetSnapshot:
        """What is shown after one more scrape."""
        try:
            page = self._parse(scrape)
        except ScrapeError as error:
            self._state = fold_failure(self._state, error, timing)
        else:
            known = replace(self._state, facts=self._facts)
            self._state = replace(fold_page(known, page, timing, self._target, self._rules), facts=self._facts)
        return build_snapshot(self._state, self._target)

    def _parse(self, scrape: Response | ScrapeError) -> Page:
        if isinstance(scrape, ScrapeError):
            raise scrape
        return parse_page(self._reader, scrape)
