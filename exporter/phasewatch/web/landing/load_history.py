"""The last minutes of every engine's queue and KV cache, for the charts of the landing page.

Separate from the metric windows: it only feeds the charts. It records snapshots, so a chart shows the same values as
/metrics, peaks included, and a gap where /metrics had no value.
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
"""Length of the history."""

SLOT_SECONDS: Final = 2
"""Length of a slot, which is one point of a chart: the highest value seen in that time."""

HISTORY_SLOTS: Final = HISTORY_SPAN_SECONDS // SLOT_SECONDS
"""Slots of the history of an engine."""

_NEVER_SLOT: Final = -HISTORY_SLOTS
"""Newest slot of an empty ring: so far back that all its values have expired."""


@dataclass(frozen=True, slots=True)
class Track:
    """The history of one engine: a value for each slot, oldest first; NaN where unknown."""

    running: Sequence[float]
    waiting: Sequence[float]
    kv_cache: Sequence[float]


class LoadHistory:
    """The history of all engines. Written on the event loop, readable from any thread.

    Its memory is bounded: three numbers per slot and engine, for engines seen within `HISTORY_SPAN_SECONDS`.
    """

    def __init__(self) -> None:
        self._rings: dict[tuple[str, EngineKey], _Ring] = {}
        self._recorded_at = -inf
        self._recorded: frozenset[tuple[str, EngineKey]] = frozenset()

    def record(self, targets: Sequence[TargetSnapshot], now: float) -> None:
        """Record the newest snapshots.

        Args:
            targets: the newest snapshots.
            now: monotonic seconds, not decreasing from call to call.
        """
        slot = int(now // SLOT_SECONDS)
        previous = self._recorded if now - self._recorded_at < 2 * SLOT_SECONDS else frozenset()
        loads = {
            (target.name, engine.key): engine.load
            for target in targets
            for engine in target.engines
            if _has_values(engine.load)
        }
        for key, load in loads.items():
            ring = self._rings.setdefault(key, _Ring())
            if key in previous and ring.newest == slot - 2:  # this call is late and missed a slot; the target did not
                ring.bridge(slot - 1, load)
            ring.put(slot, load)
        self._recorded_at, self._recorded = now, frozenset(loads)
        self._rings = {key: ring for key, ring in self._rings.items() if ring.newest > slot - HISTORY_SLOTS}

    def keep(self, targets: Collection[str]) -> None:
        """Drop the history of all other targets.

        Args:
            targets: names of the targets to keep.
        """
        self._rings = {key: ring for key, ring in self._rings.items() if key[0] in targets}

    def get_track(self, target: str, key: EngineKey, now: float) -> Track | None:
        """Get the history of an engine; None if there is none.

        Args:
            target: name of the engine's target.
            key: the engine.
            now: monotonic seconds.
        """
        ring = self._rings.get((target, key))
        return None if ring is None else ring.get_track(int(now // SLOT_SECONDS))


def _has_values(load: Load) -> bool:
    """Whether there is any value to record: Ollama does not expose its queue."""
    return any(value is not None for value in (load.requests_running, load.requests_waiting, load.kv_cache_usage_ratio))


class _Ring:
    """The three ring buffers of an engine, indexed by slot number modulo `HISTORY_SLOTS`."""

    __slots__ = ("_kv_cache", "_running", "_waiting", "newest")

    def __init__(self) -> None:
        self.newest = _NEVER_SLOT
        self._running = _create_series()
        self._waiting = _create_series()
        self._kv_cache = _create_series()

    def put(self, slot: int, load: Load) -> None:
        for skipped in range(max(self.newest + 1, slot - HISTORY_SLOTS + 1), slot + 1):
            for series in self._list_series():
                series[skipped % HISTORY_SLOTS] = nan
        self.newest = slot
        _raise_value(self._running, slot, load.requests_running)
        _raise_value(self._waiting, slot, load.requests_waiting)
        _raise_value(self._kv_cache, slot, load.kv_cache_usage_ratio)

    def bridge(self, slot: int, load: Load) -> None:
        """Fill a skipped slot with the present values, except where the slot before it is a gap."""
        self.put(slot, load)
        for series in self._list_series():
            if isnan(series[(slot - 1) % HISTORY_SLOTS]):
                series[slot % HISTORY_SLOTS] = nan

    def get_track(self, slot: int) -> Track:
        slots = range(slot - HISTORY_SLOTS + 1, slot + 1)
        written = range(self.newest - HISTORY_SLOTS + 1, self.newest + 1)
        return Track(
            *([series[at % HISTORY_SLOTS] if at in written else nan for at in slots] for series in self._list_series())
        )

    def _list_series(self) -> "tuple[array[float], ...]":
        return self._running, self._waiting, self._kv_cache


def _create_series() -> "array[float]":
    return array("d", [nan]) * HISTORY_SLOTS


def _raise_value(series: "array[float]", slot: int, value: float | None) -> None:
    """Raise a slot to a value; infinity and NaN are ignored, since no chart can show them."""
    if value is not None and isfinite(value):
        highest = series[slot % HISTORY_SLOTS]
        series[slot % HISTORY_SLOTS] = max(value, highest) if isfinite(highest) else value
