"""Runs a recording of a llama-server through the pipeline of `serve`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from phasewatch.backends.llamacpp.facts import ProcessFacts, Props, parse_model, parse_props
from phasewatch.backends.llamacpp.process import (
    ProcessState,
    excuses_silence,
    fold_failure,
    fold_reading,
)
from phasewatch.backends.llamacpp.reading import Reading, ReadingParser
from phasewatch.backends.llamacpp.state import LlamacppState, build_snapshot
from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.scrape.http import HTTP_OK, Response
from phasewatch.scrape.recorded import RecordedScrape, parse_answer, parse_times
from phasewatch.snapshot.health import ScrapeTiming, record_failure, record_late, record_success
from phasewatch.snapshot.target import TargetSnapshot

PROPS: Final = "props"
"""Kind of the lines at whose moment nothing but /props was read."""


class LlamacppPlayer:
    """One target whose scrapes come from a recording.

    Args:
        target: the name, the window and the configured figures of the server; its address is not contacted.
        header: the header of the recording, with the responses of /props and /v1/models.
        device: the configured devices; those of this machine are not those of the recording.
    """

    def __init__(self, target: Target, header: Mapping[str, Any], device: DeviceFacts) -> None:
        path = target.model.path
        self._target = target
        self._parser = ReadingParser()
        facts = replace(read_header_facts(header), kv_unified=target.server.kv_unified)
        process = ProcessState(facts=facts)
        self._state = LlamacppState(
            processes=(process,), device=device, configured=None if path is None else read_folder_costs(path)[0]
        )

    def play(self, scrape: RecordedScrape, timing: ScrapeTiming) -> TargetSnapshot:
        """The snapshot after one more line.

        Raises:
            RecordingError: the line cannot be read.
        """
        process, health = self._state.processes[0], self._state.health
        try:
            timing = replace(timing, done=max(timing.done, _find_end(scrape)))
            process = fold_reading(process, self._read(scrape), timing, self._target)
            health = record_success(health, timing)
        except ScrapeError as error:
            process = fold_failure(process, error)
            alive = _answers_health(scrape.keys.get("health"))
            late = error.reason is Reason.TIMEOUT and excuses_silence(process, timing.done, alive=alive)
            health = record_late(health, error, timing) if late else record_failure(health, error, timing)
        self._state = replace(self._state, processes=(process,), health=health)
        return build_snapshot(self._state, self._target, timing.done)

    def _read(self, scrape: RecordedScrape) -> Reading:
        if isinstance(scrape.outcome, ScrapeError):
            raise scrape.outcome
        if scrape.outcome is None:
            raise RecordingError("expected an error, or a status and a body")
        if scrape.kind == PROPS:
            asleep = scrape.outcome.body == b"true"
            return Reading(asleep=asleep, resting=not asleep)
        slots = parse_answer(scrape.keys["slots"]) if "slots" in scrape.keys else None
        if isinstance(slots, ScrapeError):
            raise slots
        return self._parser.parse(scrape.outcome, slots)


def read_header_facts(header: Mapping[str, Any]) -> ProcessFacts:
    """What the header of a recording says about its process."""
    props = parse_props(header.get("props")) or Props()
    model = parse_model(header.get("models"))
    return ProcessFacts(
        model=model.name if model else props.model or "",
        props=replace(props, asleep=None),
        weight_bytes=model.weight_bytes if model else None,
    )


def _find_end(scrape: RecordedScrape) -> float:
    """Seconds at which the last answer of a line was complete. The slots are read after the page."""
    slots = scrape.keys.get("slots")
    time, took = parse_times(slots) if isinstance(slots, Mapping) else (scrape.time, scrape.took)
    return time + took


def _answers_health(health: Any) -> bool:
    """Whether a recorded answer of /health, if there is one, says that the server is alive."""
    answer: Response | ScrapeError | None = None
    if isinstance(health, Mapping):
        answer = parse_answer(health)
    return isinstance(answer, Response) and answer.status == HTTP_OK
