"""Ollama: assembles the dashboard."""

from typing import Final

from dashboards.generate.boards.ollama.memory import build_memory
from dashboards.generate.boards.ollama.models import (
    build_model_stats,
    build_models_in_memory,
    build_models_on_disk,
    build_residency,
)
from dashboards.generate.boards.ollama.probes import (
    build_newest_probes,
    build_probe_counts,
    build_probe_stats,
    build_probes_without_numbers,
)
from dashboards.generate.boards.ollama.speeds import build_speeds
from dashboards.generate.boards.ollama.traffic import build_traffic
from dashboards.generate.model import Dashboard, Row, Variable
from dashboards.generate.pack import INSTANCE, JOB, OLLAMA, build_dashboard
from dashboards.generate.queries import EXPORTER_MATCHERS, TARGET_MATCHERS

_TARGET: Final = Variable("target", "Target", f'llm_target_up{{{EXPORTER_MATCHERS}, backend="ollama"}}')
_MODEL: Final = Variable("model_name", "Model", f"llm_model_loaded{{{TARGET_MATCHERS}}}")


def build_ollama() -> Dashboard:
    """Models of Ollama servers: where they are, what their users get, how fast they are, and what the probes do."""
    return build_dashboard(
        OLLAMA,
        "Which models are in memory, are they on the GPU, what do users get, how fast could it be, and do the probes do no harm?",
        Row("Now", (*build_model_stats(), *build_probe_stats(), build_models_in_memory(), build_residency())),
        Row("Real traffic", build_traffic()),
        Row("Speed, as probes measure it", build_speeds()),
        Row("Memory and loads", build_memory()),
        Row("Probes", (*build_newest_probes(), build_probes_without_numbers())),
        Row("Probes over time", build_probe_counts(), collapsed=True),
        Row("Models on disk", (build_models_on_disk(),), collapsed=True),
        variables=(JOB, INSTANCE, _TARGET, _MODEL),
    )
