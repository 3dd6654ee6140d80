"""Whose requests are in the slots of a child."""

from dataclasses import dataclass

from phasewatch.backends.ollama.runner.traffic import serves_users


@dataclass(frozen=True)
class Use:
    """A slot, by default one that is idle after request 3."""

    busy: bool = False
    request: int | None = 3


IDLE = Use()
FRESH = Use(request=None)


def busy(request: int | None) -> Use:
    return Use(busy=True, request=request)


def test_a_busy_slot_serves_a_user() -> None:
    for before in (None, (IDLE,), (busy(4),)):
        assert serves_users(before, (busy(4),), probed=False), before
    assert serves_users((FRESH,), (busy(None),), probed=False)


def test_an_idle_slot_with_another_request_has_served_a_user() -> None:
    assert serves_users((IDLE,), (Use(request=4),), probed=False)
    assert serves_users((FRESH,), (Use(request=0),), probed=False)
    assert serves_users((busy(3),), (Use(request=4),), probed=False)


def test_idle_slots_with_the_same_requests_serve_nobody() -> None:
    assert not serves_users((IDLE, FRESH), (IDLE, FRESH), probed=False)
    assert not serves_users((busy(3),), (IDLE,), probed=False)
    assert not serves_users((IDLE,), (FRESH,), probed=False)


def test_the_first_reading_shows_only_what_runs() -> None:
    assert not serves_users(None, (IDLE, FRESH), probed=False)
    assert not serves_users((), (), probed=False)


def test_during_a_probe_one_slot_is_ours() -> None:
    assert not serves_users((IDLE, FRESH), (busy(4), FRESH), probed=True)
    assert not serves_users((IDLE, FRESH), (Use(request=4), FRESH), probed=True)
    assert serves_users((IDLE, FRESH), (busy(4), busy(5)), probed=True)
    assert serves_users((IDLE, FRESH), (Use(request=4), busy(5)), probed=True)
    assert serves_users((IDLE, FRESH), (Use(request=4), Use(request=5)), probed=True)
