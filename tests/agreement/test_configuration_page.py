"""docs/configuration.md lists the keys, defaults, mistakes and flags that there are, and nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from phasewatch.backends import find_backend
from phasewatch.base import units
from phasewatch.base.errors import ConfigError
from phasewatch.config.schema import FileSchema, TargetSchema
from phasewatch.config.settings import Target
from phasewatch.web.security import _WebSchema, load_web_config
from tests.support.command_line import COMMANDS, flags_of, help_text
from tests.support.documented_targets import CHAT, WORKSTATION
from tests.support.markdown import code, every_code, fences, page, tables, words
from tests.support.nested import key_paths
from tests.support.targets import load_config_or_default, parse_config

PAGE = page("docs/configuration.md")


def schema_of(annotation: Any) -> type[BaseModel] | None:
    """The schema of a mapping in an annotation such as `list[Schema] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((schema for part in get_args(annotation) if (schema := schema_of(part))), None)


def keys(schema: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a schema by its full path, as `targets[].name`."""
    for name, field in schema.model_fields.items():
        key = f"{path}.{name}" if path else name
        yield key, field
        child = schema_of(field.annotation)
        if child is not None:
            yield from keys(child, f"{key}[]" if str(field.annotation).startswith("list") else key)


def documented_keys() -> dict[str, list[str]]:
    """The rows of the tables of keys by full path; a heading such as `targets[].server` is what is before a key."""
    rows: dict[str, list[str]] = {}
    for heading, cells in tables(PAGE, "key", "type", "default", "example", "meaning"):
        path = ".".join([*every_code(heading), code(cells[0])])
        assert path not in rows
        rows[path] = cells
    return rows


FILE_KEYS = dict(keys(FileSchema))
KEYS = {**FILE_KEYS, **dict(keys(_WebSchema))}
DOCUMENTED = documented_keys()


def test_every_configuration_key_is_documented_and_nothing_else_is() -> None:
    assert DOCUMENTED.keys() == KEYS.keys()


def test_a_key_without_a_row_on_the_page_is_noticed() -> None:
    target = create_model("LongerTarget", __base__=TargetSchema, new_key=(bool, False))
    longer = create_model("LongerFile", __base__=FileSchema, targets=(list[target], ...))  # type: ignore[valid-type]
    assert dict(keys(longer)).keys() - DOCUMENTED.keys() == {"targets[].new_key"}


def test_the_default_of_every_key_is_the_documented_one() -> None:
    for path, field in KEYS.items():
        default = DOCUMENTED[path][2]
        assert is_default(default, path, field), f"{path}: documented {default}, in the schema {field.default}"


def is_default(documented: str, path: str, field: FieldInfo) -> bool:
    """Whether a cell of the column `default` is right."""
    if field.is_required():
        return documented == "required"
    if documented == "as top level":
        return path.removeprefix("targets[].") in KEYS
    if documented.startswith("as "):
        return f"targets[].{code(documented.removeprefix('as '))}" in KEYS
    return is_own_default(documented, field)


def is_own_default(documented: str, field: FieldInfo) -> bool:
    if field.default is None or field.default_factory is not None:
        return documented == "none"
    if isinstance(field.default, bool):
        return code(documented) == str(field.default).lower()
    if isinstance(field.default, int | float):
        written = code(documented)
        read = units.parse_size if written.endswith("B") else float if written[-1].isdigit() else units.parse_duration
        return bool(read(written) == field.default)
    return code(documented) == str(field.default)


def test_a_key_inherits_what_the_page_says() -> None:
    text = json.dumps({"interval": "1s", "targets": [required_keys(CHAT), required_keys(WORKSTATION)]})
    chat, workstation = parse_config(text).targets
    least = find_backend("ollama").rules.least_interval
    assert (chat.interval, workstation.interval) == (1.0, least)
    meaning = DOCUMENTED["targets[].interval"][4]
    assert f"without an interval of its own has at least `{least:g}s`" in meaning
    probe = {"load": True, "models": [{"name": "a"}, {"name": "b", "load": False}]}
    (target,) = parse_config(json.dumps({"targets": [{**required_keys(WORKSTATION), "probe": probe}]})).targets
    assert [target.probe.models[name].load for name in ("a", "b")] == [True, False]


def test_the_built_in_configuration_is_the_documented_one() -> None:
    documented = re.search(
        r"watches one vLLM at `(\S+)`, named `(\w+)`, and one Ollama at `(\S+)`, named `(\w+)`\. Both are optional",
        words("docs/configuration.md"),
    )
    assert documented
    targets = [(target.backend, target.url, target.name) for target in load_config_or_default().targets]
    assert targets == [("vllm", documented[1], documented[2]), ("ollama", documented[3], documented[4])]
    assert all(target.optional for target in load_config_or_default().targets)


def required_keys(target: Target) -> dict[str, Any]:
    return {"name": target.name, "backend": target.backend, "url": target.url}


def complete_example() -> Any:
    """The example that has every key."""
    _, complete = (text for text in fences(PAGE, "yaml") if text.count("targets:\n  - name:"))
    return yaml.safe_load(complete)


def test_the_example_with_every_key_has_every_key() -> None:
    assert set(key_paths(complete_example())) == FILE_KEYS.keys()


def test_no_key_of_the_example_with_every_key_is_without_effect() -> None:
    notes = parse_config(json.dumps(complete_example())).notes
    assert [note for note in notes if not note.message.startswith("cannot be read now")] == []


def test_the_example_of_every_key_is_valid() -> None:
    for path, cells in DOCUMENTED.items():
        if cells[3] and path in FILE_KEYS:
            assert problems_with(path, code(cells[3])) == (), path


def problems_with(path: str, example: str) -> tuple[str, ...]:
    """The mistakes in the example with every key when one of its keys has another value."""
    whole = complete_example()
    *parents, name = path.replace("[]", "").split(".")
    mapping = mapping_with(whole, parents, name)
    assert mapping, path
    mapping[name] = yaml.safe_load(example)
    return problems(json.dumps(whole))


def mapping_with(value: Any, parents: list[str], name: str) -> Any:
    """The mapping that has a key; of the entries of a list the first in which there is one."""
    if isinstance(value, list):
        return next((mapping for entry in value if (mapping := mapping_with(entry, parents, name))), None)
    if parents:
        return mapping_with(value[parents[0]], parents[1:], name) if parents[0] in value else None
    return value if name in value else None


def problems(text: str) -> tuple[str, ...]:
    """The mistakes in a configuration, none if it is valid."""
    try:
        parse_config(text)
    except ConfigError as error:
        return tuple(map(str, error.problems))
    return ()


def documented_messages(heading: str, head: str = "message") -> list[tuple[str, str]]:
    """What may be written, and the message that it causes, below a heading."""
    rows = tables(PAGE, "written", head)
    pairs = [(code(written), code(message)) for above, (written, message) in rows if above == heading]
    assert pairs, heading
    return pairs


def with_change(written: str) -> str:
    """A configuration of both kinds of targets in which one key is as written."""
    path, value = written.split(": ", maxsplit=1)
    changed: dict[str, Any] = {"targets": [required_keys(CHAT), required_keys(WORKSTATION)]}
    target = re.match(r"targets\[(\d)\]\.", path)
    mapping = changed["targets"][int(target[1])] if target else changed
    mapping[path[target.end() if target else 0 :]] = yaml.safe_load(value)
    return json.dumps(changed)


def test_every_mistake_causes_the_documented_message() -> None:
    for written, message in documented_messages("Mistakes"):
        assert problems(with_change(written)) == (message,), written


def test_every_note_is_the_documented_one() -> None:
    for written, note in documented_messages("Notes", "note"):
        assert [str(problem) for problem in parse_config(with_change(written)).notes] == [note], written


def test_every_mistake_in_a_web_configuration_causes_the_documented_message(tmp_path: Path) -> None:
    for written, message in documented_messages("Web configuration file"):
        (tmp_path / "web.yml").write_text(written, encoding="utf-8")
        with pytest.raises(ConfigError) as raised:
            load_web_config(tmp_path / "web.yml")
        assert [str(problem) for problem in raised.value.problems] == [message], written


@pytest.mark.parametrize(
    "text",
    [
        "targets:\n- {name: chat, backend: vllm, url: 'http://a'}\n- {name: chat, backend: vllm, url: 'http://b'}\n",
        "targets:\n- name: chat\n  backend: vllm\n  url: http://a\n  interval: 1s\n  interval: 2s\n",
        "targets: [\n",
    ],
    ids=["name twice", "key twice", "not YAML"],
)
def test_a_mistake_of_the_whole_file_causes_a_documented_message(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "phasewatch.yml")
    assert f"\n    {raised.value.problems[0]}\n" in PAGE


def test_the_web_configuration_on_the_page_has_every_key_and_is_valid() -> None:
    (text,) = (text for text in fences(PAGE, "yaml") if "tls_server_config" in text)
    assert set(key_paths(yaml.safe_load(text))) - {"basic_auth_users.prometheus"} == dict(keys(_WebSchema)).keys()
    _WebSchema.model_validate(yaml.safe_load(text))


def test_the_help_of_every_command_is_the_documented_one() -> None:
    for command in (None, *COMMANDS):
        heading = f"\n### phasewatch{f' {command}' if command else ''}\n"
        (text,) = fences(PAGE.split(heading)[1].split("\n### ")[0], "")
        # Releases of Python break lines in different places.
        assert "".join(text.split()) == "".join(help_text(command).split()), command


def test_every_flag_and_variable_is_documented_and_nothing_else_is() -> None:
    flags = {command: flags_of(command) for command in COMMANDS}
    documented: dict[str, dict[str, str]] = {command: {} for command in COMMANDS}
    for _, (flag, variable, commands, default, *_) in tables(
        PAGE, "flag", "environment", "commands", "default", "meaning"
    ):
        for command in commands.split(", "):
            documented[command][code(flag)] = code(variable)
            assert is_flag_default(default, flags[command][code(flag)][1], command), (command, flag)
    assert documented == {
        command: {name: variable for name, (variable, _) in entries.items()} for command, entries in flags.items()
    }


def is_flag_default(documented: str, default: str, command: str) -> bool:
    """Whether a cell of the column `default` agrees with the help of a command."""
    if default == "required":
        return bool(re.search(rf"^required$|required by {command}\b", documented))
    if default:
        return default in every_code(documented)
    return bool(re.search(r"\b(?:none|off)\b", documented))
