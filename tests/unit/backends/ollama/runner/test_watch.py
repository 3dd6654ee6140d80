"""The children of an Ollama, read live: users' requests under the right model, nothing of probes, nothing stale."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
import pytest
from structlog.testing import capture_logs

from phasewatch.backends.ollama.inventory import LoadedModel
from phasewatch.backends.ollama.state import take_over_state
from phasewatch.demo.ollama.model import Model
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from tests.support.fake_procfs import LAYER, OTHER_LAYER
from tests.support.ollama_facts import WALL, A, B, loaded, stored
from tests.support.pages import value, values
from tests.support.probe_assertions import assert_harmless
from tests.support.scripted_llama_server import Job
from tests.support.simulated_ollama import User, Visit
from tests.support.targets import new_probe_settings
from tests.support.watched_children import WatchedChildren
from tests.support.watched_ollama import Watched, watch

KEY: Final = ("a:latest", A)
FAST: Final = Model("a:latest", A, cold_factor=1.0)
SLOW: Final = Model("b:latest", B, decode_seconds_per_token=0.01, cold_factor=1.0)
LONG: Final = Job(2.0, 3.0, 4001, 0.05)
"""20 tokens per second from 3 s to 203 s."""
NEVER: Final = new_probe_settings(enabled=False)

THROUGHPUT: Final = "llm_decode_throughput_tokens_per_second"
SPEED: Final = "llm_decode_tokens_per_second"
SOURCE: Final = "llm_measurement_source"


@pytest.fixture
def children(tmp_path: Path) -> WatchedChildren:
    return WatchedChildren(tmp_path / "proc")


def only(children: WatchedChildren) -> EngineSnapshot:
    (engine,) = children.list_engines()
    return engine


def visit_often(model: str, visits: int = 200, pause: float = 1.0, num_predict: int = 1000) -> User:
    """A user whose visits are single requests."""
    return User(model, [Visit(pause, words=100, num_predict=num_predict, keep_alive=-1)] * visits)


def list_traffic(watched: Watched, name: str, model: str) -> list[float]:
    """Values of a metric at the moments at which it is that of users' requests."""
    return [
        found
        for _, metrics in watched.readings
        if value(metrics, SOURCE, model_name=model, source="traffic") == 1
        and (found := value(metrics, name, model_name=model)) is not None
    ]


@pytest.mark.parametrize(("metrics", "error"), [(True, 0.01), (False, 0.04)])
def test_users_requests_become_the_figures_of_their_model(tmp_path: Path, metrics: bool, error: float) -> None:
    user = visit_often("a")
    process_list = tmp_path / "proc"
    watched = watch(
        [FAST], [user], NEVER, seconds=230, tick=0.25, sample=2, process_list=process_list, child_metrics=metrics
    )
    busy = list_traffic(watched, THROUGHPUT, "a:latest")[35:]
    tokens = [response["eval_count"] for response in user.responses]
    seconds = [response["total_duration"] / 1e9 + 1.0 for response in user.responses]
    truth = sum(tokens[10:]) / sum(seconds[10:])
    assert len(busy) > 50
    assert sum(busy) / len(busy) == pytest.approx(truth, rel=error)
    speeds = list_traffic(watched, SPEED, "a:latest")[35:]
    assert sum(speeds) / len(speeds) == pytest.approx(1 / FAST.decode_seconds_per_token, rel=0.015)


def test_waiting_is_absent_and_never_0(tmp_path: Path) -> None:
    users = [visit_often("a", pause=0.1) for _ in range(3)]  # two of them always wait, in front of the child
    for metrics in (True, False):
        watched = watch(
            [FAST],
            users,
            NEVER,
            seconds=60,
            tick=0.25,
            sample=5,
            process_list=tmp_path / f"proc-{metrics}",
            child_metrics=metrics,
        )
        assert list_traffic(watched, "llm_requests_running", "a:latest")
        for _, page in watched.readings:
            assert values(page, "llm_requests_waiting") == []
            assert values(page, "llm_saturation_state") == []


@pytest.mark.parametrize("metrics", [True, False])
def test_a_reload_on_another_port_never_puts_figures_under_another_model(tmp_path: Path, metrics: bool) -> None:
    users = [visit_often("a", pause=7.0), visit_often("b", pause=11.0, num_predict=600)]
    process_list = tmp_path / "proc"
    watched = watch(
        [FAST, SLOW],
        users,
        NEVER,
        seconds=200,
        tick=0.25,
        interval=5,
        sample=1,
        process_list=process_list,
        child_metrics=metrics,
        max_loaded=1,
    )
    loads = sum(event.harm.name == "EVICTION" for event in watched.ollama.ledger.events)
    assert loads > 8
    for model in (FAST, SLOW):
        speeds = list_traffic(watched, SPEED, model.name)
        assert len(speeds) > 15
        for speed in speeds:
            assert speed == pytest.approx(1 / model.decode_seconds_per_token, rel=0.15)


def test_probes_are_sent_only_after_a_whole_interval_without_users(tmp_path: Path) -> None:
    user = User("a", [Visit(200.0, requests=6, think_seconds=20.0, keep_alive=-1) for _ in range(2)])
    watched = watch(
        [FAST],
        [user],
        new_probe_settings(interval=60, budget=0.5),
        seconds=800,
        tick=0.5,
        process_list=tmp_path / "proc",
        child_metrics=True,
    )
    asked = [request for request in watched.ollama.requests if request.path == "/api/generate"]
    users = [request.at / 1e9 for request in asked if request.headers["user-agent"] == "a user"]
    probes = [request.at / 1e9 for request in asked if request.headers["user-agent"] != "a user"]
    assert len(users) == 12
    assert len(probes) > 4
    for probe in probes:
        assert not [time for time in users if probe - 60 < time <= probe]
    assert_harmless(watched.ollama.ledger)


def test_an_ollama_without_children_is_shown_as_if_none_were_looked_for(tmp_path: Path) -> None:
    mlx = replace(FAST, format="safetensors")
    for model, version in ((FAST, "0.29.0"), (mlx, "0.33.0")):
        shown = [
            watch([model], [visit_often("a", 20, 30.0)], seconds=500, process_list=folder, version=version).readings
            for folder in (None, tmp_path / f"proc-{version}")
        ]
        assert shown[0] == shown[1]
        assert any(values(page, SPEED) for _, page in shown[0])


def test_what_a_probe_does_is_in_no_figure_of_users(children: WatchedChildren) -> None:
    """The probe takes 1000 tokens at 100 per second, a user beside it 20 per second."""
    for users in ((), (replace(LONG, slot=1),)):
        children.__init__(children.procfs.folder.parent / f"proc-{len(users)}")  # type: ignore[misc]
        probe = Job(61.0, 61.5, 1000, 0.01)
        children.start(50, probe, *users)
        children.look()

        async def work() -> list[EngineSnapshot]:
            await children.run(60.8)
            children.tracker.probing = KEY
            await children.run(71.6)
            children.tracker.probing = None
            state = children.tracker.state
            models = {KEY: replace(state.models[KEY], probed_at=children.clock())}
            children.tracker.state = replace(state, models=models)
            shown = []
            for second in range(72, 140):
                await children.run(second)
                shown.append(only(children))
            return shown

        rates = [engine.phases.decode_throughput_tokens_per_second for engine in asyncio.run(work())]
        known = [rate for rate in rates if rate is not None]
        assert len(known) > 60
        assert all(rate == pytest.approx(20.0 if users else 0.0, abs=0.5) for rate in known), known


def test_while_a_probe_runs_no_user_is_seen_in_its_slot(children: WatchedChildren) -> None:
    children.start(50, Job(10.0, 10.5, 400, 0.01))
    children.look()

    async def work() -> float:
        await children.run(9.9)
        began = children.tracker.state.models[KEY].traffic
        children.tracker.probing = KEY
        await children.run(20.0)
        children.tracker.probing = None
        ended = children.tracker.state.models[KEY].traffic
        assert began is not None
        assert ended is not None
        assert ended.idle_since == began.idle_since
        return ended.read_at

    assert asyncio.run(work()) > 1015


@pytest.mark.parametrize(("metrics", "busy_reads"), [(True, 10), (False, 40)])
def test_slots_alone_are_read_four_times_a_second_while_busy_and_once_a_second_while_idle(
    children: WatchedChildren, metrics: bool, busy_reads: int
) -> None:
    children.start(50, Job(100.0, 101.0, 4000, 0.05), metrics=metrics)
    children.look()
    asyncio.run(children.run(140.0))

    def count(begin: float, end: float) -> int:
        return sum(path == "/slots" and begin <= time < end for time, _, path in children.asked)

    assert count(80.0, 90.0) == 10
    assert count(110.0, 120.0) == busy_reads


def test_figures_end_with_the_process_and_its_crash_is_one_line(children: WatchedChildren) -> None:
    children.start(50, LONG)
    children.look()
    with capture_logs() as logs:
        asyncio.run(children.run(30.0))
        assert only(children).measurement_source is MeasurementSource.TRAFFIC
        children.end(50)
        for _ in range(5):
            children.look()  # the model is still in /api/ps
            assert only(children).measurement_source is None
            asyncio.run(children.run(children.now + 5))
        children.start(51, Job(60.0, 61.0, 4000, 0.05), port=42084)
        children.look()
        asyncio.run(children.run(90.0))
    assert only(children).phases.decode_tokens_per_second == pytest.approx(20.0, rel=0.02)
    events = [line["event"] for line in logs if line["event"].startswith("runner ")]
    assert events == ["runner ended", "runner is back"]


def test_a_process_that_took_the_number_of_another_has_a_window_of_its_own(children: WatchedChildren) -> None:
    children.start(50, LONG)
    children.look()
    asyncio.run(children.run(30.0))
    children.end(50)
    children.start(50, started=9000)
    children.look()
    assert only(children).measurement_source is None
    asyncio.run(children.run(40.0))
    assert only(children).phases.decode_throughput_tokens_per_second == 0


def test_what_answers_at_the_port_of_a_child_is_shown_only_if_it_is_that_child(children: WatchedChildren) -> None:
    children.start(50, LONG)
    children.look()
    asyncio.run(children.run(30.0))
    children.servers[42083] = WatchedChildren(children.procfs.folder.parent / "other").start(9, LONG, layer=OTHER_LAYER)
    for _ in range(8):
        asyncio.run(children.run(children.now + 1))
        assert only(children).measurement_source is None
        if children.now % 2 == 0:
            children.look()
    traffic = children.tracker.state.models[KEY].traffic
    assert traffic is None


def test_a_child_that_ends_while_it_is_read_leaves_no_trace(children: WatchedChildren) -> None:
    for path in ("/props", "/metrics", "/slots"):
        children.__init__(children.procfs.folder.parent / f"proc{path}".replace("/", "-"))  # type: ignore[misc]
        children.start(50, LONG)
        children.start(51, LONG, layer=OTHER_LAYER, port=42084)
        both = (loaded(), loaded("b:latest", B))
        children.look(*both)
        asyncio.run(children.run(10.0))

        async def end(request: httpx.Request, path: str = path, models: tuple[LoadedModel, ...] = both) -> None:
            if (request.url.port, request.url.path) == (42083, path):
                children.procfs.remove(50)
                children.look(*models)

        children.meddle = end
        with capture_logs() as logs:
            asyncio.run(children.run(20.0))
        assert not [line for line in logs if line["log_level"] in {"warning", "error"}]
        assert children.tracker.state.runners.keys() == {both[1].key}
        assert children.tracker.state.models[both[0].key].traffic is None
        assert not [time for time, port, _ in children.asked if port == 42083 and time > 11.0]


def test_a_model_that_loses_its_name_keeps_its_figures_apart_from_those_of_the_new_one(
    children: WatchedChildren,
) -> None:
    children.start(50, LONG)
    children.look()
    asyncio.run(children.run(30.0))
    children.look(disk=(stored(digest=B),))
    asyncio.run(children.run(60.0))
    engine = only(children)
    assert engine.key.model_name == f"a:latest@{A[:12]}"
    assert engine.phases.decode_tokens_per_second == pytest.approx(20.0, rel=0.02)


def test_after_a_reload_of_the_configuration_nothing_is_shown_that_is_no_longer_read(
    children: WatchedChildren,
) -> None:
    children.start(50, LONG)
    children.look()
    asyncio.run(children.run(30.0))
    after = take_over_state(children.tracker.state, None)
    assert after.runners == {}
    assert after.models[KEY].traffic is None
    assert after.models[KEY].residency is not None


def test_with_runners_off_no_process_list_is_read(tmp_path: Path) -> None:
    off = WatchedChildren(tmp_path / "off", "off")
    on = WatchedChildren(tmp_path / "on")
    assert asyncio.run(off.watch.list_processes()) is None
    assert asyncio.run(on.watch.list_processes()) is not None


def test_after_close_nothing_is_read(children: WatchedChildren) -> None:
    children.start(50, LONG)
    children.look()

    async def work() -> int:
        await children.run(5.0)
        await children.watch.close()
        asked = len(children.asked)
        await children.run(10.0)
        return len(children.asked) - asked

    assert asyncio.run(work()) == 0


def test_users_move_their_models_idle_time_and_its_expiry(children: WatchedChildren) -> None:
    children.start(50, Job(10.0, 10.5, 400, 0.01))
    children.look()
    asyncio.run(children.run(30.0))
    model = children.tracker.state.models[KEY]
    assert model.traffic is not None
    assert 1014 <= model.traffic.idle_since <= 1016
    assert model.residency is not None
    assert model.residency.user_expires_at == WALL + 300


def test_the_layer_decides_which_model_a_child_runs(children: WatchedChildren) -> None:
    children.start(50, LONG, layer=OTHER_LAYER)
    children.start(51, Job(2.0, 3.0, 8000, 0.02), layer=LAYER, port=42084)
    children.look(loaded(), loaded("b:latest", B))
    asyncio.run(children.run(60.0))
    speeds = {engine.key.model_name: engine.phases.decode_tokens_per_second for engine in children.list_engines()}
    assert speeds["a:latest"] == pytest.approx(50.0, rel=0.02)
    assert speeds["b:latest"] == pytest.approx(20.0, rel=0.02)
