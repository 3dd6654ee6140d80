"""Static description of a model as its server lists it, independent of the backend."""

from dataclasses import dataclass
from typing import Final

FOREVER_SECONDS: Final = 100 * 365.25 * 86_400
"""A model that expires later than this many seconds from now is kept forever: Ollama then adds Go's longest duration,
some 292 years, to the present.
"""


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """Format, family, parameter size and quantization in the server's words; empty where it gives none."""

    format: str = ""
    family: str = ""
    parameter_size: str = ""
    quantization: str = ""
