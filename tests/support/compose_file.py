"""docker-compose.yml, the Dockerfile and all that is mounted, read as data."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

FILES: Final = (
    ".dockerignore",
    ".env",
    "Dockerfile",
    "docker-compose.yml",
    "alerts/alertmanager.yml",
    "alerts/prometheus.yml",
    "alerts/templates/phasewatch.tmpl",
    "dashboards/grafana.ini",
    "dashboards/provisioning/dashboards/phasewatch.yml",
    "dashboards/provisioning/datasources/phasewatch.yml",
    "deploy/compose/override.example.yml",
    "deploy/compose/phasewatch.yml",
    "exporter/phasewatch/__init__.py",
    "exporter/phasewatch/cli/arguments.py",
)
"""Where a port, a path, a number of a user, a version or a target is written that others know as well."""

_DEFAULT: Final = re.compile(r"\$\{\w+:-([^}]*)\}")
_COMMENTED: Final = re.compile(r"^( *)# ((?:secrets:.*)|(?:  - \{source:.*)|(?:  [\w-]+: \{file:.*))$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this repository in a container: `source` below its root, `target` inside."""

    source: str
    target: str
    mode: str

    def inside(self, path: str) -> str | None:
        """Where in the repository a path of the container is; None if this mount does not have it."""
        if path == self.target:
            return self.source
        return f"{self.source}{path.removeprefix(self.target)}" if path.startswith(f"{self.target}/") else None


@dataclass(frozen=True)
class Stack:
    """The files of a checkout, or of a copy of it.

    Attributes:
        root: the folder.
    """

    root: Path

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def yaml(self, name: str) -> Any:
        return yaml.safe_load(self.text(name))

    @cached_property
    def compose(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load(interpolated(self.text("docker-compose.yml")))
        return document

    @cached_property
    def services(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.compose["services"]
        return found

    @cached_property
    def with_secrets(self) -> dict[str, Any]:
        """The compose file with its examples of secrets in force."""
        text = uncommented_secrets(self.text("docker-compose.yml"))
        document: dict[str, Any] = yaml.safe_load(interpolated(text))
        return document

    @cached_property
    def docker(self) -> list[tuple[str, str]]:
        """The instructions of the Dockerfile with their words."""
        lines = re.sub(r"^#.*\n", "", self.text("Dockerfile"), flags=re.MULTILINE)
        joined = re.sub(r"\\\n\s*", " ", lines)
        return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]

    def instruction(self, word: str) -> str:
        """The last of a kind, which is the one in force."""
        return [rest for found, rest in self.docker if found == word][-1]

    @property
    def copied(self) -> list[str]:
        """What the Dockerfile copies from the checkout."""
        copies = [rest.split() for name, rest in self.docker if name == "COPY" and "--from" not in rest]
        return [source for words in copies for source in words[:-1]]

    @cached_property
    def port(self) -> str:
        """The exporter's, as the program has it."""
        return only(r"^DEFAULT_PORT: Final = (\d+)$", self.text("exporter/phasewatch/cli/arguments.py"))

    @cached_property
    def version(self) -> str:
        return only(r'^__version__ = "(.+)"$', self.text("exporter/phasewatch/__init__.py"))

    def mounts(self, service: str) -> list[Mount]:
        """The files of this repository that a service sees."""
        volumes = (entry.split(":") for entry in self.services[service].get("volumes", ()))
        return [
            Mount(source.removeprefix("./"), target, "".join(mode))
            for source, target, *mode in volumes
            if source.startswith(".")
        ]

    def source(self, service: str, path: str) -> str | None:
        """Where in the repository a path of a service's container is; the most specific mount has it."""
        commands = [
            (len(mount.target), place) for mount in self.mounts(service) if (place := mount.inside(path)) is not None
        ]
        return max(commands)[1] if commands else None

    def published(self, service: str) -> tuple[str, str, str]:
        """Address and port on the host, and port in the container."""
        (entry,) = self.services[service]["ports"]
        host, outside, inside = entry.split(":")
        return host, outside, inside

    def reachable(self) -> set[str]:
        """Host and port of every service, under each of its names, as others inside see it."""
        return {
            f"{name}:{self.published(service)[2]}"
            for service, facts in self.services.items()
            for name in (service, *facts.get("networks", {}).get("default", {}).get("aliases", ()))
        }


def interpolated(text: str) -> str:
    """A compose file whose variables have their defaults."""
    return _DEFAULT.sub(r"\1", text)


def uncommented_secrets(text: str) -> str:
    """A compose file whose examples of secrets are in force."""
    return _COMMENTED.sub(r"\1\2", text)


def only(pattern: str, text: str) -> str:
    """What a pattern finds, which must be one thing."""
    matches: list[str] = re.findall(pattern, text, re.MULTILINE)
    assert len(matches) == 1, (pattern, matches)
    return matches[0]
