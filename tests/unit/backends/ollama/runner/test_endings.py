"""Which children have ended before their time."""

from typing import Any

from phasewatch.backends.ollama.runner.children import ProcessListing
from phasewatch.backends.ollama.runner.endings import Ending, KnownChildren, follow_children
from phasewatch.backends.ollama.runner.findings import RunnerLook
from tests.support.ollama_facts import WALL, loaded
from tests.support.runner_looks import KEY, OTHER, child, look

OLD = child(5)
NEW = child(6, started=6000)
BUSY = look(OLD, busy=[OLD])


def follow(*looks: RunnerLook) -> list[list[Ending]]:
    """What has happened at each of several looks."""
    known: KnownChildren = {}
    seen: list[list[Ending]] = []
    for one in looks:
        known, endings = follow_children(known, one)
        assert all(key == KEY for key, _ in endings)
        seen.append([ending for _, ending in endings])
    return seen


def test_a_process_that_is_gone_while_its_model_stays_has_ended_once() -> None:
    assert follow(look(OLD), look(), look(), look(), look()) == [[], [], [Ending.ENDED], [], []]


def test_another_process_after_one_that_was_gone_has_returned_once() -> None:
    assert follow(look(OLD), look(), look(), look(NEW), look(NEW)) == [[], [], [Ending.ENDED], [Ending.RETURNED], []]


def test_an_unloaded_model_has_not_lost_its_process() -> None:
    empty = look(models=())
    assert follow(look(OLD), empty, empty, look(NEW), look(NEW)) == [[], [], [], [], []]


def test_a_process_that_is_missed_once_has_not_ended() -> None:
    """The model was unloaded after the process list was read, and loaded again before /api/ps was."""
    assert follow(look(OLD), look(), look(NEW), look()) == [[], [], [], []]


def test_a_process_that_still_runs_has_not_ended_though_it_is_not_matched() -> None:
    rivals = look(OLD, child(9, parent=41))
    hidden = look(listing=ProcessListing(readable=False))
    assert follow(look(OLD), rivals, rivals, rivals) == [[], [], [], []]
    assert follow(look(OLD), hidden, hidden, hidden) == [[], [], [], []]


def test_a_process_replaced_during_a_request_has_broken_off() -> None:
    assert follow(BUSY, look(NEW), look(NEW)) == [[], [Ending.REPLACED], []]
    assert follow(BUSY, look(), look(NEW)) == [[], [], [Ending.REPLACED]]


def test_a_process_replaced_for_another_reason_has_not_broken_off() -> None:
    past = loaded(expires_at=WALL - 1)
    rows: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("it was idle", {}, {}),
        ("it had expired", {"busy": [OLD], "models": (past,)}, {}),
        ("its expiry is unknown", {"busy": [OLD], "models": (loaded(expires_at=None),)}, {}),
        ("it expired since", {"busy": [OLD]}, {"wall": WALL + 301}),
    ]
    for case, before, after in rows:
        assert follow(look(OLD, **before), look(NEW, **after)) == [[], []], case
    other_context = look(child(6, context=16384), models=(loaded(context_length=8192),))
    assert follow(BUSY, other_context) == [[], []]
    assert follow(BUSY, look(OLD, NEW)) == [[], []]


def test_an_id_that_is_used_again_is_another_process() -> None:
    assert follow(BUSY, look(child(5, started=9000))) == [[], [Ending.REPLACED]]


def test_one_models_process_says_nothing_of_anothers() -> None:
    both = (loaded(), loaded(*OTHER))
    assert follow(look(OLD, models=both), look(models=both), look(models=both)) == [[], [], [Ending.ENDED]]
