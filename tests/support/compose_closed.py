"""What docker-compose.yml may say at all: keys, flags, settings and limits, as closed lists."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.support.compose_file import Stack

ANY: Final = frozenset(
    {"restart", "cap_drop", "security_opt", "logging", "image", "ports", "pids_limit", "healthcheck"}
)
"""Keys of every service."""

OWN: Final = ANY | {"user", "read_only", "mem_limit"}
EXPORTER: Final = OWN | {"build", "tmpfs", "networks", "profiles", "command"}

KEYS: Final = {
    "exporter": EXPORTER | {"extra_hosts", "volumes"},
    "demo": EXPORTER,
    "prometheus": OWN | {"command", "volumes"},
    "alertmanager": OWN | {"command", "volumes"},
    "grafana": OWN | {"tmpfs", "environment", "volumes", "depends_on"},
    "vllm": ANY | {"profiles", "command", "environment", "volumes", "shm_size", "deploy"},
    "ollama": ANY | {"profiles", "volumes", "deploy"},
}
"""All that a service says; another key could open what is closed (`privileged`, `network_mode`, `devices`)."""

FLAGS: Final = {
    "prometheus": ["--config.file", "--storage.tsdb.path", "--storage.tsdb.retention.time", "--web.external-url"],
    "alertmanager": ["--config.file", "--storage.path", "--web.external-url", "--cluster.listen-address"],
}
"""All that the two are started with; another flag could let their data be deleted or their alerts be read."""

ENVIRONMENT: Final = {
    "grafana": {
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        "GF_AUTH_BASIC_ENABLED": "false",
        "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
        "GF_USERS_ALLOW_SIGN_UP": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_NEWS_NEWS_FEED_ENABLED": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "GF_SECURITY_DISABLE_GRAVATAR": "true",
    },
    "vllm": {"HF_HOME": "/models", "VLLM_NO_USAGE_STATS": "1"},
}

FLOORS: Final = {
    "exporter": (128, 64),
    "demo": (256, 64),
    "prometheus": (1024, 256),
    "alertmanager": (128, 128),
    "grafana": (1024, 1024),
    "vllm": (None, 4096),
    "ollama": (None, 4096),
}
"""MiB of memory and number of processes below which a service does not live; None: as much as its models need."""

MODELS: Final = {"vllm": "vllm-models:/models", "ollama": "ollama-models:/root/.ollama"}
"""Where the images of the two servers keep what they download: vLLM by HF_HOME, Ollama in the home of root."""

SOURCE: Final = {"access": "proxy", "isDefault": True, "uid": "phasewatch-prometheus", "type": "prometheus"}
PROVIDER: Final = {"allowUiUpdates": False, "disableDeletion": True, "folderUid": "phasewatch", "type": "file"}


def excesses(stack: Stack) -> Iterator[str]:
    """What is said beyond the lists, or lacks from them."""
    if stack.compose["name"] != "phasewatch":
        yield f"project {stack.compose['name']}"
    for name, facts in stack.services.items():
        yield from (f"{name}: {key}" for key in sorted(KEYS[name] ^ facts.keys()))
        if [word.partition("=")[0] for word in facts.get("command", ())] != FLAGS.get(name) and name in FLAGS:
            yield f"{name}: command {facts['command']}"
        if facts.get("environment", {}) != ENVIRONMENT.get(name, {}):
            yield f"{name}: environment {facts.get('environment')}"
        yield from _limits(name, facts)
        if name in MODELS and facts["volumes"] != [MODELS[name]]:
            yield f"{name}: volumes {facts['volumes']}"
    if stack.services["ollama"]["healthcheck"]["test"] != ["CMD", "ollama", "list"]:
        yield "ollama: the health check is another program than the only one that its image surely has"
    yield from _provisioned(stack)


def _limits(name: str, facts: dict[str, Any]) -> Iterator[str]:
    memory, processes = FLOORS[name]
    if memory is not None and mebibytes(facts["mem_limit"]) < memory:
        yield f"{name}: mem_limit {facts['mem_limit']}"
    if facts["pids_limit"] < processes:
        yield f"{name}: pids_limit {facts['pids_limit']}"
    yield from (f"{name}: tmpfs {entry}" for entry in facts.get("tmpfs", ()) if not entry.startswith("/tmp:size="))  # noqa: S108  # the mount of a container


def mebibytes(size: str) -> int:
    """A limit of memory as Compose writes it, in MiB."""
    match = re.fullmatch(r"(\d+)([mg])", size)
    assert match, size
    return int(match[1]) * {"m": 1, "g": 1024}[match[2]]


def _provisioned(stack: Stack) -> Iterator[str]:
    (source,) = stack.yaml("dashboards/provisioning/datasources/phasewatch.yml")["datasources"]
    (provider,) = stack.yaml("dashboards/provisioning/dashboards/phasewatch.yml")["providers"]
    for provisioned, wanted in ((source, SOURCE), (provider, PROVIDER)):
        yield from (f"{key}: {provisioned.get(key)}" for key, value in wanted.items() if provisioned.get(key) != value)
