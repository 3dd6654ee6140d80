"""Which probe is sent when, for what reason none is, and when the next one is due."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from phasewatch.backends import ollama
from phasewatch.backends.ollama.inventory import Inventory, ModelKey
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.scheduling import (
    EXPIRY_MARGIN,
    LONGEST_LONG_PROBE,
    SOON_SECONDS,
    Occasion,
    ProbeDecision,
    choose_probe,
    compute_quiet_seconds,
    draw_pace,
    is_loaded,
    list_loadable_models,
    schedule_next_probe,
)
from phasewatch.backends.ollama.state import (
    ModelDescription,
    ModelState,
    ObservedTraffic,
    OllamaState,
    ProbeMeasurement,
    Residency,
    record_skips,
)
from phasewatch.config.resolve import choose_model_probe
from phasewatch.config.settings import ProbeSettings
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.models import FOREVER_SECONDS
from phasewatch.snapshot.probes import SkipReason
from tests.support.ollama_facts import WALL, A, B, figures, inventory, loaded, seeded, stored
from tests.support.targets import new_model_probe, new_probe_settings

NOW: Final = 1000.0
KEY: Final[ModelKey] = ("a:latest", A)
OTHER: Final[ModelKey] = ("b:latest", B)
SETTINGS: Final = new_probe_settings()


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
    """A server with one model whose probe is due and that nobody uses."""
    residency = residency or resident()
    model = ModelState(due=NOW - 1, residency=residency, **facts)
    return OllamaState(inventory=seen or inventory(residency.model), models={KEY: model})


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
    """The one reason that was counted, where nothing is sent."""
    after, request = decide(state, settings)
    assert request is None
    return only_reason(after)


def only_reason(state: OllamaState) -> SkipReason:
    (reason,) = [reason for record in state.records.values() for reason, count in record.skipped.items() if count]
    return reason


def model_settings(**models: Any) -> ProbeSettings:
    return new_probe_settings(
        models={name.replace("_", ":"): new_model_probe(**facts) for name, facts in models.items()}
    )


def test_a_due_model_in_memory_is_probed_with_its_own_context() -> None:
    request = sent(ready())
    assert (request.kind, request.key) == (RequestKind.SHORT, KEY)
    assert isinstance(request.body["options"], Mapping)
    assert request.body["options"]["num_ctx"] == 4096


def test_a_model_that_is_not_due_is_neither_probed_nor_skipped() -> None:
    state = ready()
    later = replace(state, models={KEY: replace(state.models[KEY], due=NOW + 0.1)})
    assert decide(later) == (later, None)


def test_nothing_is_due_before_the_first_observation() -> None:
    assert decide(OllamaState()) == (OllamaState(), None)


def test_a_model_on_disk_alone_is_not_due() -> None:
    state = OllamaState(inventory=inventory(disk=(stored(),)), models={KEY: ModelState(due=0.0)})
    assert decide(state) == (state, None)


NAMELESS: Final = inventory(loaded(), disk=())
SKIPPED: Final[list[tuple[str, OllamaState, SkipReason]]] = [
    ("it is quarantined", ready(quarantine="it reloads"), SkipReason.QUARANTINED),
    (
        "its name stands for another model",
        ready(seen=inventory(loaded(), disk=(stored(digest=B),))),
        SkipReason.REPLACED,
    ),
    ("its name stands for nothing", ready(seen=NAMELESS), SkipReason.REPLACED),
    ("the models on disk are unknown", ready(seen=Inventory((loaded(),))), SkipReason.REPLACED),
    ("it runs on another machine", ready(seen=inventory(loaded(), disk=(stored(remote=True),))), SkipReason.REMOTE),
    (
        "it computes embeddings",
        ready(seen=inventory(loaded(), disk=(stored(capabilities=frozenset({"embedding"})),))),
        SkipReason.NO_COMPLETION,
    ),
    (
        "it draws images",
        ready(seen=inventory(loaded(), disk=(stored(capabilities=frozenset({"completion", "image"})),))),
        SkipReason.NO_COMPLETION,
    ),
    (
        "it has no capabilities",
        ready(seen=inventory(loaded(), disk=(stored(capabilities=frozenset()),))),
        SkipReason.NO_COMPLETION,
    ),
    ("the server was busy", replace(ready(), backoff_until=NOW + 1), SkipReason.BACKOFF),
    ("probes have used up their budget", replace(ready(), pause_until=NOW + 1), SkipReason.BUDGET),
    ("its context is unknown", ready(resident(context_length=None)), SkipReason.CONTEXT_UNKNOWN),
    ("its context is too small for a prompt", ready(resident(context_length=120)), SkipReason.CONTEXT_TOO_SMALL),
    ("its expiry is unknown", ready(resident(expires_at=None)), SkipReason.EXPIRING),
    ("no request of a user is known", ready(resident(user_expires_at=None)), SkipReason.USERS_GONE),
    (
        "no request of a user is known, and it stays for a hundred years",
        ready(resident(user_expires_at=None, expires_at=WALL + FOREVER_SECONDS)),
        SkipReason.USERS_GONE,
    ),
    (
        "a slot served a user less than an interval ago",
        ready(traffic=ObservedTraffic(NOW - 300, NOW - 0.1)),
        SkipReason.ACTIVE,
    ),
    (
        "its slots have been read for less than an interval",
        ready(traffic=ObservedTraffic(NOW - 299, NOW)),
        SkipReason.ACTIVE,
    ),
    ("its expiry has passed: a request is running", ready(resident(expires_at=WALL - 1)), SkipReason.ACTIVE),
    ("a request has just ended", ready(resident(changed_at=NOW - 2.9)), SkipReason.ACTIVE),
    ("only probes keep it in memory", ready(resident(user_expires_at=WALL)), SkipReason.USERS_GONE),
    ("it expires soon", ready(resident(expires_at=WALL + EXPIRY_MARGIN - 0.1)), SkipReason.EXPIRING),
    (
        "it expires within the time of two probes",
        ready(
            resident(expires_at=WALL + EXPIRY_MARGIN + 11),
            probe_seconds={RequestKind.SHORT: 1.0, RequestKind.LONG: 6.0},
        ),
        SkipReason.EXPIRING,
    ),
]


def test_a_probe_that_would_harm_or_measure_nothing_is_skipped_with_its_reason() -> None:
    for case, state, reason in SKIPPED:
        after, request = decide(state)
        assert request is None, case
        assert only_reason(after) is reason, case


def test_choosing_a_probe_counts_nothing() -> None:
    """The question can be asked again and again: counting is a step of its own."""
    for case, state, reason in SKIPPED:
        decision = choose_probe(state, SETTINGS, NOW, WALL, seeded(1))
        assert decision == ProbeDecision(None, ((KEY, reason),)), case
        assert choose_probe(state, SETTINGS, NOW, WALL, seeded(1)) == decision, case


ALLOWED: Final[list[tuple[str, OllamaState]]] = [
    ("backoff and pause are over", replace(ready(), backoff_until=NOW, pause_until=NOW)),
    ("there was no sign of users for long enough", ready(resident(changed_at=NOW - 3.0))),
    ("its expiry by users is yet to come", ready(resident(user_expires_at=WALL + 0.1))),
    ("its slots have been idle for an interval", ready(traffic=ObservedTraffic(NOW - 301, NOW - 1))),
    ("it is kept for ever", ready(resident(user_expires_at=None, expires_at=WALL + 292 * 365.25 * 86400))),
    (
        "it is kept for ever, and was to leave before",
        ready(resident(user_expires_at=WALL - 1, expires_at=WALL + 292 * 365.25 * 86400)),
    ),
    ("it stays loaded for the margin", ready(resident(expires_at=WALL + EXPIRY_MARGIN))),
    (
        "it stays loaded for the margin and two probes",
        ready(
            resident(expires_at=WALL + EXPIRY_MARGIN + 12),
            probe_seconds={RequestKind.SHORT: 1.0, RequestKind.LONG: 6.0},
        ),
    ),
    ("an older server lists no capabilities", ready(seen=inventory(loaded(), disk=(stored(capabilities=None),)))),
]


def test_a_probe_is_sent_at_the_edge_of_each_reason() -> None:
    for case, state in ALLOWED:
        _, request = decide(state)
        assert request is not None, case


def test_a_model_expires_by_the_servers_clock() -> None:
    for offset in (-3600.0, 3600.0):
        used = resident(user_expires_at=WALL + offset + 300, expires_at=WALL + offset + 300)
        _, request = decide(ready(used, replace(inventory(used.model), clock_offset=offset)))
        assert request is not None, offset
        assert request.key == KEY, offset
        unused = resident(user_expires_at=WALL + offset - 1, expires_at=WALL + offset + 300)
        after, request = decide(ready(unused, replace(inventory(unused.model), clock_offset=offset)))
        assert (request, only_reason(after)) == (None, SkipReason.USERS_GONE), offset


def test_capabilities_come_from_show_if_the_list_has_none() -> None:
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


def test_the_longest_overdue_model_is_probed_first_and_a_skipped_one_blocks_no_other() -> None:
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


def test_when_a_probe_is_due_is_written_in_one_place() -> None:
    places = {
        (path.name, function.name)
        for path in Path(ollama.__path__[0]).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.keyword) and node.arg == "due"
    }
    assert places == {("scheduling.py", "schedule_next_probe")}


def test_a_model_that_the_operator_excludes_is_never_due() -> None:
    state = ready()
    assert decide(state, model_settings(a_latest={"enabled": False})) == (state, None)
    assert decide(state, model_settings(a={"enabled": False})) == (state, None)
    sent(state, model_settings(b_latest={"enabled": False}))


def test_settings_of_a_model_match_with_and_without_the_default_tag() -> None:
    bare, tagged = new_model_probe(load=True), new_model_probe(enabled=False)
    assert choose_model_probe(new_probe_settings(models={"a": bare}), "a:latest") is bare
    assert choose_model_probe(new_probe_settings(models={"a": bare, "a:latest": tagged}), "a:latest") is tagged
    assert choose_model_probe(new_probe_settings(models={"a": bare}), "a:8b") == new_model_probe()
    assert choose_model_probe(new_probe_settings(models={"a:8b": bare}), "a:8b") is bare


def test_the_configured_context_replaces_one_that_the_server_does_not_list() -> None:
    request = sent(ready(resident(context_length=None)), model_settings(a={"options": {"num_ctx": 512}}))
    assert isinstance(request.body["options"], Mapping)
    assert request.body["options"]["num_ctx"] == 512
    assert request.words == (512 - 48 - 64 - 24) // 8


def measured(**facts: Any) -> dict[str, Any]:
    """State of a model after a short probe."""
    return {
        "tokens_per_word": 1.4,
        "measurements": {RequestKind.SHORT: ProbeMeasurement(NOW - 300, figures(**facts))},
        "long_due": NOW - 1,
    }


def test_a_long_probe_follows_a_short_one_when_it_is_due() -> None:
    assert sent(ready(**measured())).kind is RequestKind.LONG
    assert sent(ready(**{**measured(), "long_due": NOW + 1})).kind is RequestKind.SHORT
    assert sent(ready(**{**measured(), "measurements": {}})).kind is RequestKind.SHORT
    assert sent(ready(**{**measured(), "tokens_per_word": None})).kind is RequestKind.SHORT
    assert sent(ready(resident(context_length=700), **measured())).kind is RequestKind.SHORT


def test_a_long_probe_that_would_take_too_long_is_not_sent() -> None:
    """Its expected duration is ten times the short prompt's and one output's."""
    short = (LONGEST_LONG_PROBE - 1.0) / 10
    assert sent(ready(**measured(prompt_seconds=short - 0.01, decode_seconds=1.0))).kind is RequestKind.LONG
    assert sent(ready(**measured(prompt_seconds=short + 0.01, decode_seconds=1.0))).kind is RequestKind.SHORT


def empty(**facts: Any) -> OllamaState:
    """A server with no model in memory, and one on disk."""
    return OllamaState(inventory=inventory(disk=(stored(),)), models={KEY: ModelState(due=NOW - 1)}, **facts)


LOADING: Final = model_settings(a={"load": True, "options": {"num_ctx": 8192}})


def test_a_loadable_model_is_loaded_with_its_options_if_no_other_is_in_memory() -> None:
    request = sent(empty(), LOADING)
    assert (request.kind, request.key) == (RequestKind.LOAD, KEY)
    assert request.body["options"] == {"num_ctx": 8192}
    full = replace(empty(), inventory=inventory(loaded(*OTHER), disk=(stored(), stored(*OTHER))))
    assert skipped(full, LOADING) is SkipReason.OTHERS_LOADED


def test_a_model_loaded_within_the_last_interval_is_not_loaded_again() -> None:
    waiting = ModelState(due=0.0, load_due=NOW + 1)
    state = OllamaState(inventory=inventory(disk=(stored(),)), models={KEY: waiting})
    assert decide(state, LOADING)[1] is None
    ready_again = replace(state, models={KEY: replace(waiting, load_due=NOW)})
    assert sent(ready_again, LOADING).kind is RequestKind.LOAD


def test_a_remote_or_embedding_model_is_not_loaded_either() -> None:
    for facts, reason in (
        ({"remote": True}, SkipReason.REMOTE),
        ({"capabilities": frozenset({"embedding"})}, SkipReason.NO_COMPLETION),
    ):
        state = replace(empty(), inventory=inventory(disk=(stored(**facts),)))
        assert skipped(state, LOADING) is reason, facts
    assert skipped(empty(backoff_until=NOW + 1), LOADING) is SkipReason.BACKOFF


def test_only_allowed_models_on_disk_are_loadable() -> None:
    disk = inventory(disk=(stored(), stored("b:latest", B), stored("c:8b", "c" * 64)))
    settings = model_settings(a={"load": True}, c_8b={"load": True}, d={"load": True})
    assert list(list_loadable_models(disk, settings)) == [KEY, ("c:8b", "c" * 64)]
    assert list(list_loadable_models(disk, SETTINGS)) == []
    assert list(list_loadable_models(Inventory(()), settings)) == []


def test_a_replaced_digest_is_not_loaded() -> None:
    state = replace(empty(), inventory=inventory(disk=(stored(digest=B),)))
    assert decide(state, LOADING) == (state, None)


def test_a_model_in_memory_is_loaded_whatever_its_name_stands_for() -> None:
    assert is_loaded(ready(), KEY)
    assert not is_loaded(ready(), OTHER)
    assert is_loaded(ready(seen=inventory(loaded(), disk=(stored(digest=B),))), KEY)
    assert not is_loaded(ready(seen=inventory(disk=(stored(),))), KEY)
    assert not is_loaded(OllamaState(), KEY)


def test_a_model_unloaded_just_before_its_probe_is_counted_as_unloaded() -> None:
    assert only_reason(record_skips(ready(), [(KEY, SkipReason.UNLOADED)], NOW, 300.0)) is SkipReason.UNLOADED
    assert record_skips(ready(), [(OTHER, SkipReason.UNLOADED)], NOW, 300.0) == ready()


def test_the_first_probe_comes_well_within_an_interval_and_at_another_time_on_each_exporter() -> None:
    for interval in (1.0, 10.0, 300.0, 86_400.0):
        paces = [draw_pace(new_probe_settings(interval=interval), seeded(seed)) for seed in range(50)]
        assert all(0 < pace.first_delay <= min(0.6 * interval, 18.0) for pace in paces), interval
        assert len({pace.first_delay for pace in paces}) == 50, interval
        assert {pace.interval for pace in paces} == {interval}
        assert compute_quiet_seconds(interval) == min(3.0, interval / 4)


SCHEDULED: Final[list[tuple[str, ModelState, Occasion, float]]] = [
    ("a new model", ModelState(), Occasion.APPEARED, NOW + 290),
    ("one that comes back is due later", ModelState(due=NOW + 900), Occasion.APPEARED, NOW + 900),
    ("one that comes back is overdue", ModelState(due=NOW - 900), Occasion.APPEARED, NOW + 290),
    ("a first user", ModelState(due=NOW + 290), Occasion.USED, NOW + 3),
    ("a user soon after a probe", ModelState(due=NOW + 290, probed_at=NOW - 10), Occasion.USED, NOW + 140),
    ("a user long after a probe", ModelState(due=NOW + 290, probed_at=NOW - 200), Occasion.USED, NOW + 3),
    ("a user right before a probe", ModelState(due=NOW + 1, probed_at=NOW - 200), Occasion.USED, NOW + 1),
    ("a user of a failing model", ModelState(due=NOW + 290, failures=1), Occasion.USED, NOW + 290),
    ("a probe", ModelState(due=NOW), Occasion.PROBED, NOW + 290),
    ("a probe that needs another", ModelState(due=NOW), Occasion.FOLLOW_UP, NOW + SOON_SECONDS),
    ("a load", ModelState(due=NOW), Occasion.LOADED, NOW + SOON_SECONDS),
    ("a first failure", ModelState(due=NOW, failures=1), Occasion.FAILED, NOW + 300),
    ("a third failure", ModelState(due=NOW, failures=3), Occasion.FAILED, NOW + 1200),
    ("many failures", ModelState(due=NOW, failures=30), Occasion.FAILED, NOW + 4800),
]


def test_each_occasion_has_its_time_of_the_next_probe() -> None:
    for case, model, occasion, due in SCHEDULED:
        assert schedule_next_probe(model, occasion, NOW, 300.0, 290.0) == replace(model, due=due), case
    assert {occasion for _, _, occasion, _ in SCHEDULED} == set(Occasion)


def test_a_follow_up_never_comes_later_than_a_regular_probe() -> None:
    assert schedule_next_probe(ModelState(), Occasion.FOLLOW_UP, NOW, 1.0, 0.9).due == NOW + 0.9
    assert schedule_next_probe(ModelState(failures=1), Occasion.FAILED, NOW, 1.0, 1.1).due == NOW + 1.1
