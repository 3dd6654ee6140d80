"""When a probe is sent, to whom, and for what reason one is not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from phasewatch.backends.ollama.inventory import Inventory, ModelKey
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.scheduling import (
    EXPIRY_MARGIN,
    LONGEST_LONG_PROBE,
    choose_model_probe,
    choose_probe,
    compute_quiet_seconds,
    draw_pace,
    is_loaded,
    list_loadable_models,
)
from phasewatch.backends.ollama.state import (
    ModelDescription,
    ModelState,
    OllamaState,
    ProbeMeasurement,
    Residency,
    record_skips,
)
from phasewatch.config.probe_settings import ModelProbe, ProbeSettings
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.probes import SkipReason
from tests.support.ollama_facts import WALL, A, B, figures, inventory, loaded, seeded, stored

NOW: Final = 1000.0
KEY: Final[ModelKey] = ("a:latest", A)
OTHER: Final[ModelKey] = ("b:latest", B)
SETTINGS: Final = ProbeSettings()


def resident(
    key: ModelKey = KEY, user_expires_at: float | None = WALL + 300, changed_at: float = 0.0, **facts: Any
) -> Residency:
    return Residency(
        witnessed=True,
        model=loaded(*key, **facts),
        user_expires_at=user_expires_at,
        probe_expires_at=None,
        changed_at=changed_at,
    )


def ready(residency: Residency | None = None, seen: Inventory | None = None, **facts: Any) -> OllamaState:
    """One model whose probe is due and that nobody uses."""
    there = residency or resident()
    model = ModelState(due=NOW - 1, residency=there, **facts)
    return OllamaState(inventory=seen or inventory(there.model), models={KEY: model})


def decide(
    state: OllamaState, settings: ProbeSettings = SETTINGS, now: float = NOW
) -> tuple[OllamaState, ProbeRequest | None]:
    """The state with its skips counted, and the request."""
    decision = choose_probe(state, settings, now, WALL, seeded(1))
    return record_skips(state, decision.skips, now, settings.interval), decision.request


def sent(state: OllamaState, settings: ProbeSettings = SETTINGS) -> ProbeRequest:
    _, request = decide(state, settings)
    assert request is not None
    return request


def skipped(state: OllamaState, settings: ProbeSettings = SETTINGS) -> SkipReason:
    """Why nothing is sent: the one reason that was counted."""
    after, request = decide(state, settings)
    assert request is None
    return only_reason(after)


def only_reason(state: OllamaState) -> SkipReason:
    (reason,) = [reason for record in state.records.values() for reason, count in record.skipped.items() if count]
    return reason


def told(**models: Any) -> ProbeSettings:
    return ProbeSettings(models={name.replace("_", ":"): ModelProbe(**facts) for name, facts in models.items()})


def test_a_model_in_memory_that_is_due_is_probed_with_its_context() -> None:
    request = sent(ready())
    assert (request.kind, request.key) == (RequestKind.SHORT, KEY)
    assert isinstance(request.body["options"], Mapping)
    assert request.body["options"]["num_ctx"] == 4096


def test_what_is_not_due_is_neither_probed_nor_skipped() -> None:
    state = ready()
    later = replace(state, models={KEY: replace(state.models[KEY], due=NOW + 0.1)})
    assert decide(later) == (later, None)


def test_before_the_first_look_nothing_is_due() -> None:
    assert decide(OllamaState()) == (OllamaState(), None)


def test_a_model_that_is_only_on_disk_is_not_even_due() -> None:
    gone = OllamaState(inventory=inventory(disk=(stored(),)), models={KEY: ModelState(due=0.0)})
    assert decide(gone) == (gone, None)


GONE_ON_DISK: Final = inventory(loaded(), disk=())
CASES: Final[list[tuple[str, OllamaState, SkipReason]]] = [
    ("it was quarantined", ready(quarantine="it reloads"), SkipReason.QUARANTINED),
    ("its name stands for another", ready(seen=inventory(loaded(), disk=(stored(digest=B),))), SkipReason.REPLACED),
    ("its name stands for nothing", ready(seen=GONE_ON_DISK), SkipReason.REPLACED),
    ("the disk was not looked at", ready(seen=Inventory((loaded(),))), SkipReason.REPLACED),
    ("it runs elsewhere", ready(seen=inventory(loaded(), disk=(stored(remote=True),))), SkipReason.REMOTE),
    (
        "it makes embeddings",
        ready(seen=inventory(loaded(), disk=(stored(capabilities=frozenset({"embedding"})),))),
        SkipReason.NO_COMPLETION,
    ),
    (
        "it makes images",
        ready(seen=inventory(loaded(), disk=(stored(capabilities=frozenset({"completion", "image"})),))),
        SkipReason.NO_COMPLETION,
    ),
    (
        "it can do nothing",
        ready(seen=inventory(loaded(), disk=(stored(capabilities=frozenset()),))),
        SkipReason.NO_COMPLETION,
    ),
    ("the server was busy", replace(ready(), backoff_until=NOW + 1), SkipReason.BACKOFF),
    ("probes have had their share", replace(ready(), pause_until=NOW + 1), SkipReason.BUDGET),
    ("its context is not known", ready(resident(context_length=None)), SkipReason.CONTEXT_UNKNOWN),
    ("its context holds no prompt", ready(resident(context_length=120)), SkipReason.CONTEXT_TOO_SMALL),
    ("its expiry is not known", ready(resident(expires_at=None)), SkipReason.EXPIRING),
    ("its users' expiry is not known", ready(resident(user_expires_at=None)), SkipReason.EXPIRING),
    ("its expiry has passed: a request runs", ready(resident(expires_at=WALL - 1)), SkipReason.ACTIVE),
    ("a request has just ended", ready(resident(changed_at=NOW - 2.9)), SkipReason.ACTIVE),
    ("it lives by probes alone", ready(resident(user_expires_at=WALL)), SkipReason.USERS_GONE),
    ("it leaves soon", ready(resident(expires_at=WALL + EXPIRY_MARGIN - 0.1)), SkipReason.EXPIRING),
    (
        "it leaves before two probes' time is over",
        ready(
            resident(expires_at=WALL + EXPIRY_MARGIN + 11),
            probe_seconds={RequestKind.SHORT: 1.0, RequestKind.LONG: 6.0},
        ),
        SkipReason.EXPIRING,
    ),
]


@pytest.mark.parametrize(("state", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_probe_that_would_harm_or_say_nothing_is_skipped_for_its_reason(
    state: OllamaState, reason: SkipReason
) -> None:
    assert skipped(state) is reason


JUST_SO: Final[list[tuple[str, OllamaState]]] = [
    ("the server has rested", replace(ready(), backoff_until=NOW, pause_until=NOW)),
    ("nothing was seen of users for long enough", ready(resident(changed_at=NOW - 3.0))),
    ("its users' time is not over yet", ready(resident(user_expires_at=WALL + 0.1))),
    ("it stays for the margin", ready(resident(expires_at=WALL + EXPIRY_MARGIN))),
    (
        "it stays for the margin and two probes",
        ready(
            resident(expires_at=WALL + EXPIRY_MARGIN + 12),
            probe_seconds={RequestKind.SHORT: 1.0, RequestKind.LONG: 6.0},
        ),
    ),
    ("an older server does not say what it can do", ready(seen=inventory(loaded(), disk=(stored(capabilities=None),)))),
]


@pytest.mark.parametrize("state", [case[1] for case in JUST_SO], ids=[case[0] for case in JUST_SO])
def test_at_the_edge_of_each_reason_a_probe_is_sent(state: OllamaState) -> None:
    sent(state)


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_a_model_expires_by_the_servers_clock(ahead: float) -> None:
    there = resident(user_expires_at=WALL + ahead + 300, expires_at=WALL + ahead + 300)
    assert sent(ready(there, replace(inventory(there.model), clock_offset=ahead))).key == KEY
    gone = resident(user_expires_at=WALL + ahead - 1, expires_at=WALL + ahead + 300)
    assert skipped(ready(gone, replace(inventory(gone.model), clock_offset=ahead))) is SkipReason.USERS_GONE


def test_what_a_model_can_do_is_taken_from_show_where_the_list_does_not_say() -> None:
    silent = ready(seen=inventory(loaded(), disk=(stored(capabilities=None),)))
    embedding = replace(silent, descriptions={A: ModelDescription(frozenset({"embedding"}), ModelCosts())})
    assert skipped(embedding) is SkipReason.NO_COMPLETION
    sent(replace(silent, descriptions={A: ModelDescription(frozenset({"completion"}), ModelCosts())}))
    sent(replace(silent, descriptions={A: ModelDescription(None, ModelCosts())}))


def test_a_skip_is_counted_when_its_reason_changes_and_once_an_interval() -> None:
    state, _ = decide(replace(ready(), backoff_until=NOW + 1e6))
    for second in range(1, 300):
        state, _ = decide(state, now=NOW + second)
    assert state.records[KEY[0]].skipped[SkipReason.BACKOFF] == 1
    state, _ = decide(state, now=NOW + 300)
    assert state.records[KEY[0]].skipped[SkipReason.BACKOFF] == 2
    state, _ = decide(replace(state, backoff_until=0.0, pause_until=NOW + 1e6), now=NOW + 301)
    assert state.records[KEY[0]].skipped[SkipReason.BUDGET] == 1
    state, _ = decide(replace(state, backoff_until=NOW + 1e6), now=NOW + 302)
    assert state.records[KEY[0]].skipped[SkipReason.BACKOFF] == 3


def test_the_longest_overdue_is_probed_first_and_one_that_is_skipped_holds_up_nobody() -> None:
    two = replace(
        ready(),
        inventory=inventory(loaded(), loaded(*OTHER)),
        models={
            KEY: ModelState(due=NOW - 1, residency=resident()),
            OTHER: ModelState(due=NOW - 2, residency=resident(OTHER)),
        },
    )
    assert sent(two).key == OTHER
    after, request = decide(replace(two, models={**two.models, OTHER: replace(two.models[OTHER], quarantine="x")}))
    assert request is not None
    assert request.key == KEY
    assert only_reason(after) is SkipReason.QUARANTINED


def test_a_model_that_the_operator_excludes_is_never_due() -> None:
    state = ready()
    assert decide(state, told(a_latest={"enabled": False})) == (state, None)
    assert decide(state, told(a={"enabled": False})) == (state, None)
    sent(state, told(b_latest={"enabled": False}))


def test_the_operators_word_is_found_with_and_without_the_tag_that_ollama_assumes() -> None:
    bare, tagged = ModelProbe(load=True), ModelProbe(enabled=False)
    assert choose_model_probe(ProbeSettings(models={"a": bare}), "a:latest") is bare
    assert choose_model_probe(ProbeSettings(models={"a": bare, "a:latest": tagged}), "a:latest") is tagged
    assert choose_model_probe(ProbeSettings(models={"a": bare}), "a:8b") == ModelProbe()
    assert choose_model_probe(ProbeSettings(models={"a:8b": bare}), "a:8b") is bare


def test_the_operators_context_makes_up_for_a_server_that_does_not_tell_it() -> None:
    request = sent(ready(resident(context_length=None)), told(a={"options": {"num_ctx": 512}}))
    assert isinstance(request.body["options"], Mapping)
    assert request.body["options"]["num_ctx"] == 512
    assert request.words == (512 - 48 - 64 - 24) // 8


def measured(**facts: Any) -> dict[str, Any]:
    """What is known after a short probe."""
    return {
        "tokens_per_word": 1.4,
        "measurements": {RequestKind.SHORT: ProbeMeasurement(NOW - 300, figures(**facts))},
        "long_due": NOW - 1,
    }


def test_a_long_probe_comes_after_a_short_one_when_its_time_has_come() -> None:
    assert sent(ready(**measured())).kind is RequestKind.LONG
    assert sent(ready(**{**measured(), "long_due": NOW + 1})).kind is RequestKind.SHORT
    assert sent(ready(**{**measured(), "measurements": {}})).kind is RequestKind.SHORT
    assert sent(ready(**{**measured(), "tokens_per_word": None})).kind is RequestKind.SHORT
    assert sent(ready(resident(context_length=700), **measured())).kind is RequestKind.SHORT


def test_a_long_probe_that_would_take_too_long_is_not_sent() -> None:
    """Ten times the short prompt's time and one output."""
    short = (LONGEST_LONG_PROBE - 1.0) / 10
    assert sent(ready(**measured(prompt_seconds=short - 0.01, decode_seconds=1.0))).kind is RequestKind.LONG
    assert sent(ready(**measured(prompt_seconds=short + 0.01, decode_seconds=1.0))).kind is RequestKind.SHORT


def empty(**facts: Any) -> OllamaState:
    """A server with nothing in memory, and a model on disk."""
    return OllamaState(inventory=inventory(disk=(stored(),)), models={KEY: ModelState(due=NOW - 1)}, **facts)


LOADING: Final = told(a={"load": True, "options": {"num_ctx": 8192}})


def test_a_model_that_may_be_loaded_is_loaded_as_the_operator_says_where_nothing_else_is() -> None:
    request = sent(empty(), LOADING)
    assert (request.kind, request.key) == (RequestKind.LOAD, KEY)
    assert request.body["options"] == {"num_ctx": 8192}
    full = replace(empty(), inventory=inventory(loaded(*OTHER), disk=(stored(), stored(*OTHER))))
    assert skipped(full, LOADING) is SkipReason.OTHERS_LOADED


def test_a_model_that_was_loaded_within_the_last_interval_is_not_loaded_again() -> None:
    waiting = ModelState(due=0.0, load_due=NOW + 1)
    state = OllamaState(inventory=inventory(disk=(stored(),)), models={KEY: waiting})
    assert decide(state, LOADING)[1] is None
    ready_again = replace(state, models={KEY: replace(waiting, load_due=NOW)})
    assert sent(ready_again, LOADING).kind is RequestKind.LOAD


def test_a_model_that_runs_elsewhere_or_makes_embeddings_is_not_loaded_either() -> None:
    for facts, reason in (
        ({"remote": True}, SkipReason.REMOTE),
        ({"capabilities": frozenset({"embedding"})}, SkipReason.NO_COMPLETION),
    ):
        state = replace(empty(), inventory=inventory(disk=(stored(**facts),)))
        assert skipped(state, LOADING) is reason
    assert skipped(empty(backoff_until=NOW + 1), LOADING) is SkipReason.BACKOFF


def test_only_what_is_on_disk_and_allowed_can_be_loaded() -> None:
    disk = inventory(disk=(stored(), stored("b:latest", B), stored("c:8b", "c" * 64)))
    settings = told(a={"load": True}, c_8b={"load": True}, d={"load": True})
    assert list(list_loadable_models(disk, settings)) == [KEY, ("c:8b", "c" * 64)]
    assert list(list_loadable_models(disk, SETTINGS)) == []
    assert list(list_loadable_models(Inventory(()), settings)) == []


def test_an_old_digest_is_not_loaded() -> None:
    state = replace(empty(), inventory=inventory(disk=(stored(digest=B),)))
    assert decide(state, LOADING) == (state, None)


def test_a_model_is_there_while_it_is_in_memory_whatever_its_name_stands_for() -> None:
    assert is_loaded(ready(), KEY)
    assert not is_loaded(ready(), OTHER)
    assert is_loaded(ready(seen=inventory(loaded(), disk=(stored(digest=B),))), KEY)
    assert not is_loaded(ready(seen=inventory(disk=(stored(),))), KEY)
    assert not is_loaded(OllamaState(), KEY)


def test_a_model_that_was_unloaded_at_the_last_moment_is_skipped_as_such() -> None:
    assert only_reason(record_skips(ready(), [(KEY, SkipReason.UNLOADED)], NOW, 300.0)) is SkipReason.UNLOADED
    assert record_skips(ready(), [(OTHER, SkipReason.UNLOADED)], NOW, 300.0) == ready()


def test_the_first_probe_comes_well_within_an_interval_and_at_another_time_on_each_exporter() -> None:
    for interval in (1.0, 10.0, 300.0, 86_400.0):
        found = [draw_pace(ProbeSettings(interval=interval), seeded(seed)) for seed in range(50)]
        assert all(0 < one.first_delay <= min(0.6 * interval, 18.0) for one in found)
        assert len({one.first_delay for one in found}) == 50
        assert {(one.interval, compute_quiet_seconds(one.interval)) for one in found} == {
            (interval, min(3.0, interval / 4))
        }
