"""The inventory becomes typed records: absent fields are None, wrong ones an error with their place."""

from typing import Any

import pytest

from phasewatch.backends.ollama.inventory import (
    Inventory,
    LoadedModel,
    OllamaVersion,
    choose_label,
    compute_clock_offset,
    is_current,
    parse_capabilities,
    parse_loaded_models,
    parse_stored_models,
    parse_version,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.snapshot.models import FOREVER_SECONDS, ModelDetails
from tests.support.ollama_facts import A, B, inventory, loaded, recorded, stored

ENTRY: dict[str, Any] = recorded("ps_two")["models"][0]
"""2026-11-29T16:53:31.365449235Z"""
EXPIRY = 1_795_971_211.365449


def parse_entry(**changes: Any) -> LoadedModel:
    """The recorded entry with some keys changed; None removes one."""
    entry = {key: value for key, value in {**ENTRY, **changes}.items() if value is not None}
    (model,) = parse_loaded_models({"models": [entry]})
    return model


def refuse(payload: Any) -> ScrapeError:
    with pytest.raises(ScrapeError) as error:
        parse_loaded_models(payload)
    return error.value


def test_a_version_is_its_three_numbers_and_that_of_a_custom_build_is_none() -> None:
    versions: list[tuple[str | None, OllamaVersion | None]] = [
        ("0.33.0", (0, 33, 0)),
        ("v0.12.6", (0, 12, 6)),
        ("0.33.0-rc2", (0, 33, 0)),
        ("0.9.3+fork", (0, 9, 3)),
        ("0.0.0", None),
        ("0.0.0-dirty", None),
        ("0.33", None),
        ("newest", None),
        ("", None),
        ("1.2.3456789", None),
        ("٣.٣.٣x", (3, 3, 3)),
        (None, None),
    ]
    for text, version in versions:
        assert parse_version(text) == version, text


def test_a_recorded_model_in_memory_has_all_its_fields() -> None:
    entries = recorded("ps_two")["models"]
    first, second = parse_loaded_models(recorded("ps_two"))
    assert (first.name, second.name) == ("tiny-b:latest", "tiny-a:latest")
    assert first.expires_at == pytest.approx(EXPIRY, abs=1e-5)
    assert first == LoadedModel(
        name="tiny-b:latest",
        digest=entries[0]["digest"],
        size=115_941_047.0,
        size_vram=0.0,
        context_length=4096,
        expires_at=first.expires_at,
        details=ModelDetails("gguf", "llama", "36.46M", "F16"),
    )


def test_an_expiry_is_the_same_moment_in_every_time_zone_and_with_any_digits() -> None:
    for text in (
        "2026-11-29T16:53:31.365449235Z",
        "2026-11-29T08:53:31.365449235-08:00",
        "2026-11-29T22:23:31.365449+05:30",
        "2026-11-30T00:53:31.36544924+08:00",
    ):
        assert parse_entry(expires_at=text).expires_at == pytest.approx(EXPIRY, abs=1e-5), text


def test_an_expiry_may_have_no_fraction() -> None:
    assert parse_entry(expires_at="2026-11-29T16:53:31Z").expires_at == int(EXPIRY)


def test_clocks_less_than_two_seconds_apart_count_as_equal() -> None:
    for date, offset in (
        (None, 0.0),
        (1000.0, 0.0),
        (1001.9, 0.0),
        (998.1, 0.0),
        (1003.0, 3.0),
        (997.0, -3.0),
        (4600.0, 3600.0),
    ):
        assert compute_clock_offset(date, 1000.0) == pytest.approx(offset), date


def test_a_model_kept_forever_expires_centuries_from_now() -> None:
    models = parse_loaded_models(recorded("ps_forever"))
    expiry = models[0].expires_at
    assert expiry is not None
    assert expiry - EXPIRY > FOREVER_SECONDS


def test_gos_zero_time_is_no_expiry() -> None:
    assert parse_entry(expires_at="0001-01-01T00:00:00Z").expires_at is None


def test_a_field_that_an_older_server_lacks_is_none() -> None:
    for key in ("size", "size_vram", "context_length", "expires_at"):
        assert getattr(parse_entry(**{key: None}), key) is None, key


def test_a_context_of_zero_is_unknown_and_zero_bytes_on_the_devices_are_zero() -> None:
    assert parse_entry(context_length=0).context_length is None
    assert parse_entry(size_vram=0).size_vram == 0.0


def test_a_wrong_value_is_an_error_with_its_place() -> None:
    cases: list[tuple[str, Any]] = [
        ("name", 3),
        ("name", ""),
        ("name", "half of a pair \ud800"),
        ("digest", None),
        ("digest", ["x"]),
        ("size", "115941047"),
        ("size", 1.5),
        ("size", True),
        ("size", -1),
        ("size", 2**63),
        ("size_vram", "0"),
        ("context_length", "4096"),
        ("context_length", True),
        ("context_length", -1),
        ("context_length", 2**31),
        ("expires_at", "soon"),
        ("expires_at", 1_795_971_211),
        ("expires_at", "2026-11-29T16:53:31"),
        ("expires_at", "2026-11-29"),
        ("expires_at", {"seconds": 1}),
    ]
    for key, value in cases:
        entry = {name: kept for name, kept in {**ENTRY, key: value}.items() if kept is not None}
        error = refuse({"models": [ENTRY, entry]})
        assert error.reason is Reason.PARSE, (key, value)
        assert error.message.startswith("/api/ps models[1]: "), (key, value)
        assert key in error.message, (key, value)


def test_an_entry_that_is_not_a_model_is_an_error_with_its_place() -> None:
    entries: list[Any] = [None, "tiny-a", 3, ["tiny-a"], {}]
    for entry in entries:
        error = refuse({"models": [entry]})
        assert (error.reason, error.message) == (Reason.PARSE, "/api/ps models[0]: name is no text"), entry


def test_a_server_without_a_list_of_models_is_not_an_ollama() -> None:
    payloads: list[Any] = [None, [], "Ollama is running", {"data": []}, 3]
    for payload in payloads:
        assert refuse(payload).reason is Reason.NO_METRICS, payload


def test_models_that_are_not_a_list_cannot_be_parsed() -> None:
    values: list[Any] = [{}, "none", 0, False]
    for models in values:
        assert refuse({"models": models}).reason is Reason.PARSE, models


def test_a_server_without_models_is_empty() -> None:
    empties: tuple[list[Any] | None, ...] = ([], None)
    for models in empties:
        assert parse_loaded_models({"models": models}) == (), models
        assert parse_stored_models({"models": models}) == {}, models


def test_details_of_a_wrong_type_are_empty() -> None:
    values: list[Any] = [None, [], "gguf", {"format": 3, "family": None, "parameter_size": "\udfff"}]
    for details in values:
        assert parse_entry(details=details).details == ModelDetails(), details


def test_an_entry_listed_twice_is_one_model() -> None:
    assert len(parse_loaded_models({"models": [ENTRY, ENTRY]})) == 1


def test_recorded_models_on_disk_are_listed_by_name() -> None:
    models = parse_stored_models(recorded("tags"))
    assert models["tiny-a:latest"].capabilities == frozenset({"completion"})
    assert models["tiny-a:latest"].details == ModelDetails("gguf", "llama", "36.46M", "F16")
    assert not any(model.remote for model in models.values())
    assert models.keys() == {entry["name"] for entry in recorded("tags")["models"]}


def test_a_remote_model_is_known_by_its_host_or_its_name() -> None:
    entries: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"remote_model": "", "remote_host": ""}, False),
        ({"remote_model": "big"}, True),
        ({"remote_host": "https://elsewhere.invalid:443"}, True),
        ({"name": "big:cloud"}, True),
        ({"name": "big:120b-cloud"}, True),
        ({"name": "cloud:latest"}, False),
    ]
    for entry, remote in entries:
        (model,) = parse_stored_models({"models": [{"name": "x:latest", "digest": A, **entry}]}).values()
        assert model.remote is remote, entry


def test_absent_capabilities_are_unknown_and_empty_ones_are_none() -> None:
    assert parse_capabilities(recorded("show")) == frozenset({"completion"})
    assert parse_capabilities({"capabilities": ["completion", 3, None]}) == frozenset({"completion"})
    assert parse_capabilities({"capabilities": []}) == frozenset()
    payloads: list[Any] = [{}, {"capabilities": "completion"}, None, []]
    for payload in payloads:
        assert parse_capabilities(payload) is None, payload


def test_a_wrong_value_of_a_model_on_disk_is_an_error_with_its_place() -> None:
    with pytest.raises(ScrapeError) as error:
        parse_stored_models({"models": [{"name": "x:latest"}]})
    assert error.value.message == "/api/tags models[0]: digest is no text"


def test_a_name_stands_for_the_model_on_disk() -> None:
    disk = {"a:latest": stored(digest=B)}
    assert is_current(loaded(digest=B), disk)
    assert not is_current(loaded(digest=A), disk)
    assert not is_current(loaded("b:latest", B), disk)
    assert not is_current(loaded(), None)


def test_a_recorded_model_that_was_pulled_again_since_has_its_digest_in_its_label() -> None:
    models = parse_loaded_models(recorded("ps_forever"))
    new, old = models[0], models[1]
    assert new.name == old.name
    listed = inventory(*models, disk=(stored(new.name, new.digest),))
    assert choose_label(new, listed) == "tiny-a:latest"
    assert choose_label(old, listed) == "tiny-a:latest@62a67e2ed896"


def test_the_label_of_a_model_is_its_name_if_no_other_has_it() -> None:
    assert choose_label(loaded(), Inventory((loaded(),))) == "a:latest"
    assert choose_label(loaded(), inventory(loaded(), disk=())) == "a:latest"
    assert choose_label(loaded(), inventory(loaded(), disk=(stored(digest=B),))) == f"a:latest@{A[:12]}"


def test_two_models_of_one_name_have_different_labels_before_the_disk_is_known() -> None:
    both = Inventory((loaded(), loaded(digest=B)))
    assert {choose_label(model, both) for model in both.loaded} == {f"a:latest@{A[:12]}", f"a:latest@{B[:12]}"}
