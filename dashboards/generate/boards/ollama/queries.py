"""Ollama: PromQL and texts that several parts of the dashboard share."""

from typing import Final

from dashboards.generate.queries import BY_MODEL, select_models

KEEP_FOREVER_SECONDS: Final = 3_000_000_000
"""Above this a model is kept for ever: the server then reports some 292 years."""

NO_MODEL: Final = "No Ollama tells of a model"
"""None is chosen, it is down, its inventory is late, or it has no models."""
NO_MODEL_IN_MEMORY: Final = "No Ollama told of a model in memory in this time"
NO_PROBE: Final = "No probe answered in this time: they run for models in memory, unless probe.enabled is false"


def select_ollama_models(name: str, **labels: str) -> str:
    """A metric that vLLM has too, once for each chosen model of an Ollama."""
    return select_models(name, backend="ollama", **labels)


_FROM_TRAFFIC: Final = f"{select_ollama_models('llm_measurement_source', source='traffic')} == 1"
TRAFFIC: Final = f"  and on ({BY_MODEL}) {_FROM_TRAFFIC}"
PROBES: Final = f"  unless on ({BY_MODEL}) {_FROM_TRAFFIC}"
"""Added to a query: only the models whose figures come from users' requests, or from probes."""


_LAST_SUCCESS_AGE: Final = f"time() - {select_models('llm_probe_last_success_timestamp_seconds')}"
LAST_SUCCESS_AGE_IN_MEMORY: Final = f"{_LAST_SUCCESS_AGE} and {select_models('llm_model_loaded')} == 1"
"""Seconds since a probe last gave numbers, of each model in memory."""
