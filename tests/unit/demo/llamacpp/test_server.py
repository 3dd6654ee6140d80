"""The demo's llama-server follows its script and has the speeds of its device."""

import json

from phasewatch.demo.llamacpp.script import LLAMA_CYCLE, LLAMA_CYCLE_SECONDS, LLAMA_METRICS_TO_WATCH
from phasewatch.demo.llamacpp.server import LLAMA_SETTINGS, SimulatedLlamaServer, build_llama_roofline
from phasewatch.metrics.collector import TABLE
from tests.support.simulated_llamacpp import CREATED, read_values


def test_equal_seeds_give_identical_servers_and_others_do_not() -> None:
    servers = [SimulatedLlamaServer(seed, CREATED) for seed in (1, 1, 2)]
    for server in servers:
        server.advance(30.0)
    same, also, other = (server.respond("GET", "/metrics").body for server in servers)
    assert same == also != other


def test_each_act_begins_in_its_turn_and_the_script_repeats() -> None:
    server = SimulatedLlamaServer(1, CREATED)
    names: list[str] = []
    for second in range(round(2 * LLAMA_CYCLE_SECONDS)):
        server.advance(float(second))
        if names[-1:] != [server.act.name]:
            names.append(server.act.name)
    assert names == 2 * [act.name for act in LLAMA_CYCLE]
    assert LLAMA_METRICS_TO_WATCH.keys() == set(names)
    watched = {name for metrics in LLAMA_METRICS_TO_WATCH.values() for name in metrics}
    assert watched <= {metric.name for metric in TABLE}


def test_each_act_shows_what_it_is_about() -> None:
    server = SimulatedLlamaServer(1, CREATED)
    seen: dict[str, list[tuple[float, float]]] = {}
    stalls: dict[str, float] = {}
    for second in range(round(2 * LLAMA_CYCLE_SECONDS)):
        server.advance(float(second))
        values = read_values(server)
        seen.setdefault(server.act.name, []).append((values["requests_processing"], values["requests_deferred"]))
        gaps = [gap for step in server.truth.select_between(second - 1.0, second) for gap in step.token_gaps]
        stalls[server.act.name] = max(stalls.get(server.act.name, 0.0), *gaps, 0.0)
    chat, crowd, document, nobody = (seen[act.name] for act in LLAMA_CYCLE)
    assert max(deferred for _, deferred in chat[1:]) == 0
    assert sum(deferred > 0 for _, deferred in crowd) > 0.8 * len(crowd)
    assert max(deferred for _, deferred in document[1:]) == 0
    assert {processing for processing, _ in nobody[-10:]} == {0}
    assert stalls["a long document"] > 1.0 > stalls["three people chat"]


def test_a_stream_alone_is_as_fast_as_the_roofline_says() -> None:
    roofline = build_llama_roofline(LLAMA_SETTINGS)
    ceiling = roofline.bandwidth / LLAMA_SETTINGS.weight_bytes
    server = SimulatedLlamaServer(1, CREATED)
    server.advance(40.0)
    single = [step for step in server.truth.select_between(0.0, 40.0) if len(step.token_gaps) == step.tokens == 1]
    speed = len(single) / sum(step.seconds for step in single)
    assert 0.7 * ceiling < speed < 0.9 * ceiling


def test_every_request_of_the_script_fits_into_a_slot() -> None:
    for act in LLAMA_CYCLE:
        for workload in act.workloads:
            assert workload.prompt[1] + workload.output[1] < LLAMA_SETTINGS.slot_context, act.name
            assert workload.output[1] <= workload.max_tokens, act.name


def test_the_demos_server_never_sleeps() -> None:
    server = SimulatedLlamaServer(1, CREATED)
    server.advance(10 * LLAMA_CYCLE_SECONDS)
    assert json.loads(server.respond("GET", "/props").body)["is_sleeping"] is False
    assert server.sleep.sleeps == []
