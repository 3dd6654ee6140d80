"""Pages of metrics and recordings for the tests."""

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from phasewatch.config.settings import ServerSettings
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import create_target, format_json
from tests.support.paths import RECORDINGS

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and sorted labels."""

Metrics = dict[Series, float]


def bodies(name: str) -> Iterator[tuple[float, str]]:
    """Time and body of each good scrape of a recording."""
    with lzma.open(RECORDINGS / f"{name}.jsonl.xz", "rt") as file:
        for line in file:
            document = json.loads(line)
            if document.get("status") == 200:
                yield document["t"], document["body"]


def body_at(name: str, time: float) -> str:
    """The first body of a recording at or after a time."""
    return next(body for t, body in bodies(name) if t >= time)


def replayed(
    name: str, *, folder: Path = RECORDINGS, window: float = 60.0, api_servers: int | None = None
) -> Iterator[tuple[float, Metrics]]:
    """What /metrics shows after each scrape of a recording."""
    recording = RecordingReader(folder / f"{name}.jsonl.xz")
    target = replace(
        create_target(recording, "recording"), window=window, server=ServerSettings(api_servers=api_servers)
    )
    series: dict[Series, Series] = {}  # one object for each series, so that whole replays can be kept
    for line in format_json(recording, target):
        document = json.loads(line)
        metrics = {}
        for metric in document["metrics"]:
            key = (metric["name"], tuple(sorted(metric["labels"].items())))
            metrics[series.setdefault(key, key)] = metric["value"]
        yield document["t"], metrics


def values(metrics: Metrics, name: str, **labels: str) -> list[float]:
    """Values of all series of a metric that carry the labels."""
    return [
        value for (found, pairs), value in metrics.items() if found == name and labels.items() <= dict(pairs).items()
    ]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The value of the only series, None if there is none."""
    matching = values(metrics, name, **labels)
    assert len(matching) <= 1, (name, labels, matching)
    return matching[0] if matching else None


def page(samples: Mapping[str, float], *, prefix: str = "vllm:", labels: str = 'engine="0",model_name="m"') -> str:
    """A small page: `{"generation_tokens_total": 5}`, or with labels of its own `{'x_bucket{le="1.0"}': 2}`."""
    return "".join(f"{_line(name, prefix, labels)} {number}\n" for name, number in samples.items())


def _line(name: str, prefix: str, labels: str) -> str:
    bare, brace, own = name.partition("{")
    return f"{prefix}{bare}{{{labels},{own}" if brace else f"{prefix}{bare}{{{labels}}}"


def histogram(name: str, edges: Iterable[float], counts: Iterable[float], total: float) -> dict[str, float]:
    """Samples of a cumulative histogram for `page`; `counts` are per bucket, the last one above every edge."""
    samples: dict[str, float] = {}
    seen = 0.0
    for edge, count in zip([*map(str, edges), "+Inf"], counts, strict=True):
        seen += count
        samples[f'{name}_bucket{{le="{edge}"}}'] = seen
    return {**samples, f"{name}_sum": total, f"{name}_count": seen}
