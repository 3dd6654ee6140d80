from phasewatch.demo.common.step_ledger import KEPT_SECONDS
from phasewatch.demo.vllm.ledger import EngineStep, TruthLedger


def build_step(end: float) -> EngineStep:
    return EngineStep(end, 0.02, 0, 0, 1e9, 1e9, 1, 0, 0, (), ((0.02, 1),))


def test_an_interval_includes_its_end_and_excludes_its_start() -> None:
    ledger = TruthLedger()
    for end in (1.0, 2.0, 3.0):
        ledger.record(build_step(end))
    assert [step.end for step in ledger.select_between(1.0, 2.0)] == [2.0]
    assert [step.end for step in ledger.select_between(0.0, 9.0)] == [1.0, 2.0, 3.0]


def test_old_steps_are_dropped() -> None:
    ledger = TruthLedger()
    for end in range(1000):
        ledger.record(build_step(float(end)))
    kept = ledger.select_between(0.0, 1000.0)
    assert kept[0].end == 999 - KEPT_SECONDS
    assert len(kept) == KEPT_SECONDS + 1
