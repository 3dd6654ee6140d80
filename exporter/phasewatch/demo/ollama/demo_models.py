"""The models on the disk of the demo's Ollama, as fast as a gaming PC would run them.

Decode reads all weights for each token, so its speed follows from the bandwidths; prefill speeds are set by hand to
what is usual there. The largest model has a part in the host's memory, since the device has no room for all of it
beside another one.
"""

from hashlib import sha256
from typing import Any, Final

from phasewatch.demo.ollama.api import Model
from phasewatch.demo.ollama.gguf_metadata import Anatomy

DEVICE: Final = "NVIDIA GeForce RTX 4090"

DEVICE_BANDWIDTH: Final = 1008e9
"""Bytes per second of that device (devices.csv)."""

HOST_BANDWIDTH: Final = 80e9
"""Bytes per second of the host's memory: two channels of DDR5-5600 give 90 at best."""

EFFICIENCY: Final = 0.7
"""Share of the bandwidth that decode reaches: published single streams reach 30 to 87 % (docs/ceiling.md)."""

NUM_CTX: Final = 4096
"""Tokens of context that models are loaded with (OLLAMA_CONTEXT_LENGTH)."""

_LOAD_BANDWIDTH: Final = 2.5e9
"""Bytes per second at which weights come from a disk."""

_BUFFERS: Final = 500_000_000
"""Bytes that a runner takes beside weights and cache."""

_TRAIN_CONTEXT: Final = 131_072


def target_keys() -> dict[str, Any]:
    """Keys of the configuration of a target that is this server."""
    return {"device": {"name": DEVICE, "cpu_memory_bandwidth": f"{HOST_BANDWIDTH / 1e9:g}GB/s"}}


def _model(name: str, anatomy: Anatomy, *, prefill: float, on_device: float = 1.0) -> Model:
    """A model.

    Args:
        name: with its tag.
        anatomy: what it is made of.
        prefill: tokens per second.
        on_device: share of it that is in the memory of the device, 0 to 1.
    """
    weights = anatomy.weight_bytes
    resident = weights + anatomy.kv_cache_bytes_per_token * NUM_CTX + _BUFFERS
    reading = weights * (on_device / DEVICE_BANDWIDTH + (1 - on_device) / HOST_BANDWIDTH)
    return Model(
        name=name,
        digest=sha256(name.encode()).hexdigest(),
        size=weights,
        resident_bytes=resident,
        vram_bytes=round(resident * on_device),
        train_context=_TRAIN_CONTEXT,
        load_seconds=weights / _LOAD_BANDWIDTH,
        prefill_seconds_per_token=1 / prefill,
        decode_seconds_per_token=reading / EFFICIENCY,
        cold_factor=3.0,
        anatomy=anatomy,
    )


SMALL: Final = _model(
    "simulated-small:1b",
    Anatomy(16, 2048, 32, 8, 8192, 128_256, quantization="Q8_0", weight_type="Q8_0"),
    prefill=20_000,
)
CHAT: Final = _model(
    "simulated-chat:8b",
    Anatomy(32, 4096, 32, 8, 14_336, 128_256, quantization="Q4_K_M", weight_type="Q4_K"),
    prefill=5_000,
)
LARGE: Final = _model(
    "simulated-large:32b",
    Anatomy(64, 5120, 40, 8, 27_648, 152_064, quantization="Q4_K_M", weight_type="Q4_K"),
    prefill=300,
    on_device=0.9,
)
MODELS: Final = (SMALL, CHAT, LARGE)
