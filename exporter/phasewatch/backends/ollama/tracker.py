"""Reads the inventory of one Ollama and holds the state that its scrapes and probes share."""

from collections.abc import Callable, Mapping
from typing import Final

from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.inventory import Inventory, ModelKey, StoredModel, compute_clock_offset, is_current
from phasewatch.backends.ollama.probes.scheduling import ProbePace, list_loadable_models
from phasewatch.backends.ollama.residency import observe_inventory
from phasewatch.backends.ollama.state import OllamaState
from phasewatch.config.settings import ProbeSettings

STORED_INTERVAL: Final = 60.0
"""Seconds between two readings of the models on disk, for which the server opens every manifest."""


class StateTracker:
    """The newest state of one Ollama.

    Args:
        client: HTTP client of the server.
        settings: settings of its probes.
        pace: delays of its probes.
        clock: monotonic seconds.
        wall_clock: Unix seconds.

    Attributes:
        state: the newest state; scrapes and probes replace it.
        probing: the model that is being probed, if any.
        probe_ended: monotonic time at which the newest probe ended.
    """

    def __init__(
        self,
        client: OllamaClient,
        settings: ProbeSettings,
        pace: ProbePace,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.state = OllamaState()
        self.probing: ModelKey | None = None
        self.probe_ended = 0.0
        self._client = client
        self._settings = settings
        self._pace = pace
        self._clock = clock
        self._wall_clock = wall_clock
        self._stored_read_at: float | None = None

    async def read_inventory(self) -> Inventory:
        """Read the models in memory, and those on disk unless their newest reading is recent and explains the former.

        Raises:
            ScrapeError: there was no usable response.
        """
        loaded, date = await self._client.fetch_loaded_models()
        stored = self.state.inventory.stored if self.state.inventory else None
        old = self._stored_read_at is None or self._clock() - self._stored_read_at >= STORED_INTERVAL
        if old or stored is None or not all(is_current(model, stored) for model in loaded):
            stored = await self._read_stored()
        return Inventory(loaded, stored, compute_clock_offset(date, self._wall_clock()))

    async def read_fresh_inventory(self) -> Inventory:
        """Read the models on disk and then, right before a probe, those in memory.

        Raises:
            ScrapeError: there was no usable response.
        """
        stored = await self._read_stored()
        loaded, date = await self._client.fetch_loaded_models()
        return Inventory(loaded, stored, compute_clock_offset(date, self._wall_clock()))

    def observe(self, inventory: Inventory) -> None:
        """Fold an inventory into the state."""
        loadable = tuple(list_loadable_models(inventory, self._settings))
        self.state = observe_inventory(
            self.state, inventory, self._clock(), self._pace, loadable=loadable, probing=self.probing
        )

    async def _read_stored(self) -> Mapping[str, StoredModel]:
        stored = await self._client.fetch_stored_models()
        self._stored_read_at = self._clock()
        return stored
