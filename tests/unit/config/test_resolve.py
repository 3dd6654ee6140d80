"""From the schema to settings: by name, so that no key can be accepted and then ignored."""

from dataclasses import fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel, create_model

from phasewatch.config import resolve
from phasewatch.config.resolve import choose_model_probe, resolve_section
from phasewatch.config.schema import FileSchema, ProbeSchema, TargetSchema, get_section
from phasewatch.config.settings import ProbeSettings, Target
from tests.support.targets import new_model_probe, new_probe_settings, parse_config

TEXT = "targets: [{name: chat, backend: vllm, url: 'http://h'}]"


def paired_sections(settings: type[Any], schema: type[BaseModel]) -> list[tuple[type[Any], type[BaseModel]]]:
    """A dataclass and its schema, with all that lie below them."""
    pairs = [(settings, schema)]
    for name, annotation in get_type_hints(settings).items():
        section = get_section(schema, name)
        below = [kind for kind in (annotation, *get_args(annotation)) if is_dataclass(kind)]
        if section is not None and below:
            pairs += paired_sections(below[0], section)  # type: ignore[arg-type]  # a class
    return pairs


def test_every_key_has_a_setting_of_its_name_and_every_setting_a_key() -> None:
    pairs = paired_sections(Target, TargetSchema)
    assert len(pairs) == 11
    for settings, schema in pairs:
        assert {field.name for field in fields(settings)} == schema.model_fields.keys(), settings.__name__


def test_a_key_that_a_target_shares_with_the_file_means_the_same_in_both() -> None:
    shared = FileSchema.model_fields.keys() & TargetSchema.model_fields.keys()
    assert shared == {"interval", "window", "timeout", "body_size_limit", "saturation", "objectives"}


def test_a_key_without_a_setting_is_refused_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    longer = create_model("LongerSchema", __base__=TargetSchema, new_key=(bool, False))
    monkeypatch.setattr(resolve, "TargetSchema", longer)
    with pytest.raises(TypeError, match=r"^LongerSchema and Target differ in: new_key$"):
        parse_config(TEXT)


def test_a_key_of_the_whole_file_that_no_target_takes_over_is_refused_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolve, "FileSchema", create_model("LongerFile", __base__=FileSchema, new_key=(bool, False)))
    with pytest.raises(TypeError, match=r"^no target takes over these keys of LongerFile: new_key$"):
        parse_config(TEXT)


def test_a_key_of_a_section_without_a_setting_is_refused_and_named() -> None:
    longer = create_model("LongerSchema", __base__=ProbeSchema, new_key=(bool, False))
    with pytest.raises(TypeError, match=r"^LongerSchema and ProbeSettings differ in: new_key$"):
        resolve_section(ProbeSettings, longer, (), Path())


def test_a_setting_without_a_key_is_refused_and_named() -> None:
    longer = make_dataclass("LongerSettings", [("new_setting", bool)], bases=(ProbeSettings,), frozen=True)
    with pytest.raises(TypeError, match=r"^ProbeSchema and LongerSettings differ in: new_setting$"):
        resolve_section(longer, ProbeSchema, (), Path())


def test_null_means_what_leaving_the_key_out_means() -> None:
    (plain,) = parse_config(TEXT).targets
    for key in TargetSchema.model_fields.keys() - {"name", "backend", "url", "optional"}:
        (target,) = parse_config(TEXT.replace("}]", f", {key}: null}}]")).targets
        assert target == plain, key


def test_a_model_that_the_configuration_does_not_name_is_probed_and_never_loaded() -> None:
    probe = new_probe_settings(load=True, models={"a": new_model_probe("a", enabled=False)})
    assert choose_model_probe(probe, "b") == new_model_probe(enabled=True, load=False, options={})
    for name in ("a", "a:latest"):
        assert not choose_model_probe(probe, name).enabled, name
