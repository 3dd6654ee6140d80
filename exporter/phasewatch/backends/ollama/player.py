"""Runs a recording of an Ollama through the pipeline of `serve`: its models in memory, and their children."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from phasewatch.backends.client import get_text, parse_json
from phasewatch.backends.llamacpp.facts import ProcessFacts, Props
from phasewatch.backends.llamacpp.process import ProcessState, fold_failure, fold_reading, rename
from phasewatch.backends.llamacpp.reading import ReadingParser
from phasewatch.backends.ollama.inventory import (
    Inventory,
    ModelKey,
    StoredModel,
    choose_label,
    parse_capabilities,
    parse_layer,
    parse_loaded_models,
    parse_stored_models,
)
from phasewatch.backends.ollama.probes.scheduling import draw_pace
from phasewatch.backends.ollama.residency import observe_inventory
from phasewatch.backends.ollama.runner.children import Child, ChildIdentity, parse_child
from phasewatch.backends.ollama.runner.matching import match_children
from phasewatch.backends.ollama.snapshot import build_snapshot
from phasewatch.backends.ollama.state import ModelDescription, OllamaState, fold_success
from phasewatch.backends.ollama.state import fold_failure as fold_server_failure
from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.config.settings import Target
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.sources.gguf import read_show_costs
from phasewatch.scrape.http import HTTP_OK, Response
from phasewatch.scrape.recorded import RecordedScrape, parse_answer, parse_times
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import TargetSnapshot


@dataclass(frozen=True, slots=True)
class _RecordedChild:
    """A child on a line, and its answers."""

    child: Child
    metrics: Response | ScrapeError
    slots: Response | ScrapeError
    read_at: float


class OllamaPlayer:
    """One target whose scrapes come from a recording.

    Args:
        target: the name, the window and the configured figures of the server; its address is not contacted.
        header: the header of the recording, with the responses of /api/tags and /api/show.
        device: the configured devices; those of this machine are not those of the recording.
    """

    def __init__(self, target: Target, header: Mapping[str, Any], device: DeviceFacts) -> None:
        self._target = target
        self._stored = _parse_stored(header.get("tags"))
        self._state = OllamaState(
            version=get_text(header.get("version")),
            descriptions=_describe_models(header.get("show"), self._stored),
            device=device,
        )
        self._pace = draw_pace(target.probe, Random(0))  # noqa: S311  # nothing is probed
        self._played: dict[ModelKey, tuple[ChildIdentity, ReadingParser]] = {}

    def play(self, scrape: RecordedScrape, timing: ScrapeTiming) -> TargetSnapshot:
        """The snapshot after one more line.

        Raises:
            RecordingError: the line cannot be read.
        """
        version = self._state.version
        try:
            inventory = Inventory(parse_loaded_models(_read_loaded(scrape)), self._stored)
        except ScrapeError as error:
            self._state = replace(fold_server_failure(self._state, error, timing), version=version)
        else:
            descriptions = self._state.descriptions
            state = observe_inventory(self._state, inventory, timing.done, self._pace)
            state = replace(state, descriptions=descriptions, runners=self._play_children(scrape, inventory, timing))
            self._state = fold_success(state, version, timing)
        return build_snapshot(self._state, self._target, timing.done)

    def _play_children(
        self, scrape: RecordedScrape, inventory: Inventory, timing: ScrapeTiming
    ) -> Mapping[ModelKey, ProcessState]:
        recorded = {entry.child.identity: entry for entry in _parse_children(scrape.keys.get("children"))}
        layers = {digest: text.layer for digest, text in self._state.descriptions.items() if text.layer is not None}
        children = [entry.child for entry in recorded.values()]
        matching = match_children(children, inventory.loaded, layers)
        before = self._state.runners
        labels = {model.key: choose_label(model, inventory) for model in inventory.loaded}
        return {
            key: self._play_child(key, before.get(key), recorded[child.identity], labels[key], timing)
            for key, child in matching.children.items()
        }

    def _play_child(
        self,
        key: ModelKey,
        before: ProcessState | None,
        recorded: _RecordedChild,
        label: str,
        timing: ScrapeTiming,
    ) -> ProcessState:
        child = recorded.child
        state = before or ProcessState()
        slot_context = child.context // child.slots if child.context and child.slots else None
        facts = ProcessFacts(
            model=label,
            props=Props(slots=child.slots, context=slot_context, path=child.model_path),
            kv_unified=child.unified,
            queues_elsewhere=True,
        )
        identity, parser = self._played.get(key, (None, ReadingParser()))
        if identity != child.identity:  # another process runs the model
            state, parser = ProcessState(), ReadingParser()
        self._played[key] = child.identity, parser
        state = replace(rename(state, label) if state.facts.model != label else state, facts=facts)
        try:
            if isinstance(recorded.metrics, ScrapeError):
                raise recorded.metrics
            if isinstance(recorded.slots, ScrapeError):
                raise recorded.slots
            reading = parser.parse(recorded.metrics, recorded.slots)
        except ScrapeError as error:
            return fold_failure(state, error)
        return fold_reading(state, reading, replace(timing, done=recorded.read_at), self._target)


def _read_loaded(scrape: RecordedScrape) -> Any:
    """The answer of /api/ps on a line.

    Raises:
        ScrapeError: the scrape failed.
        RecordingError: the line has no such answer.
    """
    answer = scrape.outcome if isinstance(scrape.outcome, ScrapeError) else parse_answer(scrape.keys.get("ps"))
    if isinstance(answer, ScrapeError):
        raise answer
    if answer.status != HTTP_OK:
        raise ScrapeError(Reason.HTTP_STATUS, f"the server answered {answer.status} to /api/ps instead of 200")
    return parse_json(answer.body)


def _parse_stored(tags: Any) -> Mapping[str, StoredModel]:
    try:
        return parse_stored_models(tags)
    except ScrapeError:
        return {}


def _describe_models(show: Any, stored: Mapping[str, StoredModel]) -> Mapping[str, ModelDescription]:
    """What /api/show said of each model on disk, by digest."""
    shown = show if isinstance(show, Mapping) else {}
    return {
        model.digest: ModelDescription(
            parse_capabilities(shown[name]), read_show_costs(shown[name])[0], parse_layer(shown[name])
        )
        for name, model in stored.items()
        if name in shown
    }


def _parse_children(entries: Any) -> list[_RecordedChild]:
    """The children on a line.

    Raises:
        RecordingError: an entry is not one.
    """
    children: list[_RecordedChild] = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            raise RecordingError("expected an object for each child")
        pid, parent, argv = entry.get("pid"), entry.get("parent"), entry.get("argv")
        if not isinstance(pid, int) or not isinstance(parent, int) or not isinstance(argv, list):
            raise RecordingError("expected pid, parent and argv of each child")
        child = parse_child(pid, parent, 0, [str(argument) for argument in argv])
        if child is not None:
            time, took = parse_times(entry.get("slots") or {})
            metrics, slots = parse_answer(entry.get("metrics")), parse_answer(entry.get("slots"))
            children.append(_RecordedChild(child, metrics, slots, time + took))
    return children
