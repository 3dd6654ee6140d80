"""Hours with a simulated Ollama and its users: models are measured, users unharmed, and failures have reasons."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from structlog.testing import capture_logs

from phasewatch.backends.ollama.scraper import PROBE_TICK, OllamaScraper
from phasewatch.config.settings import DeviceSettings
from phasewatch.demo.ollama.go_time import SECOND, format_timestamp
from phasewatch.demo.ollama.harm_ledger import Harm
from phasewatch.demo.ollama.model import Model
from phasewatch.snapshot.probes import ProbeReason
from tests.support.ollama_facts import answered, seeded
from tests.support.pages import value, values
from tests.support.probe_assertions import assert_harmless, assert_uncached, assert_within_budget
from tests.support.simulated_ollama import URL, OllamaTransport, RecordingOllama, User, Visit
from tests.support.targets import new_model_probe, new_probe_settings, new_target
from tests.support.timeline import EPOCH, Timeline
from tests.support.watched_ollama import Actor, Watched, Wrap, build_user, read_metrics, run_repeatedly, watch

A: Final = Model("a:latest", "a" * 64)
B: Final = Model("b:latest", "b" * 64, decode_seconds_per_token=0.01)
NEW: Final = Model("a:latest", "c" * 64)
SLOW: Final = replace(A, prefill_seconds_per_token=0.02, decode_seconds_per_token=0.04)
"""On a CPU: a short probe takes 6 s."""
EMBEDDING: Final = Model("e:latest", "e" * 64, capabilities=("embedding",))
IMAGE: Final = Model("i:latest", "f" * 64, capabilities=("completion", "image"))
REMOTE: Final = Model("big:cloud", "d" * 64, remote_model="big", remote_host="https://elsewhere.invalid")

DECODE: Final = "llm_decode_tokens_per_second"
PREFILL: Final = "llm_prefill_tokens_per_second"
FIRST_TOKEN: Final = "llm_time_to_first_token_mean_seconds"  # noqa: S105  # a token of text
OFTEN: Final = new_probe_settings(interval=10, budget=0.5)
SKIPPED: Final = "llm_probes_skipped_total"
FAILED: Final = "llm_probe_failures_total"


def once(model: str = "a:latest", pause: float = 1.0, **visit: Any) -> User:
    """A user with one request, who by default keeps the model loaded forever."""
    return User(model, [Visit(pause, **{"keep_alive": -1, **visit})])


@dataclass(slots=True)
class Tuned:
    """A user whose requests have options of the runner that no endpoint shows."""

    pauses: tuple[float, ...]
    options: dict[str, Any] = field(default_factory=lambda: {"num_thread": 4})

    async def live(self, transport: OllamaTransport) -> None:
        async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=None) as client:  # noqa: S113  # a user waits
            for number, pause in enumerate(self.pauses):
                await asyncio.sleep(pause)
                options = {"num_predict": 50, **self.options}
                body = {
                    "model": "a",
                    "prompt": f"{number} words",
                    "stream": False,
                    "keep_alive": -1,
                    "options": options,
                }
                await client.post("/api/generate", json=body, headers={"User-Agent": "a user"})


@dataclass(slots=True)
class Between(httpx.AsyncBaseTransport):
    """Proxy of the server: `meddle` responds in its place, raises, or returns None to let it respond."""

    server: httpx.AsyncBaseTransport
    meddle: Callable[[httpx.Request], Awaitable[httpx.Response | None]]
    in_flight: int = 0
    most_in_flight: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        meddled = await self.meddle(request)
        if meddled is not None:
            return meddled
        probing = request.url.path == "/api/generate"
        self.in_flight += probing
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self.server.handle_async_request(request)
        finally:
            self.in_flight -= probing


def answering(path: str, answer: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> Wrap:
    """Proxy that responds to one path in the server's place."""

    async def meddle(request: httpx.Request) -> httpx.Response | None:
        return await answer(request) if request.url.path == path else None

    return lambda server: Between(server, meddle)


def during(begin: float, end: float, fail: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> Wrap:
    """Proxy that responds to everything for a while; seconds since the first request."""
    began: list[float] = []

    async def meddle(request: httpx.Request) -> httpx.Response | None:
        now = asyncio.get_running_loop().time()
        began.append(now)
        return await fail(request) if begin <= now - began[0] < end else None

    return lambda server: Between(server, meddle)


def assert_nobody_harmed(watched: Watched, *, probes: int = 1) -> None:
    assert_harmless(watched.ollama.ledger, probes=probes)
    assert_uncached(watched.ollama.ledger)
    assert_within_budget(watched.ollama.ledger, 0.01, watched.seconds)
    assert_queued_probes_back_off(watched)


def assert_queued_probes_back_off(watched: Watched) -> None:
    """After a probe that queued noticeably behind a user's request, none follows for two intervals."""
    sent = [
        asked.at / 1e9 for asked in watched.ollama.requests if asked.path == "/api/generate" and ours(asked.headers)
    ]
    ledger = watched.ollama.ledger
    queue_seconds = dict(watched.values("llm_probe_queue_seconds"))
    for index, waited in enumerate(ledger.waited[: len(sent) - 1]):
        shown = [queue for time, queue in queue_seconds.items() if 0 < time - (sent[index] - 50_000) < 70]
        if waited and max(shown, default=1.0) > 0.25:
            assert sent[index + 1] - sent[index] >= 600, sent[index]


def ours(headers: Any) -> bool:
    return str(headers.get("user-agent", "")).startswith("phasewatch/")


def skips(watched: Watched, model: str = "a:latest") -> dict[str, float]:
    """Skipped probes by reason, at the end."""
    return by_reason(watched, SKIPPED, model)


def by_reason(watched: Watched, name: str, model: str = "a:latest") -> dict[str, float]:
    _, last = watched.readings[-1]
    return {
        dict(labels)["reason"]: count
        for (metric, labels), count in last.items()
        if metric == name and dict(labels)["model_name"] == model and count
    }


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("keep_alive", [None, "20s", "24h", -1])
def test_an_hour_of_probes_harms_no_user(seed: int, keep_alive: str | int | None) -> None:
    users = [
        build_user(seed, "a:latest", keep_alive=keep_alive),
        build_user(seed + 100, "b:latest", keep_alive=keep_alive),
    ]
    watched = watch([A, B], users, seconds=3600, seed=seed)
    assert_nobody_harmed(watched, probes=5)
    assert len([answer for user in users for answer in user.responses if answer["done"]]) > 50
    measured = {model: bool(watched.values(DECODE, model_name=model)) for model in ("a:latest", "b:latest")}
    assert all(measured.values()) or keep_alive == "20s"  # too short a life for more than the discarded first sample


def test_a_model_unloaded_after_each_request_is_never_probed() -> None:
    watched = watch([A], [build_user(1, "a:latest", keep_alive=0)])
    assert watched.count_generate_requests() == 0
    assert skips(watched).keys() <= {"active", "expiring"}
    assert_harmless(watched.ollama.ledger, probes=0)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("num_ctx", [512, 8192])
def test_probes_keep_the_context_that_users_chose(seed: int, num_ctx: int) -> None:
    watched = watch([A], [build_user(seed, "a:latest", num_ctx=num_ctx)], seed=seed)
    assert_nobody_harmed(watched, probes=3)
    assert {length for _, length in watched.values("llm_model_context_length_tokens")} == {num_ctx}


def test_probes_do_not_join_users_who_reload_each_others_context() -> None:
    users = [build_user(1, "a:latest", num_ctx=8192), build_user(2, "a:latest", num_ctx=512)]
    watched = watch([A], users)
    assert_nobody_harmed(watched, probes=3)
    assert watched.ollama.ledger.select(Harm.RELOAD, by_probe=False)
    assert watched.last("llm_probe_caused_reloads_total") == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_where_models_evict_each_other_probes_evict_none(seed: int) -> None:
    watched = watch([A, B], [build_user(seed, "a:latest"), build_user(seed + 100, "b:latest")], seed=seed, max_loaded=1)
    assert_nobody_harmed(watched, probes=3)
    assert watched.ollama.ledger.select(Harm.EVICTION, by_probe=False)
    assert watched.last("llm_probe_caused_reloads_total", model_name="a:latest") == 0


def test_two_models_in_memory_are_both_measured_exactly() -> None:
    watched = watch([A, B], [once("a:latest"), once("b:latest")], seconds=900)
    assert_nobody_harmed(watched, probes=6)
    for name, decode in (("a:latest", 1 / 0.003), ("b:latest", 1 / 0.01)):
        assert watched.last(DECODE, model_name=name) == pytest.approx(decode)
        assert watched.last("llm_inter_token_latency_mean_seconds", model_name=name) == pytest.approx(1 / decode)
        assert watched.last(PREFILL, model_name=name) == pytest.approx(2000)
        # 4 ms whatever the length, half a millisecond a token, and what an idle server adds.
        assert watched.last(FIRST_TOKEN, model_name=name) == pytest.approx(0.1065, abs=0.001)
        assert watched.last("llm_probe_queue_seconds", model_name=name) == pytest.approx(0, abs=1e-6)
        assert watched.last("llm_probe_success", model_name=name) == 1


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_clock_an_hour_off_harms_no_user(ahead: int) -> None:
    watched = watch([A], [build_user(3, "a:latest")], seed=3, epoch=EPOCH + ahead * SECOND)
    assert_nobody_harmed(watched, probes=3)
    assert watched.last(DECODE) or watched.values(DECODE)


def test_the_first_probe_of_an_idle_model_comes_within_an_interval_of_the_start() -> None:
    for seed in range(5):
        watched = watch([A], [once(pause=0.1)], seed=seed, seconds=300)
        first, _ = watched.values(DECODE)[0]
        assert first < 300


def test_the_long_prompt_is_sent_once_an_hour_and_the_short_one_every_interval() -> None:
    watched = watch([A], [once()], seconds=2 * 3600)
    prompts = [
        len(json.loads(asked.body)["prompt"].split())
        for asked in watched.ollama.requests
        if asked.path == "/api/generate" and ours(asked.headers)
    ]
    long = [words for words in prompts if words > 1000]
    assert 2 <= len(long) <= 3
    assert all(2000 * 0.97 <= 1 + words * 1.4 <= 2000 * 1.03 for words in long)
    assert 20 <= len(prompts) - len(long) <= 28
    assert_nobody_harmed(watched)


def test_a_server_gets_one_probe_at_a_time() -> None:
    between: list[Between] = []

    async def let(_: httpx.Request) -> None:
        return None

    def wrap(server: httpx.AsyncBaseTransport) -> Between:
        between.append(Between(server, let))
        return between[0]

    many = [replace(SLOW, name=f"m{number}:latest", digest=f"{number}" * 64) for number in range(3)]
    settings = new_probe_settings(interval=10, budget=0.5)
    watch(many, [once(model.name) for model in many], settings, seconds=600, wrap=wrap)
    assert between[0].most_in_flight == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_model_on_a_cpu_gets_no_long_probes_and_stays_within_the_budget(seed: int) -> None:
    watched = watch([SLOW], [build_user(seed, "a:latest", keep_alive=-1)], seed=seed, seconds=2 * 3600)
    assert_nobody_harmed(watched, probes=4)
    assert watched.last(DECODE) == pytest.approx(25)
    assert watched.last(PREFILL) == pytest.approx(200 / 4.004, rel=0.01)
    times = [time for time, _ in watched.values(DECODE)]
    # Two intervals of the budget are not always enough where a probe had to wait.
    assert len(times) > 0.9 * len([time for time, _ in watched.readings if time >= times[0]])


def test_a_user_who_comes_during_a_probe_waits_for_the_rest_of_it_at_most() -> None:
    servers: list[RecordingOllama] = []

    class Interrupting:
        async def live(self, transport: OllamaTransport) -> None:
            user = User("a:latest", [Visit(0.1, keep_alive=-1)])
            await user.live(transport)
            for number in range(3):
                while servers[0].ledger.probes <= number:  # noqa: ASYNC110  # nothing announces it
                    await asyncio.sleep(0.5)
                await User("a:latest", [Visit(1.0, keep_alive=-1, words=7 + number)]).live(transport)

    async def incident(server: RecordingOllama) -> None:
        servers.append(server)

    watched = watch([SLOW], [Interrupting()], seconds=3600, incident=incident)
    assert_nobody_harmed(watched, probes=3)
    delays = [event.seconds for event in watched.ollama.ledger.select(Harm.DELAY)]
    assert len(delays) == 3
    assert max(delays) < 30
    assert watched.last(DECODE) == pytest.approx(25)
    assert by_reason(watched, FAILED) == {}


def test_a_reply_of_minutes_makes_a_probe_time_out_and_back_off() -> None:
    """Nothing shows that a later request is running: the probe queues behind it until its timeout."""
    talk = User(
        "a:latest", [Visit(1.0, keep_alive="24h"), Visit(400, num_predict=30_000, requests=40, think_seconds=0.1)]
    )
    watched = watch([A], [talk], seconds=3600, num_ctx=131_072)
    assert_nobody_harmed(watched, probes=3)
    assert by_reason(watched, FAILED).keys() == {"timeout"}
    assert by_reason(watched, FAILED)["timeout"] <= 4
    assert watched.last("llm_probe_success") == 0


def test_a_server_that_lists_no_contexts_is_probed_only_with_a_configured_one() -> None:
    watched = watch([A], [build_user(1, "a:latest")], version="0.9.0")
    assert watched.count_generate_requests() == 0
    assert skips(watched).keys() == {"context_unknown"}
    assert watched.values("llm_model_loaded")
    assert not watched.values("llm_model_context_length_tokens")
    configured = new_probe_settings(models={"a": new_model_probe(options={"num_ctx": 4096})})
    watched = watch([A], [build_user(1, "a:latest")], configured, version="0.9.0")
    assert_nobody_harmed(watched, probes=3)
    assert watched.values(DECODE)


def test_a_reload_caused_by_a_probe_is_counted_logged_once_and_never_repeated() -> None:
    watched = watch([A], [Tuned((1.0, *[300.0] * 20))], seconds=2 * 3600)
    assert len(watched.ollama.ledger.select(Harm.RELOAD)) == 1
    assert watched.last("llm_probe_caused_reloads_total") == 1
    assert watched.last("llm_probes_total") == watched.count_generate_requests() == 1
    assert by_reason(watched, "llm_probes_discarded_total") == {"reloaded": 1}
    assert skips(watched)["quarantined"] > 3
    (line,) = watched.logged("model no longer probed")
    assert line["log_level"] == "warning"
    assert line["model"] == "a:latest"
    assert line["why"].startswith("it waited ")
    assert not watched.values(DECODE)


def test_a_quarantined_model_is_probed_again_after_it_was_pulled_again() -> None:
    async def pull(server: RecordingOllama) -> None:
        await asyncio.sleep(1000)
        server.pull(NEW)

    users: list[Actor] = [Tuned((1.0,)), User("a:latest", [Visit(1100.0, keep_alive=-1)])]
    watched = watch([A], users, seconds=3600, incident=pull)
    assert len(watched.ollama.ledger.select(Harm.RELOAD)) == 1
    assert watched.last("llm_probe_caused_reloads_total", model_name="a:latest") == 1
    assert watched.last("llm_probes_total", model_name="a:latest") > 3
    assert watched.last(DECODE, model_name="a:latest") == pytest.approx(1 / 0.003)


def test_probes_with_the_options_of_a_model_do_not_reload_it() -> None:
    settings = new_probe_settings(models={"a": new_model_probe(options={"num_thread": 4})})
    watched = watch([A], [Tuned((1.0, *[300.0] * 20))], settings)
    assert_nobody_harmed(watched, probes=5)
    assert watched.last("llm_probe_caused_reloads_total") == 0


def test_a_replaced_model_is_shown_and_never_probed() -> None:
    async def pull(server: RecordingOllama) -> None:
        await asyncio.sleep(2)
        server.pull(NEW)

    watched = watch([A], [once(pause=0.1)], incident=pull)
    assert watched.count_generate_requests() == 0
    assert_harmless(watched.ollama.ledger, probes=0)
    assert skips(watched).keys() == {"replaced"}
    _, last = watched.readings[-1]
    assert value(last, "llm_model_loaded", model_name=f"a:latest@{'a' * 12}") == 1
    assert value(last, "llm_model_loaded", model_name="a:latest") == 0


def test_of_two_models_of_one_name_both_are_shown_and_the_newer_is_probed() -> None:
    async def pull(server: RecordingOllama) -> None:
        await asyncio.sleep(2)
        server.pull(NEW)

    watched = watch([A], [once(pause=0.1), once(pause=5)], incident=pull, seconds=1200)
    assert_nobody_harmed(watched, probes=2)
    _, last = watched.readings[-1]
    assert values(last, "llm_model_loaded", model_name="a:latest") == [1]
    assert values(last, "llm_model_loaded", model_name=f"a:latest@{'a' * 12}") == [1]
    assert value(last, DECODE, model_name="a:latest") == pytest.approx(1 / 0.003)
    assert value(last, DECODE, model_name=f"a:latest@{'a' * 12}") is None


def test_embedding_image_and_remote_models_get_no_requests() -> None:
    settings = new_probe_settings(models={name: new_model_probe(load=True) for name in ("e", "i", "big:cloud")})
    watched = watch([EMBEDDING, IMAGE, REMOTE], [User("big:cloud", [Visit(10.0, requests=20)])], settings)
    assert watched.count_generate_requests() == 0
    assert watched.ollama.show_counts.total() == 0
    assert skips(watched, "e:latest").keys() == skips(watched, "i:latest").keys() == {"no_completion"}
    assert skips(watched, "big:cloud").keys() == {"remote"}
    assert not watched.values("llm_model_loaded", model_name="big:cloud")


def test_a_model_that_an_older_server_refuses_is_not_tried_again() -> None:
    settings = new_probe_settings(models={"e": new_model_probe(load=True)})
    watched = watch([EMBEDDING], [], settings, version="0.9.0")
    assert watched.count_generate_requests() == 1
    assert by_reason(watched, FAILED, "e:latest") == {"unsupported": 1}
    assert not watched.ollama.ledger.select(Harm.LOAD)


def test_with_probes_disabled_there_is_an_inventory_and_no_request_to_generate() -> None:
    watched = watch([A, B], [build_user(1, "a:latest")], new_probe_settings(enabled=False))
    assert watched.count_generate_requests() == 0
    assert {asked.path for asked in watched.ollama.requests if ours(asked.headers)} == {
        "/api/version",
        "/api/ps",
        "/api/tags",
        "/api/show",
    }
    for name in ("bytes", "vram_bytes", "gpu_ratio", "context_length_tokens", "expiry_timestamp_seconds"):
        assert watched.values(f"llm_model_{name}", model_name="a:latest"), name
    assert {loaded for _, loaded in watched.values("llm_model_loaded", model_name="b:latest")} == {0.0}
    assert not any(name.startswith("llm_probe") for _, metrics in watched.readings for name, _ in metrics)


def test_a_model_with_probes_disabled_is_not_probed() -> None:
    settings = new_probe_settings(models={"a:latest": new_model_probe(enabled=False)})
    watched = watch([A, B], [once("a:latest"), once("b:latest")], settings, seconds=900)
    assert_nobody_harmed(watched, probes=2)
    assert {name for (name, _), _ in watched.readings[-1][1].items()} > {DECODE}
    assert not watched.values(DECODE, model_name="a:latest")
    assert not watched.values(SKIPPED, model_name="a:latest")


LOADING: Final = new_probe_settings(models={"a": new_model_probe(load=True)})


def test_a_loadable_model_is_loaded_on_an_empty_server_timed_and_measured() -> None:
    watched = watch([A, B], [], LOADING, seconds=290, tick=PROBE_TICK)
    assert [event.model for event in watched.ollama.ledger.select(Harm.LOAD)] == ["a:latest"]
    assert not watched.ollama.ledger.select(Harm.EVICTION, Harm.RELOAD, Harm.KEEP_ALIVE)
    assert watched.last("llm_model_load_duration_seconds", model_name="a:latest") == pytest.approx(2.0, abs=0.01)
    assert watched.last("llm_probe_caused_reloads_total", model_name="a:latest") == 0
    assert watched.last(DECODE, model_name="a:latest") == pytest.approx(1 / 0.003)
    assert not watched.values("llm_probes_total", model_name="b:latest")


def test_no_model_is_loaded_while_another_is_in_memory() -> None:
    watched = watch([A, B], [once("b:latest", pause=0.1)], LOADING)
    assert not watched.ollama.ledger.select(Harm.LOAD)
    assert {"others_loaded"} <= skips(watched, "a:latest").keys() <= {"others_loaded", "budget"}
    assert_harmless(watched.ollama.ledger)


def test_a_model_about_to_expire_is_skipped_and_the_other_probed() -> None:
    leaving = User("b:latest", [Visit(60.0, keep_alive="14s") for _ in range(10)])
    watched = watch([A, B], [once("a:latest"), leaving], new_probe_settings(interval=10, budget=0.5), seconds=600)
    assert skips(watched, "b:latest")["expiring"] >= 5
    assert skips(watched, "b:latest").keys() <= {"active", "expiring", "budget"}
    assert watched.values(DECODE, model_name="a:latest")
    assert watched.last("llm_probes_total", model_name="b:latest") == 0
    assert_harmless(watched.ollama.ledger, probes=20)


def test_a_model_unloaded_between_two_scrapes_is_not_loaded_again() -> None:
    """It is unloaded just before the inventory that precedes the probe, which shows that."""

    async def meddle(request: httpx.Request) -> None:
        if request.url.path == "/api/ps":
            inventories.append(asyncio.get_running_loop().time())

    inventories: list[float] = []
    unloading = User("a:latest", [Visit(0.1, keep_alive="24h")])

    class Unloading:
        async def live(self, transport: OllamaTransport) -> None:
            await unloading.live(transport)
            async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
                while True:
                    await asyncio.sleep(0.5)
                    # Scrapes are five seconds apart: an inventory in between precedes a probe.
                    if len(inventories) > 1 and inventories[-1] - inventories[-2] < 4.9:
                        return
                    if asyncio.get_running_loop().time() > 50_004.0:
                        await client.post("/api/generate", json={"model": "a", "keep_alive": 0})
                        return

    watched = watch([A], [Unloading()], seconds=60, wrap=lambda server: Between(server, meddle))
    assert_harmless(watched.ollama.ledger, probes=0)
    assert watched.count_generate_requests() == 0


@dataclass(slots=True)
class Moving(httpx.AsyncBaseTransport):
    """A server whose expiry moves continuously during a probe, as it does during a first request."""

    server: httpx.AsyncBaseTransport
    running: bool = False
    moved: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/generate":
            self.running = True
            try:
                return await self.server.handle_async_request(request)
            finally:
                self.running = False
        response = await self.server.handle_async_request(request)
        if request.url.path != "/api/ps" or not self.running:
            return response
        payload = json.loads(await response.aread())
        self.moved += 1
        now = EPOCH + round((asyncio.get_running_loop().time() + 300) * SECOND)
        payload["models"] = [{**model, "expires_at": format_timestamp(now, UTC)} for model in payload["models"]]
        return await reply(200, payload)(request)


def test_an_expiry_that_moves_during_a_probe_is_not_taken_for_a_users() -> None:
    moving: list[Moving] = []

    def wrap(server: httpx.AsyncBaseTransport) -> Moving:
        moving.append(Moving(server))
        return moving[0]

    watched = watch([SLOW], [once(pause=0.1, keep_alive="5m")], OFTEN, seconds=1200, tick=0.5, interval=5.0, wrap=wrap)
    assert moving[0].moved > 10
    assert_harmless(watched.ollama.ledger, probes=10)
    assert skips(watched)["users_gone"] >= 1


def watch_with_restarts(user: User, restarts: int) -> tuple[RecordingOllama, list[float]]:
    """A server and whether its model was in memory at the end of each of several lives of the exporter, which last 45
    seconds and begin 5 seconds after the server.
    """
    timeline, server = Timeline(), RecordingOllama(A)
    transport = OllamaTransport(server, timeline)
    target = new_target("o", "ollama", URL, probe=OFTEN)
    in_memory: list[float] = []

    async def live_once(seed: int) -> None:
        scraper, ended = (
            OllamaScraper(target, timeline.clock, timeline.wall_clock, transport, seeded(seed)),
            asyncio.Event(),
        )
        jobs = [
            run_repeatedly(job.run, max(job.seconds, 1.0), ended) for job in scraper.list_jobs() if job.kind != "device"
        ]
        tasks = [asyncio.ensure_future(job) for job in jobs]
        await timeline.sleep(45)
        in_memory.append(value(read_metrics(scraper), "llm_model_loaded", model_name="a:latest") or 0.0)
        ended.set()
        await scraper.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def work() -> None:
        living = asyncio.ensure_future(user.live(transport))
        await timeline.sleep(5)
        for seed in range(restarts):
            await live_once(seed)
        living.cancel()

    timeline.run(work())
    return server, in_memory


def test_restarts_of_the_exporter_keep_no_model_alive() -> None:
    server, in_memory = watch_with_restarts(once(pause=0.1, keep_alive="60s"), restarts=8)
    assert in_memory == [1, *[0] * 7]
    assert_harmless(server.ledger, probes=0)
    assert server.ledger.probes == 0


def test_after_a_restart_the_next_request_of_a_user_allows_probes() -> None:
    user = User("a:latest", [Visit(0.1, keep_alive="5m"), Visit(110, keep_alive="5m")])
    server, in_memory = watch_with_restarts(user, restarts=3)
    assert in_memory == [1, 1, 1]
    assert_harmless(server.ledger, probes=1)
    sent = [asked.at / SECOND for asked in server.requests if asked.path == "/api/generate" and ours(asked.headers)]
    visits = [
        asked.at / SECOND for asked in server.requests if asked.path == "/api/generate" and not ours(asked.headers)
    ]
    assert min(sent) > visits[1]


def test_a_model_that_is_kept_for_ever_is_probed_after_every_restart() -> None:
    server, _ = watch_with_restarts(once(pause=0.1), restarts=3)
    assert_harmless(server.ledger, probes=6)


def test_metadata_of_each_model_is_requested_once() -> None:
    watched = watch([A, B], [build_user(1, "a:latest"), build_user(2, "b:latest")])
    assert watched.ollama.show_counts == {"a:latest": 1, "b:latest": 1}


def test_the_time_zone_of_the_server_makes_no_difference() -> None:
    def expiries(**server: Any) -> list[tuple[float, float]]:
        watched = watch([A], [build_user(1, "a:latest")], seconds=900, **server)
        assert_nobody_harmed(watched)
        return watched.values("llm_model_expiry_timestamp_seconds")

    assert expiries() == expiries(zone=timezone(timedelta(hours=-8))) == expiries(zone=timezone(timedelta(hours=5.5)))


def test_counters_never_fall_and_leave_with_their_model() -> None:
    async def pull(server: RecordingOllama) -> None:
        await asyncio.sleep(1500)
        server.remove("a:latest")

    refused = during(600, 700, refuse)
    watched = watch([A, B], [build_user(1, "a:latest"), build_user(2, "b:latest")], incident=pull, wrap=refused)
    before: dict[Any, float] = {}
    for _, metrics in watched.readings:
        counters = {key: count for key, count in metrics.items() if key[0].endswith("_total")}
        removed = {key for key in before.keys() - counters.keys() if ("model_name", "a:latest") in key[1]}
        assert before.keys() - removed <= counters.keys()
        assert all(count >= before.get(key, 0) for key, count in counters.items())
        before = counters
    assert sum(before.values()) > 20
    assert not [key for key in before if ("model_name", "a:latest") in key[1]]


def reply(status: int, body: Any) -> Callable[[httpx.Request], Awaitable[httpx.Response]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, stream=httpx.ByteStream(content))

    return answer


def replay(name: str, **changes: Any) -> Callable[[httpx.Request], Awaitable[httpx.Response]]:
    """The recorded response of a server."""
    response = answered(name, **changes)
    return reply(response.status, response.body)


async def refuse(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused") from ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


async def hang(_: httpx.Request) -> httpx.Response:
    await asyncio.sleep(1e9)
    raise AssertionError("nobody waits for that")


async def break_off(_: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("reset")


async def defect(_: httpx.Request) -> httpx.Response:
    raise ValueError("a mistake of ours")


MILLISECONDS: Final = {"total_duration": 184, "load_duration": 1, "prompt_eval_duration": 102, "eval_duration": 79}

FAILURES: Final[list[tuple[str, Callable[[httpx.Request], Awaitable[httpx.Response]], ProbeReason]]] = [
    ("connection refused", refuse, ProbeReason.CONNECT),
    ("a connection that breaks", break_off, ProbeReason.CONNECT),
    ("no answer at all", hang, ProbeReason.TIMEOUT),
    ("403 without a body", replay("host_evil"), ProbeReason.AUTH),
    ("401", reply(401, b"Unauthorized"), ProbeReason.AUTH),
    ("the model is gone", replay("notfound"), ProbeReason.MODEL_GONE),
    ("a nested refusal", replay("ovf_trunc_false"), ProbeReason.CONTEXT_EXCEEDED),
    ("a model that does not complete", replay("embed_only_generate"), ProbeReason.UNSUPPORTED),
    ("500", replay("bad_opt"), ProbeReason.HTTP_STATUS),
    ("503", replay("busy_503"), ProbeReason.BUSY),
    ("a redirect", reply(302, b""), ProbeReason.HTTP_STATUS),
    ("not done", replay("token_repeat_done_false"), ProbeReason.NOT_DONE),
    ("a load", replay("load_only"), ProbeReason.NO_NUMBERS),
    ("no JSON", reply(200, b"<html>"), ProbeReason.PARSE),
    ("JSON of a wrong kind", reply(200, []), ProbeReason.PARSE),
    ("a number as text", replay("unique_prefix", eval_count="32"), ProbeReason.PARSE),
    ("milliseconds", replay("unique_prefix", **MILLISECONDS), ProbeReason.IMPLAUSIBLE),
    ("a page without end", reply(200, bytes(17_000_000)), ProbeReason.TOO_LARGE),
    ("a defect", defect, ProbeReason.INTERNAL),
]


@pytest.mark.parametrize(("answer", "reason"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
def test_each_failure_of_a_probe_has_its_reason_and_no_measurement(
    answer: Callable[[httpx.Request], Awaitable[httpx.Response]], reason: ProbeReason
) -> None:
    watched = watch([A], [once()], seconds=1500, wrap=answering("/api/generate", answer))
    failures = by_reason(watched, FAILED)
    assert failures.keys() == {reason.value}
    assert 1 <= failures[reason.value] == watched.last("llm_probes_total") <= 5
    assert watched.last("llm_probe_success") == 0
    assert watched.last("llm_target_up") == 1
    for name in (DECODE, PREFILL, FIRST_TOKEN, "llm_probe_queue_seconds", "llm_probe_last_success_timestamp_seconds"):
        assert not watched.values(name), name
    (line,) = watched.logged("probe failed")
    assert (line["reason"], line["model"], line["log_level"]) == (reason.value, "a:latest", "warning")


def test_a_server_that_was_down_is_measured_again_afterwards() -> None:
    watched = watch([A], [once()], seconds=2400, interval=5.0, sample=10.0, wrap=during(600, 1200, refuse))
    down = [time for time, up in watched.values("llm_target_up") if not up]
    assert min(down) == pytest.approx(600, abs=15)
    assert max(down) == pytest.approx(1200, abs=15)
    times = [time for time, _ in watched.values(DECODE) if min(down) <= time <= max(down)]
    assert times == []
    assert watched.last(DECODE) == pytest.approx(1 / 0.003)
    assert {
        name for time, metrics in watched.readings if time in down for name, _ in metrics if "model" in name
    } == set()
    assert_nobody_harmed(watched, probes=4)
    assert len(watched.logged("target down")) == len(watched.logged("target up again")) == 1


def test_measurements_outlast_broken_connections_but_not_refused_ones() -> None:
    for fail, kept in ((break_off, True), (refuse, False)):
        watched = watch([A], [once()], seconds=700, sample=1.0, wrap=during(600, 650, fail))
        down = [time for time, up in watched.values("llm_target_up") if not up]
        assert down, fail
        again = next(time for time, up in watched.values("llm_target_up") if time > max(down) and up)
        assert (again in dict(watched.values(DECODE))) is kept, fail


def test_a_server_that_hung_keeps_its_measurements_and_is_not_flooded() -> None:
    watched = watch([A], [once()], seconds=1500, wrap=during(400, 700, hang))
    assert watched.values("llm_target_scrape_errors_total", reason="timeout")[-1][1] > 3
    assert watched.last("llm_target_up") == 1
    assert watched.last(DECODE) == pytest.approx(1 / 0.003)
    assert watched.last("llm_probes_total") <= 10
    assert_nobody_harmed(watched)


def test_a_server_too_busy_to_list_its_models_is_up_and_shows_none() -> None:
    watched = watch([A], [once()], seconds=300, wrap=answering("/api/ps", hang))
    assert {up for _, up in watched.values("llm_target_up")} == {1.0}
    assert watched.values("llm_target_info", version="0.33.0")
    assert not watched.values("llm_model_loaded")
    assert watched.count_generate_requests() == 0
    assert watched.last("llm_target_scrape_errors_total", reason="timeout") > 3


def test_an_inventory_that_cannot_be_read_is_a_failed_scrape_with_its_reason() -> None:
    responses: list[tuple[str, Callable[[httpx.Request], Awaitable[httpx.Response]], str]] = [
        ("500", reply(500, b""), "http_status"),
        ("404", reply(404, b"404 page not found"), "http_status"),
        ("403", reply(403, b""), "auth"),
        ("HTML", reply(200, b"<html>"), "parse"),
        ("a list", reply(200, b"[1]"), "parse"),
        ("refused", refuse, "connect"),
    ]
    for path in ("/api/version", "/api/ps", "/api/tags"):
        for name, respond, reason in responses:
            watched = watch([A], [once()], seconds=30, wrap=answering(path, respond))
            errors = values(watched.readings[-1][1], "llm_target_scrape_errors_total")
            of_reason = watched.last("llm_target_scrape_errors_total", reason=reason)
            assert watched.last("llm_target_up") == 0, (path, name)
            assert sum(errors) == of_reason >= 3, (path, name)
            assert watched.count_generate_requests() == 0, (path, name)
            assert not watched.values("llm_model_loaded"), (path, name)


def test_a_server_with_other_json_is_a_failed_scrape_with_its_reason() -> None:
    payloads: list[tuple[str, Any, str]] = [
        ("/api/ps", {"data": []}, "no_metrics"),
        ("/api/tags", {}, "no_metrics"),
        ("/api/ps", {"models": [{"name": 3}]}, "parse"),
        ("/api/tags", {"models": "none"}, "parse"),
    ]
    for path, payload, reason in payloads:
        watched = watch([A], [once()], seconds=30, wrap=answering(path, reply(200, payload)))
        assert watched.last("llm_target_up") == 0, (path, payload)
        assert watched.last("llm_target_scrape_errors_total", reason=reason) >= 3, (path, payload)


@pytest.mark.parametrize("answer", [reply(500, b""), reply(200, b"[]"), refuse, hang, reply(200, {"capabilities": 3})])
def test_a_model_whose_metadata_fail_is_still_probed_and_they_are_requested_once_a_minute(
    answer: Callable[[httpx.Request], Awaitable[httpx.Response]],
) -> None:
    requests: list[httpx.Request] = []

    async def show(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return await answer(request)

    watched = watch([A], [once()], seconds=600, wrap=answering("/api/show", show))
    assert watched.last("llm_target_up") == 1
    assert watched.values(DECODE)
    assert 1 <= len(requests) <= 11
    assert_nobody_harmed(watched)


def test_a_version_of_a_wrong_type_is_not_shown() -> None:
    watched = watch([A], [once()], seconds=30, wrap=answering("/api/version", reply(200, {"version": 33})))
    assert watched.last("llm_target_up") == 1
    assert not watched.values("llm_target_info")


def test_closing_cancels_a_probe_that_has_not_run_yet() -> None:
    timeline, server = Timeline(), RecordingOllama(A)
    transport = OllamaTransport(server, timeline)

    async def work() -> None:
        scraper = OllamaScraper(
            new_target("o", "ollama", URL), timeline.clock, timeline.wall_clock, transport, seeded()
        )
        await once(pause=0.1).live(transport)
        for _ in range(2):
            await scraper.scrape()
            await timeline.sleep(30)
        await scraper.probe_if_due()
        await scraper.close()
        await timeline.sleep(1)

    with capture_logs() as logs:
        timeline.run(work())
    assert server.ledger.probes == 0
    assert [line["event"] for line in logs if line["log_level"] in {"warning", "error"}] == []


def test_probes_that_succeed_again_are_logged_once() -> None:
    failing = during(0, 200, replay("bad_opt"))

    def wrap(server: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        inner = failing(server)
        return Only(server, inner)

    watched = watch([A], [once()], seconds=1500, wrap=wrap)
    assert len(watched.logged("probe failed")) == len(watched.logged("probes are answered again")) == 1
    assert watched.last("llm_probe_success") == 1


@dataclass(slots=True)
class Only(httpx.AsyncBaseTransport):
    """Sends probes to one transport and everything else to another."""

    server: httpx.AsyncBaseTransport
    probes: httpx.AsyncBaseTransport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        transport = self.probes if request.url.path == "/api/generate" else self.server
        return await transport.handle_async_request(request)


@pytest.mark.parametrize(("vram_bytes", "lines"), [(0, 1), (60_000_000, 1), (115_941_047, 0)])
def test_a_model_in_host_memory_of_unknown_bandwidth_is_logged_once(
    vram_bytes: int, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # whether this machine was ever measured has no say
    timeline = Timeline()
    server = RecordingOllama(replace(A, vram_bytes=vram_bytes))
    transport = OllamaTransport(server, timeline)
    device = DeviceSettings(name="NVIDIA L40S")
    target = new_target("o", "ollama", URL, device=device)

    async def work() -> None:
        await once().live(transport)
        scraper = OllamaScraper(target, timeline.clock, timeline.wall_clock, transport, seeded(1))
        for _ in range(3):
            await scraper.scrape()
            await scraper.find_device()
        await scraper.close()

    with capture_logs() as logs:
        timeline.run(work())
    notes = [line["note"] for line in logs if line["event"] == "device" and "cpu_memory_bandwidth" in line["note"]]
    assert len(notes) == lines
