"""What an Ollama lists becomes typed facts; what is not there stays unknown, what is wrong is told with its place."""

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


def one(**changes: Any) -> LoadedModel:
    """The recorded entry with some keys changed; None takes one away."""
    entry = {key: value for key, value in {**ENTRY, **changes}.items() if value is not None}
    (model,) = parse_loaded_models({"models": [entry]})
    return model


def refusal(answer: Any) -> ScrapeError:
    with pytest.raises(ScrapeError) as told:
        parse_loaded_models(answer)
    return told.value


@pytest.mark.parametrize(
    ("text", "version"),
    [
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
    ],
)
def test_a_version_is_its_three_numbers_and_one_of_a_build_of_ones_own_is_none(
    text: str | None, version: OllamaVersion | None
) -> None:
    assert parse_version(text) == version


def test_a_recorded_model_in_memory_is_read_with_all_that_is_told_of_it() -> None:
    told = recorded("ps_two")["models"]
    first, second = parse_loaded_models(recorded("ps_two"))
    assert (first.name, second.name) == ("tiny-b:latest", "tiny-a:latest")
    assert first.expires_at == pytest.approx(EXPIRY, abs=1e-5)
    assert first == LoadedModel(
        name="tiny-b:latest",
        digest=told[0]["digest"],
        size=115_941_047.0,
        size_vram=0.0,
        context_length=4096,
        expires_at=first.expires_at,
        details=ModelDetails("gguf", "llama", "36.46M", "F16"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29T16:53:31.365449235Z",
        "2026-11-29T08:53:31.365449235-08:00",
        "2026-11-29T22:23:31.365449+05:30",
        "2026-11-30T00:53:31.36544924+08:00",
    ],
)
def test_an_expiry_is_the_same_moment_in_every_time_zone_and_with_any_digits(text: str) -> None:
    assert one(expires_at=text).expires_at == pytest.approx(EXPIRY, abs=1e-5)


def test_an_expiry_without_a_fraction_is_read() -> None:
    assert one(expires_at="2026-11-29T16:53:31Z").expires_at == int(EXPIRY)


@pytest.mark.parametrize(
    ("date", "ahead"),
    [(None, 0.0), (1000.0, 0.0), (1001.9, 0.0), (998.1, 0.0), (1003.0, 3.0), (997.0, -3.0), (4600.0, 3600.0)],
)
def test_clocks_that_may_agree_to_a_second_count_as_equal(date: float | None, ahead: float) -> None:
    assert compute_clock_offset(date, 1000.0) == pytest.approx(ahead)


def test_a_model_kept_for_ever_expires_centuries_from_now() -> None:
    models = parse_loaded_models(recorded("ps_forever"))
    expiry = models[0].expires_at
    assert expiry is not None
    assert expiry - EXPIRY > FOREVER_SECONDS


def test_gos_zero_time_says_that_the_expiry_is_not_known() -> None:
    assert one(expires_at="0001-01-01T00:00:00Z").expires_at is None


@pytest.mark.parametrize("key", ["size", "size_vram", "context_length", "expires_at"])
def test_what_an_older_server_does_not_tell_is_not_known(key: str) -> None:
    assert getattr(one(**{key: None}), key) is None


def test_a_context_of_0_is_not_known_but_0_bytes_on_the_devices_are_told() -> None:
    assert one(context_length=0).context_length is None
    assert one(size_vram=0).size_vram == 0.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
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
    ],
)
def test_a_wrong_value_is_told_with_its_place(key: str, value: Any) -> None:
    entry = {name: kept for name, kept in {**ENTRY, key: value}.items() if kept is not None}
    told = refusal({"models": [ENTRY, entry]})
    assert told.reason is Reason.PARSE
    assert told.message.startswith("/api/ps models[1]: ")
    assert key in told.message


@pytest.mark.parametrize("entry", [None, "tiny-a", 3, ["tiny-a"], {}])
def test_an_entry_that_is_no_model_is_told_with_its_place(entry: Any) -> None:
    told = refusal({"models": [entry]})
    assert (told.reason, told.message) == (Reason.PARSE, "/api/ps models[0]: name is no text")


@pytest.mark.parametrize("answer", [None, [], "Ollama is running", {"data": []}, 3])
def test_a_server_that_lists_no_models_is_no_ollama(answer: Any) -> None:
    assert refusal(answer).reason is Reason.NO_METRICS


@pytest.mark.parametrize("models", [{}, "none", 0, False])
def test_models_that_are_no_list_cannot_be_read(models: Any) -> None:
    assert refusal({"models": models}).reason is Reason.PARSE


@pytest.mark.parametrize("models", [[], None])
def test_a_server_without_models_is_empty(models: list[Any] | None) -> None:
    assert parse_loaded_models({"models": models}) == ()
    assert parse_stored_models({"models": models}) == {}


@pytest.mark.parametrize("details", [None, [], "gguf", {"format": 3, "family": None, "parameter_size": "\udfff"}])
def test_details_of_a_wrong_kind_are_empty(details: Any) -> None:
    assert one(details=details).details == ModelDetails()


def test_an_entry_that_is_listed_twice_is_one_model() -> None:
    assert len(parse_loaded_models({"models": [ENTRY, ENTRY]})) == 1


def test_recorded_models_on_disk_are_read_by_name() -> None:
    models = parse_stored_models(recorded("tags"))
    assert models["tiny-a:latest"].capabilities == frozenset({"completion"})
    assert models["tiny-a:latest"].details == ModelDetails("gguf", "llama", "36.46M", "F16")
    assert not any(model.remote for model in models.values())
    assert models.keys() == {entry["name"] for entry in recorded("tags")["models"]}


@pytest.mark.parametrize(
    ("entry", "remote"),
    [
        ({}, False),
        ({"remote_model": "", "remote_host": ""}, False),
        ({"remote_model": "big"}, True),
        ({"remote_host": "https://elsewhere.invalid:443"}, True),
        ({"name": "big:cloud"}, True),
        ({"name": "big:120b-cloud"}, True),
        ({"name": "cloud:latest"}, False),
    ],
)
def test_a_model_that_runs_elsewhere_is_known_by_its_host_or_its_name(entry: dict[str, Any], remote: bool) -> None:
    (model,) = parse_stored_models({"models": [{"name": "x:latest", "digest": A, **entry}]}).values()
    assert model.remote is remote


def test_capabilities_that_are_not_told_are_not_known() -> None:
    assert parse_capabilities(recorded("show")) == frozenset({"completion"})
    assert parse_capabilities({"capabilities": ["completion", 3, None]}) == frozenset({"completion"})
    assert parse_capabilities({"capabilities": []}) == frozenset()
    silents: list[Any] = [{}, {"capabilities": "completion"}, None, []]
    for silent in silents:
        assert parse_capabilities(silent) is None


def test_a_wrong_value_of_a_model_on_disk_is_told_with_its_place() -> None:
    with pytest.raises(ScrapeError) as told:
        parse_stored_models({"models": [{"name": "x:latest"}]})
    assert told.value.message == "/api/tags models[0]: digest is no text"


def test_a_name_stands_for_what_is_on_disk_under_it() -> None:
    disk = {"a:latest": stored(digest=B)}
    assert is_current(loaded(digest=B), disk)
    assert not is_current(loaded(digest=A), disk)
    assert not is_current(loaded("b:latest", B), disk)
    assert not is_current(loaded(), None)


def test_the_recorded_name_that_is_in_memory_twice_has_its_digest_where_it_was_pulled_anew_since() -> None:
    models = parse_loaded_models(recorded("ps_forever"))
    new, old = models[0], models[1]
    assert new.name == old.name
    found = inventory(*models, disk=(stored(new.name, new.digest),))
    assert choose_label(new, found) == "tiny-a:latest"
    assert choose_label(old, found) == "tiny-a:latest@62a67e2ed896"


def test_a_model_is_called_by_its_name_where_nobody_else_has_it() -> None:
    assert choose_label(loaded(), Inventory((loaded(),))) == "a:latest"
    assert choose_label(loaded(), inventory(loaded(), disk=())) == "a:latest"
    assert choose_label(loaded(), inventory(loaded(), disk=(stored(digest=B),))) == f"a:latest@{A[:12]}"


def test_two_of_one_name_are_told_apart_before_the_disk_was_looked_at() -> None:
    both = Inventory((loaded(), loaded(digest=B)))
    assert {choose_label(model, both) for model in both.loaded} == {f"a:latest@{A[:12]}", f"a:latest@{B[:12]}"}
