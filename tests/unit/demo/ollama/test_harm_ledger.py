"""The ledger of the simulated Ollama detects every harm that a probe does, and nothing else."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import MAX_EVENTS, MAX_PROBES, Harm, HarmEvent, HarmLedger
from phasewatch.demo.ollama.scheduler import Exchange
from tests.support.ollama_requests import REMOTE, A, B
from tests.support.probe_assertions import assert_backs_off, assert_harmless, assert_uncached, assert_within_budget
from tests.support.simulated_ollama import URL, OllamaTransport, StepwiseOllama, User, Visit
from tests.support.timeline import Timeline

AGENT = "phasewatch/0"
GENERATE = "/api/generate"


def build_body(
    model: str = "tiny-a", prompt: str = "a few words", num_predict: int | None = 48, **fields: Any
) -> dict[str, Any]:
    options = {key: value for key, value in {"num_ctx": 8192, "num_predict": num_predict}.items() if value is not None}
    body = {"model": model, "prompt": prompt, "raw": True, "stream": False, "options": options, "truncate": False}
    return {**body, **fields}


def send_probe(server: StepwiseOllama, **fields: Any) -> Exchange:
    """Send a probe that is harmless to a user with num_ctx 8192, changed by `fields`."""
    return server.send(GENERATE, agent=AGENT, **{**build_body(prompt=f"unlike{server.now} any other"), **fields})


def start_used_server(*, keep_alive: Any = None, max_loaded: int = 3) -> StepwiseOllama:
    """A server on which a user has loaded a model with num_ctx 8192."""
    server = StepwiseOllama(A, B, REMOTE, max_loaded=max_loaded)
    server.generate(**build_body(keep_alive=keep_alive))
    return server


Action = Callable[[StepwiseOllama], None]


def prolong(server: StepwiseOllama) -> None:
    for _ in range(2):
        server.wait(200)
        server.complete(send_probe(server))


def probe_with(**fields: Any) -> Action:
    def act(server: StepwiseOllama) -> None:
        server.wait(3)
        server.complete(send_probe(server, **fields))

    return act


HARMFUL_ACTIONS: list[tuple[str, Harm, Action]] = [
    ("without num_ctx", Harm.RELOAD, probe_with(options={"num_predict": 48})),
    ("num_thread", Harm.RELOAD, probe_with(options={"num_predict": 48, "num_ctx": 8192, "num_thread": 4})),
    ("no shift", Harm.RELOAD, probe_with(shift=False)),
    ("keep_alive 20s", Harm.KEEP_ALIVE, probe_with(keep_alive="20s")),
    ("keep_alive -1", Harm.KEEP_ALIVE, probe_with(keep_alive=-1)),
    ("unload", Harm.KEEP_ALIVE, probe_with(prompt="", keep_alive=0)),
    ("num_predict 0", Harm.UNBOUNDED, probe_with(options={"num_ctx": 8192, "num_predict": 0})),
    ("without num_predict", Harm.UNBOUNDED, probe_with(options={"num_ctx": 8192})),
    ("model that is not loaded", Harm.LOAD, probe_with(model="tiny-b")),
    ("load without a prompt", Harm.LOAD, probe_with(model="tiny-b", prompt="")),
    ("remote model", Harm.REMOTE, probe_with(model="big:cloud")),
    ("prolong", Harm.PROLONGED, prolong),
]


def explain_harm(ledger: HarmLedger) -> str | None:
    """Why `assert_harmless` fails; None if it passes."""
    try:
        assert_harmless(ledger)
    except AssertionError as error:
        return str(error)
    return None


def test_a_harmful_probe_is_detected_with_exactly_its_harm() -> None:
    for name, harm, act in HARMFUL_ACTIONS:
        server = start_used_server()
        act(server)
        ledger = server.ollama.ledger
        assert {event.harm for event in ledger.events if event.by_probe} == {harm}, name
        assert harm.value in (explain_harm(ledger) or ""), name


def test_a_probe_that_evicts_another_model_is_detected() -> None:
    server = start_used_server(max_loaded=1)
    server.complete(send_probe(server, model="tiny-b"))
    (event,) = server.ollama.ledger.select(Harm.EVICTION)
    assert event.detail == "tiny-a:latest has to leave"
    with pytest.raises(AssertionError, match="pushed out another model"):
        assert_harmless(server.ollama.ledger)


def test_a_probe_with_the_users_num_ctx_is_harmless() -> None:
    server = start_used_server()
    for _ in range(3):
        server.wait(30)
        server.complete(send_probe(server))
    assert_harmless(server.ollama.ledger, probes=3)
    assert_uncached(server.ollama.ledger)


def test_a_probe_with_the_keep_alive_in_effect_is_harmless() -> None:
    server = start_used_server(keep_alive="20s")
    server.complete(send_probe(server, keep_alive=20))
    assert_harmless(server.ollama.ledger)


def test_harmful_probes_and_missing_probes_fail_the_assertion() -> None:
    for name, _, act in HARMFUL_ACTIONS:
        server = start_used_server()
        act(server)
        assert explain_harm(server.ollama.ledger), name
    without_probes = start_used_server().ollama.ledger
    with pytest.raises(AssertionError):
        assert_harmless(without_probes)
    assert_harmless(without_probes, probes=0)


def test_harm_that_users_do_to_each_other_is_not_attributed_to_probes() -> None:
    server = start_used_server(max_loaded=1)
    server.generate(**build_body(keep_alive="1h"))
    server.generate(**build_body(options={}))
    server.generate(**build_body(model="tiny-b"))
    ledger = server.ollama.ledger
    assert_harmless(ledger, probes=0)
    user_kinds = {event.harm for event in ledger.select(*Harm, by_probe=False)}
    assert user_kinds == {Harm.LOAD, Harm.KEEP_ALIVE, Harm.RELOAD, Harm.EVICTION, Harm.UNBOUNDED}


def test_a_raw_request_of_another_program_counts_as_a_users() -> None:
    server = start_used_server()
    server.generate(agent="python-httpx/0.28", **build_body(keep_alive="1h"))
    assert server.ollama.ledger.probes == 0


def test_a_probe_before_the_expiry_that_users_caused_prolongs_nothing() -> None:
    server = start_used_server()
    for _ in range(2):
        server.wait(140)
        server.complete(send_probe(server))
    assert_harmless(server.ollama.ledger, probes=2)


def test_a_probe_during_a_users_request_prolongs_nothing() -> None:
    server = start_used_server(keep_alive=5)
    server.send(GENERATE, **build_body(num_predict=4000))
    server.wait(8)
    server.complete(send_probe(server))
    assert_harmless(server.ollama.ledger)


def test_a_model_that_never_expires_cannot_be_prolonged() -> None:
    server = start_used_server(keep_alive=-1)
    server.wait(86_400)
    server.complete(send_probe(server))
    assert_harmless(server.ollama.ledger)


# Waiting


def test_a_user_behind_a_probe_is_delayed_by_its_remaining_time() -> None:
    server = start_used_server()
    running = send_probe(server, options={"num_ctx": 8192, "num_predict": 1001})
    server.wait(1)
    arrived = server.now
    behind = server.send(GENERATE, **build_body())
    server.complete(running)
    probe_ended = server.now
    server.complete(behind)
    (event,) = server.ollama.ledger.select(Harm.DELAY)
    assert event.seconds == server.ollama.ledger.sum_delays() == (probe_ended - arrived) / SECOND


def test_a_user_who_waits_for_the_load_of_a_probe_is_delayed_by_it() -> None:
    server = start_used_server()
    loading = send_probe(server, model="tiny-b")
    server.wait(0.5)
    server.complete(server.send(GENERATE, **build_body(options={"num_ctx": 1024, "num_predict": 1})))
    assert loading.response is not None
    assert server.ollama.ledger.sum_delays() == pytest.approx(1.5)


def test_a_user_whose_load_waits_for_a_probe_is_delayed_by_it() -> None:
    server = start_used_server()
    send_probe(server, options={"num_ctx": 8192, "num_predict": 1001})
    server.wait(1)
    server.complete(server.send(GENERATE, **build_body(options={"num_ctx": 1024, "num_predict": 1})))
    assert server.ollama.ledger.sum_delays() == pytest.approx(2.0, abs=0.1)


def test_a_user_behind_a_user_is_not_delayed_by_probes() -> None:
    server = start_used_server()
    exchanges = [server.send(GENERATE, **build_body()) for _ in range(3)]
    for exchange in exchanges:
        server.complete(exchange)
    assert server.ollama.ledger.sum_delays() == 0


def test_consecutive_probes_that_wait_behind_users_are_counted() -> None:
    server = start_used_server()
    for busy in (True, True, False, False, False, True):
        if busy:
            server.send(GENERATE, **build_body())
        server.complete(send_probe(server))
    ledger = server.ollama.ledger
    assert ledger.waited == [True, True, False, False, False, True]
    assert ledger.find_longest_waiting_run() == 2
    with pytest.raises(AssertionError, match="2 probes in a row waited"):
        assert_backs_off(ledger)


def test_the_ledger_keeps_only_the_newest_events_and_probes() -> None:
    ledger = HarmLedger()
    event = HarmEvent(0, Harm.LOAD, "a:latest", by_probe=True, detail="")
    for number in range(MAX_PROBES + 7):
        ledger.record_probe_end(waited=number % 2 == 1)
    for _ in range(MAX_EVENTS + 7):
        ledger.events.append(event)
    assert (len(ledger.waited), len(ledger.events)) == (MAX_PROBES, MAX_EVENTS)
    assert ledger.waited[:2] == [True, False]
    assert ledger.waited[-1] is False


def test_a_probe_that_is_cancelled_in_the_queue_has_waited() -> None:
    server = start_used_server()
    server.send(GENERATE, **build_body(num_predict=4000))
    exchange = send_probe(server)
    server.wait(1)
    server.ollama.cancel(server.now, exchange)
    assert server.ollama.ledger.waited == [True]
    assert server.ollama.ledger.probe_seconds == 0
    assert_backs_off(server.ollama.ledger)


def test_a_probe_behind_a_users_load_has_waited() -> None:
    server = start_used_server()
    server.send(GENERATE, **build_body(model="tiny-b"))
    server.complete(send_probe(server, model="tiny-b", options={"num_ctx": 8192, "num_predict": 48}))
    assert server.ollama.ledger.waited == [True]
    assert_harmless(server.ollama.ledger)


def test_a_probe_without_a_prompt_behind_a_users_load_has_waited() -> None:
    server = start_used_server()
    server.send(GENERATE, **build_body(model="tiny-b"))
    server.complete(send_probe(server, model="tiny-b", prompt=""))
    assert server.ollama.ledger.waited == [True]


def test_a_probe_whose_load_waits_for_a_user_has_waited_and_evicts_once() -> None:
    server = start_used_server(max_loaded=1)
    server.send(GENERATE, **build_body(num_predict=1000))
    exchange = send_probe(server, model="tiny-b")
    server.send(GENERATE, **build_body(model="tiny-b"))
    server.complete(exchange)
    assert server.ollama.ledger.waited == [True]
    assert len(server.ollama.ledger.select(Harm.EVICTION)) == 1


def test_a_load_with_its_own_keep_alive_is_only_a_load() -> None:
    server = StepwiseOllama(A)
    server.generate(**build_body(keep_alive="1h"))
    assert [event.harm for event in server.ollama.ledger.events] == [Harm.LOAD]


def test_the_budget_counts_the_time_in_the_slot() -> None:
    server = start_used_server()
    before = server.now
    server.complete(send_probe(server))
    duration = (server.now - before) / SECOND
    ledger = server.ollama.ledger
    assert ledger.probe_seconds == pytest.approx(duration)
    assert_within_budget(ledger, 0.01, duration * 101)
    with pytest.raises(AssertionError, match=r"allowed are 1\.00%"):
        assert_within_budget(ledger, 0.01, duration * 99)


def test_a_probe_that_is_cancelled_in_the_slot_has_used_it_until_then() -> None:
    server = start_used_server()
    exchange = send_probe(server, options={"num_ctx": 8192, "num_predict": 4000})
    server.wait(2)
    server.ollama.cancel(server.now, exchange)
    server.wait(1)
    assert server.ollama.ledger.probe_seconds == pytest.approx(2.02)


def test_a_probe_that_repeats_a_prompt_is_detected() -> None:
    server = start_used_server()
    for _ in range(2):
        server.complete(send_probe(server, prompt="the same words again and again"))
    (event,) = server.ollama.ledger.select(Harm.CACHE_HIT)
    assert event.detail == "8 of 9 tokens"  # the last one is always computed
    with pytest.raises(AssertionError, match="repeated a prompt"):
        assert_uncached(server.ollama.ledger)
    assert_harmless(server.ollama.ledger, probes=2)


# An hour


def run_for_an_hour(timeline: Timeline, probe: Callable[[httpx.AsyncClient], Any]) -> HarmLedger:
    """The ledger after an hour with a user who makes six visits, and a prober that acts every 5 seconds."""
    server = StepwiseOllama(A, B).ollama
    transport = OllamaTransport(server, timeline)
    user = User("tiny-a", [Visit(pause=240, requests=4, num_ctx=8192) for _ in range(6)])

    async def probe_repeatedly() -> None:
        headers = {"User-Agent": AGENT}
        async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=600, headers=headers) as client:
            while True:
                await timeline.sleep(5)
                await probe(client)

    async def work() -> None:
        probing = asyncio.create_task(probe_repeatedly())
        await asyncio.gather(user.live(transport), timeline.sleep(3600))
        probing.cancel()

    timeline.run(work())
    return server.ledger


def test_in_an_hour_a_careless_prober_does_every_harm_it_can() -> None:
    timeline = Timeline()

    async def probe(client: httpx.AsyncClient) -> None:
        await client.post(GENERATE, json=build_body(prompt="Hello to the server", options={"num_predict": 400}))

    ledger = run_for_an_hour(timeline, probe)
    assert {Harm.LOAD, Harm.RELOAD, Harm.DELAY, Harm.CACHE_HIT} <= {event.harm for event in ledger.select(*Harm)}
    assert ledger.probes > 300
    assert timeline.clock() >= 53_600


def test_in_an_hour_a_careful_prober_does_no_harm() -> None:
    timeline = Timeline()

    async def probe(client: httpx.AsyncClient) -> None:
        for model in (await client.get("/api/ps")).json()["models"]:
            options = {"num_ctx": model["context_length"], "num_predict": 16}
            body = build_body(model["name"], prompt=f"{timeline.clock()} is unlike any other", options=options)
            await client.post(GENERATE, content=json.dumps(body))
            await timeline.sleep(400)

    ledger = run_for_an_hour(timeline, probe)
    assert_harmless(ledger, probes=5)
    assert_uncached(ledger)
    assert_within_budget(ledger, 0.01, 3600)
