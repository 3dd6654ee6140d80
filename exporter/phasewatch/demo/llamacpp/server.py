"""A simulated llama-server: an 8B model on one Apple M4 Max, its clients, and the responses to HTTP requests."""

from random import Random
from typing import Any, Final

from phasewatch.demo.common.acts import Act, find_act_in
from phasewatch.demo.common.roofline import Roofline
from phasewatch.demo.common.workload import WorkloadGenerator
from phasewatch.demo.llamacpp.counters import Counters
from phasewatch.demo.llamacpp.endpoints import LlamaResponse, respond
from phasewatch.demo.llamacpp.engine import Engine
from phasewatch.demo.llamacpp.ledger import SleepLedger, TruthLedger
from phasewatch.demo.llamacpp.script import LLAMA_CYCLE
from phasewatch.demo.llamacpp.settings import LlamaServerSettings
from phasewatch.demo.llamacpp.slot_view import SlotView
from phasewatch.hardware.resolve import ResolvedDevice, resolve_device

LLAMA_DEVICE: Final = "Apple M4 Max (40-core GPU)"

LLAMA_SETTINGS: Final = LlamaServerSettings(
    alias="simulated-qwen3-8b",
    model_path="/models/simulated-qwen3-8b-Q4_K_M.gguf",
    ftype="Q4_K - Medium",
    parameters=8_190_735_360,
    weight_bytes=5_021_655_040,
    train_context=40_960,
    width=4096,
    vocabulary=151_936,
)
"""Qwen3-8B with four slots."""

_LAYERS: Final = 36
_KV_HEADS: Final = 8
_HEADS: Final = 32
_HEAD_WIDTH: Final = 128

KV_BYTES_PER_TOKEN: Final = 2 * _LAYERS * _KV_HEADS * _HEAD_WIDTH * 2
"""Keys and values of one token at 16 bits, bytes."""


class SimulatedLlamaServer:
    """One simulated llama-server with the clients of a script.

    Args:
        seed: equal seeds give identical servers, second by second.
        created: Unix time of its start.
        script: the acts, repeated endlessly.
        settings: how it was started.
    """

    def __init__(
        self,
        seed: int,
        created: float,
        script: tuple[Act, ...] = LLAMA_CYCLE,
        settings: LlamaServerSettings = LLAMA_SETTINGS,
    ) -> None:
        self.settings = settings
        self._created = created
        self._script = script
        self._now = 0.0
        self._clients = WorkloadGenerator(Random(seed))  # noqa: S311  # a simulation must be repeatable
        self._engine = Engine(settings, build_llama_roofline(settings), self._clients)
        self._begin_act()

    @property
    def act(self) -> Act:
        """The current act of the script."""
        return self._act

    @property
    def truth(self) -> TruthLedger:
        """What happened in the engine."""
        return self._engine.truth

    @property
    def sleep(self) -> SleepLedger:
        """What fell asleep and woke."""
        return self._engine.sleep

    @property
    def started(self) -> int:
        """When its process was started, microseconds of a monotonic clock."""
        return round(self._created * 1e6) % 2**32

    @property
    def is_loading(self) -> bool:
        """Never: the demo starts with the model loaded."""
        return False

    @property
    def is_sleeping(self) -> bool:
        """Whether it sleeps."""
        return self._engine.asleep

    def advance(self, now: float) -> None:
        """Advance the simulation to `now`, in seconds since the start. Time never goes back."""
        while self._act_end <= now:
            self._engine.advance(self._act_end)
            self._engine.abort_all()
            self._now = self._act_end
            self._begin_act()
        if now > self._now:
            self._now = now
            self._engine.advance(now)

    def respond(self, method: str, path: str) -> LlamaResponse:
        """The response to a request."""
        return respond(self, method, path)

    def read_clock(self) -> int:
        """Unix seconds of its clock."""
        return int(self._created + self._now)

    def observe(self, page: str) -> None:
        """Handle a read of a page that is a task of the engine."""
        self._engine.observe(page)

    def list_slots(self) -> tuple[SlotView, ...]:
        """Its slots."""
        return tuple(slot.view() for slot in self._engine.slots)

    def count_deferred(self) -> int:
        """The requests that wait for a slot."""
        return len(self._engine.deferred)

    def get_counters(self) -> Counters:
        """Its counters."""
        return self._engine.counters

    def take_averages(self) -> tuple[float, float]:
        """The average gauges, which each read empties."""
        return self._engine.averages.take()

    def _begin_act(self) -> None:
        self._act, self._act_end = find_act_in(self._script, self._now)
        self._clients.start(self._act.workloads, self._now)


def build_llama_roofline(settings: LlamaServerSettings) -> Roofline:
    """The roofline of a model of these settings on the demo's device.

    Raises:
        ValueError: the table of devices lacks a figure of it.
    """
    device = resolve_device(LLAMA_DEVICE)
    if not isinstance(device, ResolvedDevice) or device.memory_bandwidth is None or device.compute.bits16 is None:
        raise ValueError(f"the table has no figures of {LLAMA_DEVICE!r}: see `phasewatch devices`")
    head = settings.width * settings.vocabulary
    return Roofline(
        bandwidth=device.memory_bandwidth,
        compute=device.compute.bits16,
        weight_bytes=settings.weight_bytes,
        layer_parameters=settings.parameters - 2 * head,
        head_parameters=head,
        kv_bytes=KV_BYTES_PER_TOKEN,
        attention_operations=4 * _LAYERS * _HEADS * _HEAD_WIDTH,
    )


def build_llama_target_keys() -> dict[str, Any]:
    """The keys of a configured target that is such a server: what its pages do not say."""
    return {
        "device": {"name": LLAMA_DEVICE},
        "model": {
            "weights_read": f"{LLAMA_SETTINGS.weight_bytes}B",
            "kv_cache_bytes_per_token": f"{KV_BYTES_PER_TOKEN}B",
        },
        "server": {"kv_unified": False},
    }
