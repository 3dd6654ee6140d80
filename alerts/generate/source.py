"""Sources that are lists of entries: thresholds.yml and objectives.yml."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.config.yaml_file import describe_error, read_mapping

Schema = TypeVar("Schema", bound=BaseModel)


def read_source(
    path: Path, schema: type[Schema], sections: Mapping[str, type[BaseModel]]
) -> tuple[Schema, list[Problem]]:
    """Read a file by its schema.

    Args:
        path: the file.
        schema: schema of the whole file.
        sections: the schema of the entries below each key.

    Returns:
        The content, and the keys that are given twice.

    Raises:
        ConfigError: the file cannot be read or does not fit the schema; carries every problem.
    """
    raw, problems = read_mapping(path)
    try:
        return schema.model_validate(raw), problems
    except ValidationError as error:
        misfits = [describe_error(details, schema, sections, frozenset()) for details in error.errors()]
        raise ConfigError([*problems, *misfits]) from error
