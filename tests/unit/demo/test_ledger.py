from phasewatch.demo.ledger import KEPT_SECONDS, Ledger, Step


def step(end: float) -> Step:
    return Step(end, 0.02, 0, 0, 1e9, 1e9, 1, 0, 0, (), ((0.02, 1),))


def test_an_interval_has_the_steps_that_ended_in_it_its_own_end_included() -> None:
    ledger = Ledger()
    for end in (1.0, 2.0, 3.0):
        ledger.record(step(end))
    assert [one.end for one in ledger.between(1.0, 2.0)] == [2.0]
    assert [one.end for one in ledger.between(0.0, 9.0)] == [1.0, 2.0, 3.0]


def test_what_is_long_ago_is_forgotten() -> None:
    ledger = Ledger()
    for end in range(1000):
        ledger.record(step(float(end)))
    kept = ledger.between(0.0, 1000.0)
    assert kept[0].end == 999 - KEPT_SECONDS
    assert len(kept) == KEPT_SECONDS + 1
