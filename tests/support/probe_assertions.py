"""What is demanded of probes, held against the ledger of a simulated Ollama."""

from collections.abc import Iterable

from phasewatch.demo.ollama.harm_ledger import Event, Harm, Ledger


def assert_harmless(ledger: Ledger, *, probes: int = 1) -> None:
    """No probe changed anything, and there were as many as `probes` at least: none harms nobody either."""
    assert ledger.probes >= probes, f"{ledger.probes} probes, at least {probes} expected"
    _assert_none(ledger.harmful())


def assert_uncached(ledger: Ledger) -> None:
    """Every probe's prompt was computed, so that its time means something."""
    _assert_none(ledger.of(Harm.CACHE_HIT))


def assert_backs_off(ledger: Ledger) -> None:
    """After a probe that waited behind a user's request the next one found the server free."""
    run = ledger.longest_run_of_waits()
    assert run <= 1, f"{run} probes in a row waited behind users' requests"


def assert_within_budget(ledger: Ledger, share: float, seconds: float) -> None:
    """Probes held the slot for no larger share of the time."""
    used = ledger.probe_seconds / seconds
    assert used <= share, f"probes held the slot for {used:.2%} of {seconds:g} s, allowed are {share:.2%}"


def _assert_none(events: Iterable[Event]) -> None:
    told = [str(event) for event in events]
    assert not told, "\n".join(told)
