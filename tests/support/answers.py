"""Answers of a server as a recorder gets them."""

import asyncio

from phasewatch.base.errors import ScrapeError
from phasewatch.scrape.http import Response
from phasewatch.scrape.recorded import FetchedLine, record_answer


def fetched(time: float, took: float, outcome: Response | ScrapeError) -> FetchedLine:
    """A line with one answer: sent at `time`, complete or failed `took` seconds later."""

    async def request() -> Response:
        if isinstance(outcome, ScrapeError):
            raise outcome
        return outcome

    ticks = iter((time, time + took))
    return FetchedLine(*asyncio.run(record_answer(request(), lambda: next(ticks))))
