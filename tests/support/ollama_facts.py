"""Example models of an Ollama, and responses recorded from a real one."""

import json
from dataclasses import replace
from random import Random
from typing import Any, Final

from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, StoredModel
from phasewatch.backends.ollama.probes.response import ProbeTimings, extract_timings
from phasewatch.scrape.http import Response
from phasewatch.snapshot.models import ModelDetails
from tests.support.paths import RECORDINGS

A: Final = "a" * 64
B: Final = "b" * 64
WALL: Final = 1_800_000_000.0
"""Unix time at which these tests start."""

GGUF: Final = ModelDetails("gguf", "llama", "8.0B", "Q4_K_M")


def seeded(seed: int = 1) -> Random:
    """A random generator that gives the same numbers in every run."""
    return Random(seed)  # noqa: S311  # tests must be repeatable


def recorded(name: str) -> dict[str, Any]:
    """The body of a recorded response."""
    body: dict[str, Any] = json.loads((RECORDINGS / "ollama-0.33" / f"{name}.json").read_text())["body"]
    return body


def answered(name: str, **changes: Any) -> Response:
    """A recorded response with some keys of its body changed; None removes a key."""
    recording = json.loads((RECORDINGS / "ollama-0.33" / f"{name}.json").read_text())
    if "_raw" in recording["body"]:
        return Response(recording["status"], "text/plain", recording["body"]["_raw"].encode())
    body = {key: value for key, value in {**recording["body"], **changes}.items() if value is not None}
    return Response(recording["status"], "application/json", json.dumps(body).encode())


def loaded(name: str = "a:latest", digest: str = A, **facts: Any) -> LoadedModel:
    """A loaded model that expires in five minutes."""
    return replace(LoadedModel(name, digest, 5e9, 5e9, 4096, WALL + 300, GGUF), **facts)


def stored(name: str = "a:latest", digest: str = A, **facts: Any) -> StoredModel:
    """A model on disk with the capability `completion`."""
    return replace(StoredModel(name, digest, frozenset({"completion"}), remote=False, details=GGUF), **facts)


def inventory(*models: LoadedModel, disk: tuple[StoredModel, ...] | None = None) -> Inventory:
    """An inventory of loaded models; the same ones are on disk unless `disk` is given."""
    listed = [stored(model.name, model.digest) for model in models] if disk is None else disk
    return Inventory(models, {model.name: model for model in listed})


def figures(**changes: Any) -> ProbeTimings:
    """The timings of a recorded response to a prompt of 199 tokens, with some fields changed."""
    timings = extract_timings(recorded("unique_prefix"), version=None, model_format="gguf")
    assert timings is not None
    return replace(timings, **changes)
