"""KV cache reads of a mean step. The figures of whole engines are in test_ceiling.py."""

from dataclasses import replace

from phasewatch.analysis.kv_cache_reads import KvCacheReads, compute_kv_cache_reads
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.window import EngineHistory
from phasewatch.models.costs import AttentionCosts, KvCache, KvLayers, ModelCosts, ModelSource

MODEL = ModelCosts(
    kv_cache=KvCache((KvLayers(1.0), KvLayers(2.0, span=50)), 2.0, ModelSource.CONFIG_JSON),
    attention=(AttentionCosts(3.0), AttentionCosts(5.0, span=50)),
)
START = EngineSample(requests_running=4.0, kv_cache_usage=0.4)
PAST = EngineHistory((0.0, 10.0), (START, START))
"""Four streams of 100 tokens each, in a cache of 1,000."""


def compute_reads(
    past: EngineHistory = PAST, capacity: float | None = 1000.0, model: ModelCosts = MODEL, steps: float | None = 3.0
) -> KvCacheReads | None:
    return compute_kv_cache_reads(past, capacity, model, steps=steps, interval_steps=(30.0,))


def test_a_step_reads_and_attends_to_each_streams_tokens_within_the_layers_window() -> None:
    assert compute_reads() == KvCacheReads(read_bytes=4 * 2 * (100 + 2 * 50), operations=4 * (3 * 100 + 5 * 50))


def test_unknown_costs_of_the_model_leave_the_other_figure_known() -> None:
    whole = compute_reads()
    assert whole is not None
    assert compute_reads(model=replace(MODEL, kv_cache=None)) == replace(whole, read_bytes=None)
    assert compute_reads(model=replace(MODEL, attention=None)) == replace(whole, operations=None)


def test_without_a_gauge_reads_are_unknown_unless_there_was_no_step() -> None:
    for blind in (replace(START, kv_cache_usage=None), replace(START, requests_running=None)):
        silent = replace(PAST, samples=(blind, blind))
        assert compute_reads(silent) is None, blind
        assert compute_reads(silent, steps=None) is None, blind
        assert compute_reads(silent, steps=0.0) == KvCacheReads(0.0, 0.0), blind
        assert compute_reads(silent, capacity=None, steps=0.0) is None, blind
