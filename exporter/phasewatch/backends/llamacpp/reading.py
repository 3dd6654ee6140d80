"""What one llama-server process showed in one scrape, from its responses, live or recorded."""

import math
from dataclasses import dataclass, replace
from typing import Final

from phasewatch.analysis.samples import EngineSample
from phasewatch.backends.client import decode_page
from phasewatch.backends.llamacpp.metric_names import METRIC_NAMES
from phasewatch.backends.llamacpp.quirks import undo_json
from phasewatch.backends.llamacpp.slots import Slot, parse_slots
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.http import Response

_DISABLED: Final = frozenset({403, 404, 501})
"""Statuses of an endpoint that is switched off: 501 today, 404 in builds and forks that do not have it."""

_LOADING: Final = 503


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one process at one moment.

    Attributes:
        page: its figures on the page of metrics, as printed; None if it does not show the page.
        slots: its slots; None if it does not show them.
        asleep: whether it sleeps. Then nothing else was read, and it has neither page nor slots.
        resting: whether it was left alone so that it can fall asleep. Then it has neither.
    """

    page: EngineSample | None = None
    slots: tuple[Slot, ...] | None = None
    asleep: bool = False
    resting: bool = False


class ReadingParser:
    """Parses the responses of one process. Series are cached from page to page."""

    def __init__(self) -> None:
        self._reader = PageReader(METRIC_NAMES)

    def parse(self, metrics: Response, slots: Response | None) -> Reading:
        """Parse the responses of /metrics and /slots; `slots` is None if it was not requested.

        Raises:
            ScrapeError: one of them is no valid response, or both endpoints are switched off (`no_metrics`).
        """
        reading = Reading(self._parse_page(metrics), None if slots is None else self.parse_slots(slots))
        if reading.page is None and reading.slots is None:
            raise ScrapeError(
                Reason.NO_METRICS, "the server shows neither /metrics nor /slots: start it with --metrics and --slots"
            )
        return reading

    def parse_slots(self, response: Response) -> tuple[Slot, ...] | None:
        """The slots of a response of /slots; None if it is switched off.

        Raises:
            ScrapeError: it is no valid response.
        """
        if response.status in _DISABLED:
            return None
        refuse_loading(response)
        decode_page(replace(response, body=b""))  # for the errors of statuses
        return parse_slots(response.body)

    def _parse_page(self, response: Response) -> EngineSample | None:
        if response.status in _DISABLED:
            return None
        refuse_loading(response)
        page = self._reader.read(undo_json(decode_page(response)))
        if len(page.engines) != 1:
            raise ScrapeError(
                Reason.NO_METRICS,
                f"the page speaks of {len(page.engines)} models: is url a llama-server's own address?",
            )
        sample = next(iter(page.engines.values()))
        return replace(sample, created=_parse_start(response.start))


def refuse_loading(response: Response) -> None:
    """Name what a 503 means: all but /v1/models answer so while the model loads.

    Raises:
        ScrapeError: `http_status`.
    """
    if response.status == _LOADING:
        raise ScrapeError(Reason.HTTP_STATUS, "the server answered 503: it is loading its model")


def _parse_start(text: str | None) -> float | None:
    """The header `Process-Start-Time-Unix` as a number that changes when the process restarts. It is no Unix time but
    that of a clock which does not run backwards, in microseconds (b10434).
    """
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None
