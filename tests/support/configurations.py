"""Texts of configurations for the tests, and the mistakes and notes that they have."""

import json
from typing import Any

import pytest

from phasewatch.backends import BACKENDS
from phasewatch.base.errors import ConfigError
from phasewatch.config.settings import Config, Target
from tests.support.targets import parse_config

EXAMPLE = """\
interval: 5s            # how often targets are scraped
window: 60s
timeout: 4s
targets:
  - name: chat
    backend: vllm       # vllm | ollama | openai
    url: http://127.0.0.1:8000
    interval: 1s        # any global key can be set per target
    device: {name: NVIDIA L40S, count: 1}
    model: {weights: 16.06GB}
    authorization: {type: Bearer, credentials_file: /run/secrets/key}
    probe: {enabled: true, interval: 5m}
    server: {max_num_seqs: 256, max_num_batched_tokens: 8192, api_servers: 1}
"""

*_OTHERS, _LAST = (f"'{backend.name}'" for backend in BACKENDS)
BACKENDS_KNOWN = f"{', '.join(_OTHERS)} or {_LAST}"
"""The kinds of servers as a message lists them."""

SECRET = "hunter2"  # noqa: S105  # planted, to check that it does not come out


def write_target(**keys: Any) -> str:
    """A configuration with a single vLLM target of these keys."""
    return json.dumps({"targets": [{"name": "chat", "backend": "vllm", "url": "http://127.0.0.1:8000", **keys}]})


def write_ollama(**keys: Any) -> str:
    """A configuration with a single Ollama target of these keys."""
    return write_target(backend="ollama", url="http://127.0.0.1:11434", **keys)


def get_target(config: Config) -> Target:
    """The only target of a configuration."""
    (target,) = config.targets
    return target


def parse_target(text: str) -> Target:
    """The only target in the text of a configuration."""
    return get_target(parse_config(text))


def find_mistakes(text: str) -> list[str]:
    """The mistakes for which a configuration is refused."""
    with pytest.raises(ConfigError) as refused:
        parse_config(text, "f.yml")
    return [str(problem) for problem in refused.value.problems]


def find_notes(text: str) -> list[str]:
    """The notes about a valid configuration."""
    return [str(note) for note in parse_config(text).notes]
