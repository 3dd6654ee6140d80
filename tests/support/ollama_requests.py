"""Models, requests and recorded responses for the tests of the simulated Ollama."""

import functools
import json
from typing import Any, Final

from phasewatch.demo.ollama.model import Model
from tests.support.paths import RECORDINGS
from tests.support.simulated_ollama import StepwiseOllama

A: Final = Model("tiny-a:latest", "a" * 64)
B: Final = Model("tiny-b:latest", "b" * 64)
C: Final = Model("tiny-c:latest", "c" * 64)
EMBEDDING: Final = Model("tiny-e:latest", "e" * 64, capabilities=("embedding",))
REMOTE: Final = Model("big:cloud", "c" * 64, remote_model="big", remote_host="https://elsewhere.invalid")

ONE_TOKEN_PER_WORD: Final = Model("tiny-a:latest", "a" * 64, tokens_per_word=1.0)


@functools.cache
def read_recording(name: str) -> tuple[int, Any]:
    """Status and body of a recorded response."""
    recording = json.loads((RECORDINGS / "ollama-0.33" / f"{name}.json").read_text())
    return recording["status"], recording["body"]


def build_words(count: int, prefix: str = "word") -> str:
    """A prompt of `count` different words."""
    return " ".join(f"{prefix}{index}" for index in range(count))


def build_request(
    model: str = "tiny-a", prompt: str | None = None, num_predict: int = 32, **fields: Any
) -> dict[str, Any]:
    """The body of a raw request to /api/generate, by default with a prompt of 140 words."""
    options = {"num_predict": num_predict, **fields.pop("options", {})}
    prompt = build_words(140) if prompt is None else prompt
    return {"model": model, "prompt": prompt, "raw": True, "stream": False, "options": options, **fields}


def start_server(*models: Model, **settings: Any) -> StepwiseOllama:
    """A server with these models, by default two local ones, an embedding model and a remote one."""
    return StepwiseOllama(*(models or (A, B, EMBEDDING, REMOTE)), **settings)
