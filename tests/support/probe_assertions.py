"""What is required of probes, checked against the ledger of a simulated Ollama."""

from collections.abc import Iterable

from phasewatch.demo.ollama.harm_ledger import Harm, HarmEvent, HarmLedger


def assert_harmless(ledger: HarmLedger, *, probes: int = 1) -> None:
    """No probe had a forbidden effect, and there were at least `probes` of them: without probes this proves nothing."""
    assert ledger.probes >= probes, f"{ledger.probes} probes, at least {probes} expected"
    _assert_no_events(ledger.select_forbidden())


def assert_uncached(ledger: HarmLedger) -> None:
    """Every probe's prompt was computed, so that its duration is meaningful."""
    _assert_no_events(ledger.select(Harm.CACHE_HIT))


def assert_backs_off(ledger: HarmLedger) -> None:
    """After a probe that waited behind a user's request, the next one did not wait."""
    run = ledger.find_longest_waiting_run()
    assert run <= 1, f"{run} probes in a row waited behind users' requests"


def assert_within_budget(ledger: HarmLedger, share: float, seconds: float) -> None:
    """Probes occupied the slot for at most this share of the time."""
    used = ledger.probe_seconds / seconds
    assert used <= share, f"probes held the slot for {used:.2%} of {seconds:g} s, allowed are {share:.2%}"


def _assert_no_events(events: Iterable[HarmEvent]) -> None:
    lines = [str(event) for event in events]
    assert not lines, "\n".join(lines)
