"""What the operator says of a target's model."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelSettings:
    """A model, as configured; None where nothing is said. Sizes in bytes.

    Attributes:
        path: folder with its files.
        weights: of all its weights.
        weights_read: of those that a decode step reads.
        kv_cache_bytes_per_token: of a token's keys and values, over all layers.
        kv_cache_dtype: data type of the KV cache, such as `fp8`.
        active_parameters: that one token is multiplied with.
    """

    path: Path | None = None
    weights: float | None = None
    weights_read: float | None = None
    kv_cache_bytes_per_token: float | None = None
    kv_cache_dtype: str | None = None
    active_parameters: float | None = None
