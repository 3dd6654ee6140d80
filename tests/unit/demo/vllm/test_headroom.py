"""What the exporter promises of the KV cache: the simulated vLLM is filled that far, and then a tenth further."""

from dataclasses import replace

import pytest

from phasewatch.demo.common.workload import Workload
from phasewatch.snapshot.engine import EngineSnapshot
from tests.support.simulated_vllm import SETTINGS, SimulatedServer, build_target, scrape, simulate

ROOMY = replace(SETTINGS, max_num_seqs=512, max_num_queued_reqs=None)
FILL_SECONDS = 150
"""Within which all requests of a workload below have reached their full length more than once."""


def settle(workload: Workload, blocks: int) -> tuple[SimulatedServer, EngineSnapshot]:
    """A server under a light load of this kind, and what the exporter shows once requests have finished."""
    server = simulate(workload, settings=replace(ROOMY, num_gpu_blocks=blocks))
    readings = [reading for _, reading in scrape(server, build_target(ROOMY), (5.0 * count for count in range(25)))]
    return server, readings[-1]


def count_preemptions(workload: Workload, blocks: int, further: float) -> tuple[float, float]:
    """Headroom of a lightly loaded server, and its preemptions after `further` times as many requests have joined."""
    server, reading = settle(workload, blocks)
    headroom = reading.load.kv_cache_headroom_requests
    assert headroom is not None
    now = 120.0
    server.clients.start([replace(workload, users=round(headroom * further))], now)
    server.advance(now + FILL_SECONDS)
    return headroom, server.value("num_preemptions")


@pytest.mark.parametrize(
    ("workload", "blocks"),
    [
        (Workload(users=2, think_seconds=0.01, prompt=(64, 64), output=(1600, 1600), max_tokens=2000), 9600),
        (Workload(users=3, think_seconds=0.01, prompt=(900, 900), output=(1500, 1500), max_tokens=2000), 6400),
        (
            Workload(
                users=6,
                think_seconds=0.01,
                prompt=(1100, 1100),
                output=(1400, 1400),
                max_tokens=2000,
                shared_prefix=1024,
            ),
            4800,
        ),
    ],
)
def test_requests_up_to_the_headroom_fit_for_their_whole_life_and_a_tenth_more_do_not(
    workload: Workload, blocks: int
) -> None:
    headroom, preemptions = count_preemptions(workload, blocks, 1.0)
    assert (headroom > 20, preemptions) == (True, 0)
    assert count_preemptions(workload, blocks, 1.1)[1] > 0
