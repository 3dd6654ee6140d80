"""`phasewatch replay`: feeds a recording to the pipeline of `serve`."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from phasewatch import backends
from phasewatch.backends.backend import Backend, Player
from phasewatch.base.errors import RecordingError
from phasewatch.config.resolve import resolve_target
from phasewatch.config.settings import Target
from phasewatch.metrics.collector import build_target_families
from phasewatch.recordings.format import RecordingReader
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import TargetSnapshot

SHORTEST_STEP_SECONDS: Final = 0.001
"""Least time between the ends of two scrapes."""


def replay(recording: RecordingReader, target: Target) -> Iterator[tuple[float, TargetSnapshot]]:
    """Replay a recording: for each line that the backend plays, failed scrapes included, its `t` and the snapshot after
    it.

    Args:
        recording: the recording that plays the target.
        target: name, window and settings of the server; its address is not contacted.

    Raises:
        RecordingError: the recording cannot be read to its end, its kind of server cannot be replayed, or the target is
            of another kind.
    """
    backend, create_player = _find_player(recording)
    if target.backend != backend.name:
        raise RecordingError(
            f"{recording.path}:1: a recording with the engine {backend.name}, but the target {target.name!r} has the "
            f"backend {target.backend}: name a target of the same kind, or leave the configuration out"
        )
    player = create_player(target, recording.header.keys)
    wall_start = recording.header.wall_start
    done = -1.0
    for scrape in recording.read_scrapes(backend.played_kinds):
        # Other recorders may send a scrape before the previous one has ended.
        done = max(scrape.time + scrape.took, done + SHORTEST_STEP_SECONDS)
        timing = ScrapeTiming(scrape.time, done, None if wall_start is None else wall_start + done)
        with recording.locate(scrape.number):
            snapshot = player.play(scrape, timing)
        yield scrape.time, snapshot


def create_target(recording: RecordingReader, name: str) -> Target:
    """Create a target with default settings, for a recording to play.

    Raises:
        RecordingError: its kind of server cannot be replayed.
    """
    keys = {"name": "recording", "backend": _find_player(recording)[0].name, "url": "http://recording.invalid"}
    return replace(resolve_target(keys, backends.list_rules()), name=name)


def _find_player(recording: RecordingReader) -> tuple[Backend, Callable[[Target, Mapping[str, Any]], Player]]:
    """Find a recording's backend and the function that creates its player.

    Raises:
        RecordingError: its kind of server cannot be replayed.
    """
    kind = recording.header.backend
    players = {backend.name: (backend, backend.create_player) for backend in backends.BACKENDS if backend.create_player}
    for name, found in players.items():
        if name == kind:
            return found
    supported = ", ".join(players)
    raise RecordingError(f"{recording.path}:1: a recording of {kind!r}; this version replays {supported} only")


def format_json(recording: RecordingReader, target: Target) -> Iterator[str]:
    """Format each line played as a JSON object: `{"t": seconds, "metrics": [{"name", "labels", "value"}, ...]}`."""
    for time, snapshot in replay(recording, target):
        metrics = [
            {"name": sample.name, "labels": sample.labels, "value": sample.value}
            for family in build_target_families([snapshot])
            for sample in family.samples
        ]
        yield json.dumps({"t": time, "metrics": metrics})


def format_openmetrics(recording: RecordingReader, target: Target) -> str:
    """Format a recording as one OpenMetrics text with timestamps, for `promtool tsdb create-blocks-from openmetrics`.

    Without a start time in the header, timestamps count from the Unix epoch.
    """
    start = recording.header.wall_start or 0.0
    families: dict[str, Family] = {}
    for time, snapshot in replay(recording, target):
        for family in build_target_families([snapshot]):
            merged = families.setdefault(family.name, Family(family.name, family.documentation, family.type))
            merged.samples += [Sample(s.name, s.labels, s.value, start + time) for s in family.samples]
    registry = CollectorRegistry()
    registry.register(_FamilyCollector(list(families.values())))
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    text: bytes = encode(registry)
    return text.decode()


class _FamilyCollector(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families
