"""Runs a recording of a server with a page of metrics through the pipeline of `serve`."""

from dataclasses import replace

from phasewatch.analysis.samples import Page
from phasewatch.backends.equipment import Equipment
from phasewatch.backends.metric_table import MetricTable
from phasewatch.backends.page_client import parse_page
from phasewatch.backends.page_state import PageRules, PageState, build_snapshot, fold_failure, fold_page
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.base.errors import RecordingError, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.scrape.recorded import RecordedScrape
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot


class PagePlayer:
    """One target whose scrapes come from a recording.

    Args:
        target: the name, the window and the configured figures of the server; its address is not contacted.
        facts: the recorded server's facts about itself. They are kept over restarts: a recording has only one set.
        table: the metrics to read.
        rules: the backend's rules for their counters.
        device: the configured devices; those of this machine are not those of the recording.
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

    def play(self, scrape: RecordedScrape, timing: ScrapeTiming) -> TargetSnapshot:
        """The snapshot after one more scrape.

        Raises:
            RecordingError: the line has neither a page nor an error.
        """
        try:
            page = self._parse(scrape)
        except ScrapeError as error:
            self._state = fold_failure(self._state, error, timing)
        else:
            before = replace(self._state, facts=self._facts)
            self._state = replace(fold_page(before, page, timing, self._target, self._rules), facts=self._facts)
        return build_snapshot(self._state, self._target)

    def _parse(self, scrape: RecordedScrape) -> Page:
        if isinstance(scrape.outcome, ScrapeError):
            raise scrape.outcome
        if scrape.outcome is None:
            raise RecordingError("expected an error, or a status and a body")
        return parse_page(self._reader, scrape.outcome)
