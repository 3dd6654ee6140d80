"""From the file to settings: a YAML file in, one validated and immutable `Config` out.

Resolution is generic: the value of a key becomes the field of the same name, so that no key can be accepted and then
ignored. `load_config` and `validate_keys` return frozen dataclasses in base units, in which each target has its
defaults and the keys of the whole file, or raise one `ConfigError` with all mistakes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.config.backend_rules import Rules
from phasewatch.config.checks import find_contradictions, find_notes, find_repeated_names
from phasewatch.config.schema import FileSchema, ModelProbeSchema, TargetSchema, get_section, list_sections
from phasewatch.config.settings import Config, ModelProbeSettings, ProbeSettings, Target
from phasewatch.config.yaml_file import describe_error, read_mapping

SettingsClass = TypeVar("SettingsClass")

_SECRET_KEYS: Final = frozenset({"authorization", "tls_config", "url", "device_from"})
"""Keys whose values, and those below them, are never repeated in a message."""


def load_config(path: Path, rules: Rules) -> Config:
    """Read and validate a configuration file.

    Args:
        path: the file; relative paths in it start from its folder.
        rules: rules of each kind of server.

    Raises:
        ConfigError: with all mistakes.
    """
    return validate_keys(*read_mapping(path), rules, base=path.parent)


def load_config_or_default(path: Path | None, rules: Rules) -> Config:
    """The configuration of a file; without a file, one optional target for each kind of server with a default address.

    Raises:
        ConfigError: with all mistakes.
    """
    if path is not None:
        return load_config(path, rules)
    urls = {rule.name: rule.default_url for rule in rules.values() if rule.default_url is not None}
    targets = [{"name": name, "backend": name, "url": url, "optional": True} for name, url in urls.items()]
    return validate_keys({"targets": targets}, [], rules, base=Path())


def resolve_target(keys: Mapping[str, Any], rules: Rules) -> Target:
    """One target from its keys alone, written as in a file.

    Raises:
        ConfigError: with all mistakes.
    """
    (target,) = validate_keys({"targets": [dict(keys)]}, [], rules, base=Path()).targets
    return target


def choose_model_probe(probe: ProbeSettings, model: str) -> ModelProbeSettings:
    """The probe settings of one model. A configured name without a tag means `latest`, as it does for Ollama.

    Args:
        probe: probe settings of the target.
        model: name of the model, as the server reports it.
    """
    return probe.models.get(model) or probe.models.get(model.removesuffix(":latest")) or _UNNAMED_MODEL


def validate_keys(raw: dict[Any, Any], problems: list[Problem], rules: Rules, base: Path) -> Config:
    """The configuration from the keys of a file.

    Args:
        raw: the keys.
        problems: mistakes that reading them has found.
        rules: rules of each kind of server.
        base: folder that relative paths start from.

    Raises:
        ConfigError: with all mistakes.
        TypeError: the file has a key that no target takes over, so that it would be accepted and ignored.
    """
    ignored = FileSchema.model_fields.keys() - {"targets"} - TargetSchema.model_fields.keys()
    if ignored:
        raise TypeError(f"no target takes over these keys of {FileSchema.__name__}: {', '.join(sorted(ignored))}")
    problems += [*find_repeated_names(raw.get("targets")), *find_contradictions(raw, rules)]
    try:
        file = FileSchema.model_validate(raw, context={"backends": tuple(rules)})
    except ValidationError as error:
        sections = list_sections(FileSchema)
        errors = error.errors(include_url=False)
        problems += [describe_error(details, FileSchema, sections, _SECRET_KEYS) for details in errors]
        raise ConfigError(problems) from error
    if problems:
        raise ConfigError(problems)
    return Config(
        targets=tuple(_resolve_target(target, file, rules, base) for target in file.targets),
        notes=tuple(find_notes(file, rules, base)),
    )


def _resolve_target(target: TargetSchema, file: FileSchema, rules: Rules, base: Path) -> Target:
    least = rules[target.backend].least_interval
    overrides = {} if target.interval is not None else {"interval": max(file.interval, least)}
    return resolve_section(Target, TargetSchema, (target, file), base, **overrides)


def resolve_section(
    settings: type[SettingsClass],
    schema: type[BaseModel],
    sections: Sequence[BaseModel],
    base: Path,
    **overrides: object,
) -> SettingsClass:
    """The settings of a section: each field has the value of the key of the same name.

    Args:
        settings: the dataclass to create.
        schema: the schema of the section, with the defaults of keys that are not given.
        sections: the sections of a file that may hold the keys, the most specific first.
        base: folder that relative paths start from.
        **overrides: values of fields that do not follow from these sections alone.

    Raises:
        TypeError: the fields of the dataclass are not the keys of the schema.
    """
    types = get_type_hints(settings)
    if types.keys() != schema.model_fields.keys():
        differing = ", ".join(sorted(types.keys() ^ schema.model_fields.keys()))
        raise TypeError(f"{schema.__name__} and {settings.__name__} differ in: {differing}")
    values = {
        name: _resolve_key(name, annotation, schema, sections, base)
        for name, annotation in types.items()
        if name not in overrides
    }
    return settings(**values, **overrides)


def _resolve_key(name: str, annotation: Any, schema: type[BaseModel], sections: Sequence[BaseModel], base: Path) -> Any:
    """The value of one field: that of the most specific section with the key, or else the default."""
    values = [value for section in sections if (value := _get_given(section, name)) is not None]
    optional = NoneType in get_args(annotation)
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType] if optional else [annotation]
    below = get_section(schema, name)
    if is_dataclass(kinds[0]):
        absent = optional and not values
        return None if absent else resolve_section(kinds[0], below, values, base)  # type: ignore[arg-type]  # a class
    if below is not None:
        return _resolve_mapping(kinds[0], below, values[0] if values else (), sections, base)
    value = values[0] if values else _find_default(name, (schema, *map(type, sections)))
    if isinstance(value, Path):
        return base / value
    if value is not None and isinstance(kinds[0], type) and issubclass(kinds[0], Enum):
        return kinds[0](value)
    return value


def _find_default(name: str, schemas: Iterable[type[BaseModel]]) -> Any:
    """The default of a key in the first schema that has one, the most specific schema first."""
    defaults = (schema.model_fields[name].get_default() for schema in schemas if name in schema.model_fields)
    return next((default for default in defaults if default is not None), None)


def _get_given(section: BaseModel, name: str) -> Any:
    """The value of a key that is given in a section; None if it is not given."""
    return getattr(section, name) if name in section.model_fields_set else None


def _resolve_mapping(
    annotation: Any, schema: type[BaseModel], value: Any, sections: Sequence[BaseModel], base: Path
) -> Mapping[str, Any]:
    """A mapping from a list or a section.

    A list of named entries becomes a mapping by name; its entries inherit keys from the sections around the list. A
    section becomes the mapping of the keys that are given in it.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    _, kind = get_args(annotation)
    entries = {entry.name: (entry, *sections) for entry in value}
    return {name: resolve_section(kind, schema, chain, base, name=name) for name, chain in entries.items()}


_UNNAMED_MODEL: Final = resolve_section(ModelProbeSettings, ModelProbeSchema, (), Path(), name="")
"""Probe settings of models that the configuration does not name."""
