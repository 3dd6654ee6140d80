"""`phasewatch replay`: runs a recording through the pipeline of `serve`."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from phasewatch.backends.equipment import Equipment, resolve_devices
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.client import parse_page
from phasewatch.backends.vllm.state import TargetState, build_snapshot, fold_failure, fold_page
from phasewatch.base.errors import ScrapeError
from phasewatch.config.resolve import Target
from phasewatch.metrics.collector import build_target_families
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.recordings.format import RecordingReader
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import TargetSnapshot

SHORTEST_STEP: Final = 0.001


def replay(recording: RecordingReader, target: Target) -> Iterator[tuple[float, TargetSnapshot]]:
    """What is known after each scrape of a recording, with its time `t`, failed scrapes included.

    Args:
        recording: plays the target.
        target: gives the name, the window and what is known of the server; its address is not contacted.

    Raises:
        RecordingError: the recording cannot be read to its end.
    """
    reader = PageReader()
    facts = recording.header.facts
    wall_start = recording.header.wall_start
    state = TargetState(equipment=_equipment(target))
    done = -1.0
    for scrape in recording.scrapes():
        # Other recorders may send a scrape before the one before has ended.
        done = max(scrape.time + scrape.took, done + SHORTEST_STEP)
        timing = ScrapeTiming(scrape.time, done, None if wall_start is None else wall_start + done)
        try:
            if scrape.error is not None:
                raise scrape.error
            page = parse_page(reader, scrape.answer) if scrape.answer else None
        except ScrapeError as error:
            state = fold_failure(state, error, timing)
        else:
            if page is not None:
                # A recording knows one set of facts, those of its header; live they are asked for after a restart.
                state = replace(fold_page(state, page, timing, target), facts=facts)
        yield scrape.time, build_snapshot(state, target)


def _equipment(target: Target) -> Equipment:
    """What the configuration tells: this machine's devices and files are not those of the recording."""
    device, _ = resolve_devices(target, ())
    path = target.model.path
    return Equipment(device, None if path is None else read_folder_costs(path)[0])


def as_json(recording: RecordingReader, target: Target) -> Iterator[str]:
    """One JSON object per scrape: `{"t": seconds, "metrics": [{"name", "labels", "value"}, ...]}`."""
    for time, shown in replay(recording, target):
        metrics = [
            {"name": sample.name, "labels": sample.labels, "value": sample.value}
            for family in build_target_families([shown])
            for sample in family.samples
        ]
        yield json.dumps({"t": time, "metrics": metrics})


def as_openmetrics(recording: RecordingReader, target: Target) -> str:
    """One OpenMetrics text with timestamps, for `promtool tsdb create-blocks-from openmetrics`.

    Without a start time in the header the recording begins at the Unix epoch.
    """
    start = recording.header.wall_start or 0.0
    families: dict[str, Family] = {}
    for time, shown in replay(recording, target):
        for family in build_target_families([shown]):
            whole = families.setdefault(family.name, Family(family.name, family.documentation, family.type))
            whole.samples += [Sample(s.name, s.labels, s.value, start + time) for s in family.samples]
    registry = CollectorRegistry()
    registry.register(_Families(list(families.values())))
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    text: bytes = encode(registry)
    return text.decode()


class _Families(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families
