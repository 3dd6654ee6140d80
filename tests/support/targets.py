"""Targets and settings with the defaults of the schema, as a configuration file would give them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from phasewatch.backends import list_rules
from phasewatch.config import resolve
from phasewatch.config.resolve import resolve_section, resolve_target
from phasewatch.config.schema import ModelProbeSchema, ProbeSchema, SaturationSchema
from phasewatch.config.settings import Config, ModelProbeSettings, ProbeSettings, SaturationSettings, Target
from phasewatch.config.yaml_file import parse_mapping


def new_target(name: str, backend: str, url: str, **settings: Any) -> Target:
    """A target of nothing but these keys, with some settings in place of the resolved ones."""
    return replace(resolve_target({"name": name, "backend": backend, "url": url}, list_rules()), **settings)


def parse_config(text: str, source: str = "configuration") -> Config:
    """The configuration of a text, for the kinds of servers that there are."""
    raw, problems = parse_mapping(text, source)
    return resolve.validate_keys(raw, problems, list_rules(), Path())


def load_config(path: Path) -> Config:
    """The configuration of a file, for the kinds of servers that there are."""
    return resolve.load_config(path, list_rules())


def load_config_or_default(path: Path | None = None) -> Config:
    """The configuration of a file, or the built-in one for no file."""
    return resolve.load_config_or_default(path, list_rules())


def new_probe_settings(**settings: Any) -> ProbeSettings:
    """How an Ollama is probed by default, with some settings in place of the resolved ones."""
    return replace(resolve_section(ProbeSettings, ProbeSchema, (), Path()), **settings)


def new_model_probe(name: str = "", **settings: Any) -> ModelProbeSettings:
    """How one model is probed by default, with some settings in place of the resolved ones."""
    return replace(resolve_section(ModelProbeSettings, ModelProbeSchema, (), Path(), name=name), **settings)


def new_saturation_settings(**settings: Any) -> SaturationSettings:
    """When an engine counts as saturated by default, with some settings in place of the resolved ones."""
    return replace(resolve_section(SaturationSettings, SaturationSchema, (), Path()), **settings)
