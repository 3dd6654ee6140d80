"""The kinds of servers. `BACKENDS` is the only list of them: a new one is a folder here and an entry in it."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.advice.handbook import Handbook
from phasewatch.backends.backend import Backend
from phasewatch.backends.llamacpp import LLAMACPP
from phasewatch.backends.ollama import OLLAMA
from phasewatch.backends.vllm import VLLM
from phasewatch.config.backend_rules import Rules

BACKENDS: Final = (VLLM, LLAMACPP, OLLAMA)


def find_backend(name: str) -> Backend:
    """The backend of a name that a valid configuration contains."""
    return {backend.name: backend for backend in BACKENDS}[name]


def list_rules() -> Rules:
    """The rules of the configuration for each backend, by its name."""
    return {backend.name: backend.rules for backend in BACKENDS}


def list_handbooks() -> Mapping[str, Handbook]:
    """The advice for each kind of server, by the name of its backend."""
    return {backend.name: backend.handbook for backend in BACKENDS}
