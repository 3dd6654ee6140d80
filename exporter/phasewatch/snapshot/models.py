"""Models as their servers describe them: entries of vLLM's list, and snapshots of Ollama's models."""

from dataclasses import dataclass
from typing import Final

from phasewatch.snapshot.probes import ProbeRecord

FOREVER_SECONDS: Final = 100 * 365.25 * 86_400
"""A model that expires later than this many seconds from now is kept forever: Ollama then adds Go's longest duration,
some 292 years, to the present.
"""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in vLLM's /v1/models.

    Attributes:
        root: path or hub name from which the model was loaded.
        max_model_len: longest context, tokens.
    """

    root: str | None = None
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """Format, family, parameter size and quantization as the server spells them; empty where it gives none."""

    format: str = ""
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """An Ollama model and the counters of its probes; None where unknown.

    Attributes:
        name: the model's name, as in the label `model_name`.
        digest: digest of the manifest.
        details: format, family, parameter size and quantization.
        loaded: 1 in memory, 0 on disk only; None for a remote model.
        bytes: total size in memory.
        vram_bytes: the part of `bytes` that is on the devices.
        gpu_ratio: vram_bytes / bytes.
        context_length_tokens: context length with which the model was loaded.
        expiry: Unix time at which the model will be unloaded.
        prefill_fixed_seconds: prompt time that does not depend on length, from the newest short and long probe.
        probe: counters of the probes; None before the first one was sent or skipped.
    """

    name: str
    digest: str | None = None
    details: ModelDetails | None = None
    loaded: float | None = None
    bytes: float | None = None
    vram_bytes: float | None = None
    gpu_ratio: float | None = None
    context_length_tokens: float | None = None
    expiry: float | None = None
    prefill_fixed_seconds: float | None = None
    probe: ProbeRecord | None = None
