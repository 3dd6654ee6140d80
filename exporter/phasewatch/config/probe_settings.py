"""How an Ollama is probed, as the operator decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_INTERVAL: Final = 300.0
DEFAULT_LONG_INTERVAL: Final = 3600.0
DEFAULT_TIMEOUT: Final = 60.0
DEFAULT_BUDGET: Final = 0.01


@dataclass(frozen=True)
class ModelProbe:
    """What the operator decided about the probes of one Ollama model.

    Attributes:
        enabled: whether it is probed at all.
        load: whether a probe may load it while nothing else is loaded.
        options: options of the runner that the model is loaded with, to be sent with each probe.
    """

    enabled: bool = True
    load: bool = False
    options: Mapping[str, int | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class ProbeSettings:
    """How an Ollama is probed; durations in seconds.

    Attributes:
        enabled: whether it is.
        interval: between two probes of a model.
        long_interval: between two of its long ones.
        timeout: until an answer must be there.
        budget: largest share of the time that probes may take, above 0.
        models: by name, where a model differs.
    """

    enabled: bool = True
    interval: float = DEFAULT_INTERVAL
    long_interval: float = DEFAULT_LONG_INTERVAL
    timeout: float = DEFAULT_TIMEOUT
    budget: float = DEFAULT_BUDGET
    models: Mapping[str, ModelProbe] = field(default_factory=dict)
