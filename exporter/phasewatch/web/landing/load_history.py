"""The last minutes of every engine's queue and cache, for the charts of the landing page.

Kept apart from the windows from which metrics are computed: those hold what formulas need, this what eyes need. It is
fed from snapshots, so a chart shows what /metrics has shown, peaks included, and a hole where that showed nothing.
"""

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import Final

from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.snapshot.target import TargetSnapshot

HISTORY_SPAN_SECONDS: Final = 600
"""How far back charts go."""

SLOT_SECONDS: Final = 2
"""Seconds that one point of a chart stands for; it shows the highest value that was seen in them."""

HISTORY_SLOTS: Final = HISTORY_SPAN_SECONDS // SLOT_SECONDS

_NEVER_SLOT: Final = -HISTORY_SLOTS


@dataclass(frozen=True, slots=True)
class Track:
    """The last minutes of one engine, oldest first: a value for each slot, NaN where nothing was known."""

    running: Sequence[float]
    waiting: Sequence[float]
    kv_cache: Sequence[float]


class LoadHistory:
    """What engines held over the last minutes. It is fed on the event loop, and may be read on any thread.

    Its memory is bounded: three numbers for each slot and engine, and only of engines seen within
    `HISTORY_SPAN_SECONDS`.
    """

    def __init__(self) -> None:
        self._rings: dict[tuple[str, EngineKey], _Ring] = {}
        self._looked = -inf
        self._shown: frozenset[tuple[str, EngineKey]] = frozenset()

    def record(self, targets: Sequence[TargetSnapshot], now: float) -> None:
        """Take in what is shown now.

        Args:
            targets: the newest snapshots.
            now: monotonic seconds, not before those of the last call.
        """
        slot = int(now // SLOT_SECONDS)
        before = self._shown if now - self._looked < 2 * SLOT_SECONDS else frozenset()
        loads = {
            (target.name, engine.key): engine.load
            for target in targets
            for engine in target.engines
            if _has_values(engine.load)
        }
        for key, load in loads.items():
            ring = self._rings.setdefault(key, _Ring())
            if key in before and ring.newest == slot - 2:  # a late look has missed a slot; the target has not
                ring.bridge(slot - 1, load)
            ring.put(slot, load)
        self._looked, self._shown = now, frozenset(loads)
        self._rings = {key: ring for key, ring in self._rings.items() if ring.newest > slot - HISTORY_SLOTS}

    def keep(self, targets: Collection[str]) -> None:
        """Forget every target but these."""
        self._rings = {key: ring for key, ring in self._rings.items() if key[0] in targets}

    def track(self, target: str, key: EngineKey, now: float) -> Track | None:
        """The last minutes of an engine; None if nothing is known of them.

        Args:
            target: its target's name.
            key: the engine.
            now: monotonic seconds.
        """
        ring = self._rings.get((target, key))
        return None if ring is None else ring.track(int(now // SLOT_SECONDS))


def _has_values(load: Load) -> bool:
    """Whether there is anything to keep: an Ollama tells nothing of its queue."""
    return any(value is not None for value in (load.requests_running, load.requests_waiting, load.kv_cache_usage_ratio))


class _Ring:
    __slots__ = ("_kv_cache", "_running", "_waiting", "newest")

    def __init__(self) -> None:
        self.newest = _NEVER_SLOT
        self._running = _create_series()
        self._waiting = _create_series()
        self._kv_cache = _create_series()

    def put(self, slot: int, load: Load) -> None:
        for skipped in range(max(self.newest + 1, slot - HISTORY_SLOTS + 1), slot + 1):
            for series in self._series():
                series[skipped % HISTORY_SLOTS] = nan
        self.newest = slot
        _raise_value(self._running, slot, load.requests_running)
        _raise_value(self._waiting, slot, load.requests_waiting)
        _raise_value(self._kv_cache, slot, load.kv_cache_usage_ratio)

    def bridge(self, slot: int, load: Load) -> None:
        """Put what is known now into the slot before; what was unknown until now stays a gap."""
        self.put(slot, load)
        for series in self._series():
            if isnan(series[(slot - 1) % HISTORY_SLOTS]):
                series[slot % HISTORY_SLOTS] = nan

    def track(self, slot: int) -> Track:
        slots = range(slot - HISTORY_SLOTS + 1, slot + 1)
        known = range(self.newest - HISTORY_SLOTS + 1, self.newest + 1)
        return Track(
            *([series[at % HISTORY_SLOTS] if at in known else nan for at in slots] for series in self._series())
        )

    def _series(self) -> "tuple[array[float], ...]":
        return self._running, self._waiting, self._kv_cache


def _create_series() -> "array[float]":
    return array("d", [nan]) * HISTORY_SLOTS


def _raise_value(series: "array[float]", slot: int, value: float | None) -> None:
    """Keep the highest value of a slot; what no chart can show is no value."""
    if value is not None and isfinite(value):
        kept = series[slot % HISTORY_SLOTS]
        series[slot % HISTORY_SLOTS] = max(value, kept) if isfinite(kept) else value
