"""A llamacpp target: what is asked for in which order, what each refusal means, and several models at one address."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from phasewatch.backends.llamacpp.neighbours import may_know_secret
from phasewatch.backends.llamacpp.scraper import LlamacppScraper
from phasewatch.base.errors import Reason
from phasewatch.metrics.collector import build_target_families
from phasewatch.snapshot.target import TargetSnapshot
from tests.support.scripted_llama_server import WRITTEN, Job, ScriptedLlamaServer
from tests.support.targets import new_target

URL = "http://server.invalid:8080"
BUSY = (Job(0.0, 1.0, 4000, 0.05), Job(0.0, 1.5, 4000, 0.05, slot=1))
Answer = tuple[int, str | bytes]


def scrape(transport: httpx.MockTransport, clock: "Clock", rounds: int = 8, **settings: Any) -> list[TargetSnapshot]:
    """The snapshot after each of some scrapes, a second apart."""
    target = new_target("chat", "llamacpp", URL, **settings)
    found = []

    async def work() -> None:
        scraper = LlamacppScraper(target, clock, lambda: 1.7e9, transport)
        for _ in range(rounds):
            await scraper.scrape()
            found.append(scraper.get_snapshot())
            clock.now += 1.0
        await scraper.close()

    asyncio.run(work())
    return found


class Clock:
    def __init__(self, now: float = 2.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def watch(server: ScriptedLlamaServer, rounds: int = 8) -> list[TargetSnapshot]:
    clock = Clock()
    return scrape(server.create_transport(clock), clock, rounds)


def watch_answers(
    answer: Callable[[str, str, float], Answer], rounds: int = 8
) -> tuple[list[TargetSnapshot], list[str]]:
    """The snapshots of servers that answer a host, a path with its query, and the time; and what was asked for."""
    clock, asked = Clock(), []

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        asked.append(f"{request.url.host}{path}")
        status, body = answer(request.url.host, path, clock.now)
        return httpx.Response(status, stream=httpx.ByteStream(body.encode() if isinstance(body, str) else body))

    return scrape(httpx.MockTransport(handle), clock, rounds), asked


def show(snapshot: TargetSnapshot) -> Mapping[str, float]:
    return {sample.name: sample.value for family in build_target_families([snapshot]) for sample in family.samples}


def test_props_come_first_and_the_slots_right_after_the_page() -> None:
    server = ScriptedLlamaServer(BUSY)
    *_, last = watch(server, rounds=5)
    reads = [path for path in server.asked if path != "/v1/models"]
    assert reads[0] == "/props"
    assert reads[-6:] == ["/props", "/metrics", "/slots"] * 2
    assert show(last)["llm_decode_throughput_tokens_per_second"] == pytest.approx(40, rel=0.05)
    assert show(last)["llm_weight_bytes"] == 101_000_000


def test_each_refusal_has_its_own_reason_and_words() -> None:
    for statuses, reason, words in (
        ({"/props": 401}, Reason.AUTH, "authorization"),
        ({"/metrics": 401}, Reason.AUTH, "authorization"),
        ({"/slots": 401}, Reason.AUTH, "authorization"),
        ({"/props": 503}, Reason.HTTP_STATUS, "loading"),
        ({"/metrics": 503}, Reason.HTTP_STATUS, "loading"),
        ({"/slots": 503}, Reason.HTTP_STATUS, "loading"),
        ({"/metrics": 501, "/slots": 501}, Reason.NO_METRICS, "--metrics"),
        ({"/metrics": 404, "/slots": 404}, Reason.NO_METRICS, "--metrics"),
        ({"/metrics": 500}, Reason.HTTP_STATUS, "500"),
    ):
        *_, last = watch(ScriptedLlamaServer(BUSY, statuses=statuses), rounds=2)
        assert last.up is False, statuses
        assert last.trouble is not None
        assert last.trouble.reason is reason, (statuses, last.trouble)
        assert words in last.trouble.message, statuses
        assert last.engines == ()


def test_each_endpoint_alone_gives_throughput_and_one_line_says_what_is_missing() -> None:
    for disabled, words in (("/metrics", "--metrics"), ("/slots", "--slots")):
        with capture_logs() as logs:
            *_, last = watch(ScriptedLlamaServer(BUSY, disabled=frozenset({disabled})), rounds=12)
        assert last.up, disabled
        if disabled == "/metrics":
            assert show(last)["llm_decode_throughput_tokens_per_second"] == pytest.approx(40, rel=0.05)
            assert "llm_requests_waiting" not in show(last)
        notes = [line["note"] for line in logs if line["event"] == "page"]
        assert len(notes) == 1
        assert words in notes[0]


def test_a_build_without_props_is_read_all_the_same() -> None:
    *_, last = watch(ScriptedLlamaServer(BUSY, statuses={"/props": 404}), rounds=6)
    assert last.up
    assert show(last)["llm_requests_running"] == 2


def test_a_page_that_is_one_json_string_is_read() -> None:
    server = ScriptedLlamaServer(BUSY)

    def answer(_: str, path: str, time: float) -> Answer:
        status, body = server.answer(path, time)
        return status, json.dumps(body) if path == "/metrics" else body

    snapshots, _ = watch_answers(answer)
    assert show(snapshots[-1])["llm_requests_running"] == 2


def test_garbage_is_a_failed_scrape_that_repeats_nothing_of_it() -> None:
    server = ScriptedLlamaServer(BUSY)
    for path, bodies in (
        ("/props", (b"", b"secret", b"[1]", b'{"secret": 1}', b'{"default_generation_settings": 5}', b"\xff\x00")),
        ("/metrics", (b"", b"secret", b"<html>secret</html>", b"\xff\xfe", b'"secret', b'{"secret": 1}')),
        ("/slots", (b"", b"secret", b'{"secret": 1}', b'["secret"]', b"\xff\xfe")),
    ):
        for body in bodies:

            def answer(_: str, asked: str, time: float, path: str = path, body: bytes = body) -> Answer:
                return (200, body) if asked == path else server.answer(asked, time)

            with capture_logs() as logs:
                snapshots, _ = watch_answers(answer, rounds=2)
            last = snapshots[-1]
            assert "secret" not in f"{last} {logs}", (path, body)
            if path != "/props":
                assert last.up is False, (path, body)
                assert last.trouble is not None
                assert last.trouble.reason in {Reason.PARSE, Reason.NO_METRICS}


def test_a_body_above_the_limit_is_too_large() -> None:
    server = ScriptedLlamaServer(BUSY)
    for path in ("/metrics", "/slots"):

        def answer(_: str, asked: str, time: float, path: str = path) -> Answer:
            return (200, b" " * 200_000) if asked == path else server.answer(asked, time)

        snapshots, _ = watch_answers(lambda *words, answer=answer: answer(*words), rounds=1)
        assert snapshots[0].up is False, path
    clock = Clock()
    *_, last = scrape(server.create_transport(clock), clock, rounds=1, body_size_limit=500)
    assert last.trouble is not None
    assert last.trouble.reason is Reason.TOO_LARGE


def test_nothing_that_users_wrote_is_in_the_log_or_on_the_page() -> None:
    with capture_logs() as logs:
        snapshots = watch(ScriptedLlamaServer(BUSY))
    for snapshot in snapshots:
        assert WRITTEN not in f"{snapshot} {show(snapshot)} {logs}"


def test_a_hang_of_seconds_is_late_and_the_window_survives() -> None:
    clock, server = Clock(), ScriptedLlamaServer(BUSY)
    target = new_target("chat", "llamacpp", URL)

    async def work() -> tuple[TargetSnapshot, TargetSnapshot]:
        scraper = LlamacppScraper(target, clock, lambda: 1.7e9, server.create_transport(clock))
        for _ in range(10):
            await scraper.scrape()
            clock.now += 1.0
        server.hanging = frozenset({"/props", "/metrics", "/slots", "/health"})
        await scraper.scrape()
        hung = scraper.get_snapshot()
        clock.now += 10.0
        server.hanging = frozenset()
        await scraper.scrape()
        await scraper.close()
        return hung, scraper.get_snapshot()

    hung, after = asyncio.run(work())
    assert hung.up
    assert hung.engines == ()
    assert show(after)["llm_decode_throughput_tokens_per_second"] == pytest.approx(40, rel=0.03)


ROUTER_MODELS = {
    "data": [
        {"id": "a b", "status": {"value": "loaded", "args": ["--port", "9001"]}},
        {"id": "cold", "status": {"value": "unloaded"}},
        {"id": "c/d", "status": {"value": "loaded"}},
    ]
}


def test_a_router_is_asked_for_its_loaded_models_alone_and_never_loads_one() -> None:
    server = ScriptedLlamaServer(BUSY)

    def answer(_: str, path: str, time: float) -> Answer:
        bare, _, query = path.partition("?")
        if bare in {"/models", "/v1/models"}:
            return 200, json.dumps(ROUTER_MODELS)
        if bare == "/props" and not query:
            return 200, json.dumps({"role": "router"})
        assert "autoload=false" in query, path
        assert "cold" not in query, path
        return server.answer(bare, time)

    snapshots, asked = watch_answers(answer)
    assert {engine.key.model_name for engine in snapshots[-1].engines} == {"a b", "c/d"}
    assert not any("/upstream" in path for path in asked)


def test_llama_swap_is_read_by_running_and_each_ready_child_at_its_own_address_never_upstream() -> None:
    server = ScriptedLlamaServer(BUSY)
    children = [
        {"model": "one", "state": "ready", "proxy": "http://child1.invalid:5801", "cmd": "x --api-key hush"},
        {"model": "two", "state": "ready", "proxy": "http://child2.invalid:5802/", "cmd": "x --api-key hush"},
        {"model": "late", "state": "starting", "proxy": "http://child3.invalid:5803", "cmd": "x"},
    ]

    def answer(host: str, path: str, time: float) -> Answer:
        if host.startswith("child"):
            return server.answer(path, time)
        return (200, json.dumps({"running": children})) if path == "/running" else (404, b"")

    with capture_logs() as logs:
        snapshots, asked = watch_answers(answer)
    assert {engine.key.model_name for engine in snapshots[-1].engines} == {"one", "two"}
    assert not any("/upstream" in path or "child3" in path for path in asked)
    assert "hush" not in f"{snapshots} {logs}"


def test_a_child_of_llama_swap_whose_address_is_none_leaves_the_others_their_figures() -> None:
    server = ScriptedLlamaServer(BUSY)
    upstream = "http://child1.invalid/upstream/odd"
    for proxy in (
        "not a url",
        "child:5801",
        "ftp://child1.invalid",
        "http://",
        "http://h:99999",
        "http://[::1",
        upstream,
    ):
        children = [{"model": "odd", "state": "ready", "proxy": proxy}]
        children.append({"model": "good", "state": "ready", "proxy": "http://child2.invalid"})

        def answer(host: str, path: str, time: float, children: object = children) -> Answer:
            if host.startswith("child2"):
                return server.answer(path, time)
            return (200, json.dumps({"running": children})) if path == "/running" else (404, b"")

        snapshots, _ = watch_answers(answer)
        assert [engine.key.model_name for engine in snapshots[-1].engines] == ["good"], proxy


def test_the_secret_of_a_target_goes_to_its_own_host_and_this_machine_alone() -> None:
    own = "http://gpu-1.example.org:8080"
    assert may_know_secret("http://gpu-1.example.org:5801", own)
    assert may_know_secret("http://127.0.0.1:5801", own)
    assert not may_know_secret("http://elsewhere.example.org:5801", own)


def test_a_child_of_llama_swap_that_ends_takes_its_figures_along_and_leaves_the_others_window() -> None:
    server = ScriptedLlamaServer(BUSY)

    def answer(host: str, path: str, time: float) -> Answer:
        if host.startswith("child"):
            return server.answer(path, time)
        names = ("one", "two") if time < 8 else ("one",)
        children = [{"model": name, "state": "ready", "proxy": f"http://child-{name}.invalid"} for name in names]
        return (200, json.dumps({"running": children})) if path == "/running" else (404, b"")

    snapshots, _ = watch_answers(answer, rounds=14)
    (engine,) = snapshots[-1].engines
    assert engine.key.model_name == "one"
    assert engine.phases.decode_throughput_tokens_per_second == pytest.approx(40, rel=0.05)


def test_an_empty_router_or_swap_is_up_without_models() -> None:
    for props, running in ((json.dumps({"role": "router"}), None), (None, '{"running": []}')):

        def answer(_: str, path: str, __: float, props: str | None = props, running: str | None = running) -> Answer:
            bodies = {"/props": props, "/running": running, "/models": '{"data": []}'}
            body = bodies.get(path)
            return (404, b"") if body is None else (200, body)

        snapshots, _ = watch_answers(answer, rounds=2)
        assert snapshots[-1].up, (props, running)
        assert snapshots[-1].engines == ()


def test_a_page_of_lemonade_is_several_models_of_one_target() -> None:
    # Until a request has ended, nothing on a page without slots tells an engine of texts from one of embeddings.
    server = ScriptedLlamaServer((Job(0.0, 0.1, 10, 0.01), *(replace(job, begin=0.5) for job in BUSY)))

    def answer(_: str, path: str, time: float) -> Answer:
        if path != "/metrics":
            return 404, b""
        page = "lemonade_model_tokens_per_second 4\n"
        for model in ("one", "two"):
            lines = server.render_page(time).splitlines()
            named = (line.replace("llamacpp:", "lemonade_llamacpp_") for line in lines if not line.startswith("#"))
            page += "".join(
                f'{name}{{model_name="{model}",recipe="llamacpp"}} {value}\n'
                for name, value in (line.split() for line in named)
            )
        return 200, page

    snapshots, _ = watch_answers(answer, rounds=12)
    assert {engine.key.model_name for engine in snapshots[-1].engines} == {"one", "two"}
    for engine in snapshots[-1].engines:
        assert engine.phases.decode_throughput_tokens_per_second == pytest.approx(40, rel=0.1)


def test_a_model_that_is_restarted_does_not_empty_the_windows_of_the_others() -> None:
    one, two = ScriptedLlamaServer(BUSY), ScriptedLlamaServer(BUSY)

    def answer(host: str, path: str, time: float) -> Answer:
        if host == "one.invalid":
            return one.answer(path, time)
        if host == "two.invalid":
            return (two if time < 8 else replace(two, jobs=(Job(8.0, 9.0, 400, 0.1),))).answer(path, time)
        children = [{"model": name, "state": "ready", "proxy": f"http://{name}.invalid"} for name in ("one", "two")]
        return (200, json.dumps({"running": children})) if path == "/running" else (404, b"")

    snapshots, _ = watch_answers(answer, rounds=16)
    rates = {
        engine.key.model_name: engine.phases.decode_throughput_tokens_per_second for engine in snapshots[-1].engines
    }
    assert rates["one"] == pytest.approx(40, rel=0.03)
    assert rates["two"] == pytest.approx(10, rel=0.2)


def test_slots_alone_count_short_answers_through_the_pauses_between_them() -> None:
    begins = [2.0 + 1.37 * number for number in range(60)]
    server = ScriptedLlamaServer(
        tuple(Job(begin, begin + 0.1, 40, 0.01) for begin in begins), disabled=frozenset({"/metrics"})
    )
    clock = Clock()
    scraper = LlamacppScraper(new_target("chat", "llamacpp", URL), clock, lambda: 1.7e9, server.create_transport(clock))

    async def work() -> TargetSnapshot:
        for tick in range(4 * 75):
            await (scraper.poll_slots() if tick % 4 else scraper.scrape())
            clock.now = 2.0 + 0.25 * (tick + 1)
        await scraper.close()
        return scraper.get_snapshot()

    shown = show(asyncio.run(work()))
    assert shown["llm_decode_throughput_tokens_per_second"] == pytest.approx(40 / 1.37, rel=0.07)
