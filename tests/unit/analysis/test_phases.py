"""Both phases from totals, whichever way a server counts them."""

from phasewatch.analysis.phases import Phases, compute_phases
from phasewatch.analysis.totals import PhaseTotals


def test_tokens_and_seconds_give_speeds_and_streams() -> None:
    totals = PhaseTotals(
        10.0,
        prefill_tokens=1200.0,
        prefill_seconds=1.5,
        timed_prefill_tokens=1200.0,
        decode_tokens=100.0,
        decode_seconds=5.0,
        generated_tokens=102.0,
    )
    assert compute_phases(totals) == Phases(
        prefill_tokens_per_second=800.0,
        prefill_throughput_tokens_per_second=120.0,
        prefill_streams=0.15,
        decode_tokens_per_second=20.0,
        decode_throughput_tokens_per_second=10.0,
        decode_streams=0.5,
    )


def test_steps_and_outputs_give_the_tokens_of_a_step() -> None:
    totals = PhaseTotals(
        10.0, prefill_tokens=300.0, decode_tokens=100.0, decode_outputs=40.0, generated_tokens=100.0, steps=50.0
    )
    phases = compute_phases(totals)
    assert (phases.engine_steps_per_second, phases.step_tokens, phases.tokens_per_step) == (5.0, 8.0, 2.5)


def test_figures_that_a_server_does_not_count_are_none() -> None:
    assert compute_phases(PhaseTotals(10.0)) == Phases()
    assert compute_phases(None) == Phases()


def test_an_idle_window_has_rates_of_0_and_no_speeds() -> None:
    totals = PhaseTotals(10.0, prefill_tokens=0.0, prefill_seconds=0.0, decode_tokens=0.0, decode_seconds=0.0)
    assert compute_phases(totals) == Phases(
        prefill_throughput_tokens_per_second=0.0,
        prefill_streams=0.0,
        decode_throughput_tokens_per_second=0.0,
        decode_streams=0.0,
    )
