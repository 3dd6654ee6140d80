"""Small facts about an Ollama, and what a real one was recorded to say, for the tests of what is made of them."""

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
"""Unix time at which these tests begin."""

GGUF: Final = ModelDetails("gguf", "llama", "8.0B", "Q4_K_M")


def seeded(seed: int = 1) -> Random:
    """Randomness that is the same in every run."""
    return Random(seed)  # noqa: S311  # that is the point


def recorded(name: str) -> dict[str, Any]:
    """The body of a recorded answer."""
    body: dict[str, Any] = json.loads((RECORDINGS / "ollama-0.33" / f"{name}.json").read_text())["body"]
    return body


def answered(name: str, **changes: Any) -> Response:
    """A recorded answer as it came over the wire, with some keys of its body changed; None takes one away."""
    found = json.loads((RECORDINGS / "ollama-0.33" / f"{name}.json").read_text())
    if "_raw" in found["body"]:
        return Response(found["status"], "text/plain", found["body"]["_raw"].encode())
    body = {key: value for key, value in {**found["body"], **changes}.items() if value is not None}
    return Response(found["status"], "application/json", json.dumps(body).encode())


def loaded(name: str = "a:latest", digest: str = A, **facts: Any) -> LoadedModel:
    """A model in memory for five minutes more."""
    known = LoadedModel(name, digest, 5e9, 5e9, 4096, WALL + 300, GGUF)
    return replace(known, **facts)


def stored(name: str = "a:latest", digest: str = A, **facts: Any) -> StoredModel:
    """A model on disk that completes text."""
    return replace(StoredModel(name, digest, frozenset({"completion"}), remote=False, details=GGUF), **facts)


def inventory(*models: LoadedModel, disk: tuple[StoredModel, ...] | None = None) -> Inventory:
    """What is in memory; on disk are those models, unless told otherwise."""
    listed = [stored(model.name, model.digest) for model in models] if disk is None else disk
    return Inventory(models, {model.name: model for model in listed})


def figures(**changes: Any) -> ProbeTimings:
    """What a recorded answer to a prompt of 199 tokens tells, with some of it changed."""
    found = extract_timings(recorded("unique_prefix"), version=None, model_format="gguf")
    assert found is not None
    return replace(found, **changes)
