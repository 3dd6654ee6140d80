"""The configured settings of a target's model."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelSettings:
    """The `model` section of a target; None for keys that are not configured.

    Attributes:
        path: folder with the model's files.
        weights: total weight size, bytes.
        weights_read: size of the weights that a decode step of one token reads, bytes.
        kv_cache_bytes_per_token: size of the KV cache of one token over all layers, bytes.
        kv_cache_dtype: data type of the KV cache, such as `fp8`.
        active_parameters: number of parameters that one token is multiplied with.
    """

    path: Path | None = None
    weights: float | None = None
    weights_read: float | None = None
    kv_cache_bytes_per_token: float | None = None
    kv_cache_dtype: str | None = None
    active_parameters: float | None = None
