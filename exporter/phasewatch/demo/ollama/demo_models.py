"""The models on the disk of the demo's Ollama, at the speed of a gaming PC.

Decode reads all weights for each token, so its speed follows from the bandwidths; prefill speeds are set to typical
values. The largest model is partly in the host's memory, since it does not fit on the device beside another one.
"""

from hashlib import sha256
from typing import Any, Final

from phasewatch.demo.ollama.gguf_metadata import GgufMetadata
from phasewatch.demo.ollama.model import Model

DEVICE: Final = "NVIDIA GeForce RTX 4090"

DEVICE_BANDWIDTH: Final = 1008e9
"""Memory bandwidth of that device, bytes per second (devices.csv)."""

HOST_BANDWIDTH: Final = 80e9
"""Memory bandwidth of the host, bytes per second; two channels of DDR5-5600 have a peak of 90e9."""

EFFICIENCY: Final = 0.7
"""Share of the bandwidth that decode achieves; published single streams reach 30 to 87 % (docs/ceiling.md)."""

NUM_CTX: Final = 4096
"""Context length that models are loaded with, tokens (OLLAMA_CONTEXT_LENGTH)."""

_LOAD_BANDWIDTH: Final = 2.5e9
"""Speed of reading weights from disk, bytes per second."""

_BUFFER_BYTES: Final = 500_000_000
"""Memory of a runner beside weights and KV cache."""

_TRAIN_CONTEXT: Final = 131_072


def build_target_keys() -> dict[str, Any]:
    """The key `device` of a configured target that is this server."""
    return {"device": {"name": DEVICE, "cpu_memory_bandwidth": f"{HOST_BANDWIDTH / 1e9:g}GB/s"}}


def _build_model(name: str, gguf: GgufMetadata, *, prefill: float, on_device: float = 1.0) -> Model:
    """A model.

    Args:
        name: name with tag.
        gguf: its tensors and metadata.
        prefill: prefill speed, tokens per second.
        on_device: share of it in the memory of the device, 0 to 1.
    """
    weights = gguf.weight_bytes
    resident = weights + gguf.kv_cache_bytes_per_token * NUM_CTX + _BUFFER_BYTES
    read_seconds = weights * (on_device / DEVICE_BANDWIDTH + (1 - on_device) / HOST_BANDWIDTH)
    return Model(
        name=name,
        digest=sha256(name.encode()).hexdigest(),
        size=weights,
        resident_bytes=resident,
        vram_bytes=round(resident * on_device),
        train_context=_TRAIN_CONTEXT,
        load_seconds=weights / _LOAD_BANDWIDTH,
        prefill_seconds_per_token=1 / prefill,
        decode_seconds_per_token=read_seconds / EFFICIENCY,
        cold_factor=3.0,
        gguf=gguf,
    )


SMALL: Final = _build_model(
    "simulated-small:1b",
    GgufMetadata(16, 2048, 32, 8, 8192, 128_256, quantization="Q8_0", weight_type="Q8_0"),
    prefill=20_000,
)
CHAT: Final = _build_model(
    "simulated-chat:8b",
    GgufMetadata(32, 4096, 32, 8, 14_336, 128_256, quantization="Q4_K_M", weight_type="Q4_K"),
    prefill=5_000,
)
LARGE: Final = _build_model(
    "simulated-large:32b",
    GgufMetadata(64, 5120, 40, 8, 27_648, 152_064, quantization="Q4_K_M", weight_type="Q4_K"),
    prefill=300,
    on_device=0.9,
)
MODELS: Final = (SMALL, CHAT, LARGE)
