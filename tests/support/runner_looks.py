"""Looks at an Ollama and its children, for tests of what follows from them."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from phasewatch.backends.ollama.inventory import LoadedModel, ModelKey
from phasewatch.backends.ollama.runner.children import Child, ProcessListing, parse_child
from phasewatch.backends.ollama.runner.findings import RunnerLook
from phasewatch.backends.ollama.runner.matching import match_children
from tests.support.fake_procfs import LAYER, OLLAMA_PID, OTHER_LAYER, build_argv
from tests.support.ollama_facts import WALL, A, B, loaded

KEY: Final[ModelKey] = ("a:latest", A)
OTHER: Final[ModelKey] = ("b:latest", B)
LAYERS: Final[Mapping[str, str]] = {A: LAYER, B: OTHER_LAYER}


def child(pid: int, layer: str = LAYER, context: int = 8192, parent: int = OLLAMA_PID, started: int = 5000) -> Child:
    """A child with two slots, whose context by default is that of `loaded()`."""
    parsed = parse_child(pid, parent, started, build_argv(layer, 42000 + pid, context))
    assert parsed is not None
    return parsed


def look(
    *children: Child,
    models: tuple[LoadedModel, ...] = (loaded(),),
    layers: Mapping[str, str] = LAYERS,
    metrics: bool | None = None,
    busy: Collection[Child] = (),
    listing: ProcessListing | None = None,
    **facts: Any,
) -> RunnerLook:
    """A look that has found these children, whose /metrics answers or not, or was not asked yet."""
    known = {} if metrics is None else {one.identity: metrics for one in children}
    return RunnerLook(
        **{"wall": WALL, "version": (0, 33, 0), **facts},
        loaded=models,
        layers=layers,
        listing=listing or ProcessListing(children),
        matching=match_children(children, models, layers),
        metrics=known,
        busy=frozenset(one.identity for one in busy),
    )
