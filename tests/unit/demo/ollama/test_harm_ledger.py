"""The ledger of the simulated Ollama catches a probe that does harm, and only that."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from phasewatch.demo.ollama.api import Model
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import MOST_EVENTS, MOST_PROBES, Event, Harm, Ledger
from phasewatch.demo.ollama.scheduler import Ticket
from tests.support.probe_assertions import assert_backs_off, assert_harmless, assert_uncached, assert_within_budget
from tests.support.simulated_ollama import URL, Desk, OllamaTransport, User, Visit
from tests.support.timeline import Timeline

A = Model("tiny-a:latest", "a" * 64)
B = Model("tiny-b:latest", "b" * 64)
REMOTE = Model("big:cloud", "c" * 64, remote_model="big", remote_host="https://elsewhere.invalid")
AGENT = "phasewatch/0"


def body(
    model: str = "tiny-a", prompt: str = "a few words", num_predict: int | None = 48, **fields: Any
) -> dict[str, Any]:
    options = {key: value for key, value in {"num_ctx": 8192, "num_predict": num_predict}.items() if value is not None}
    sent = {"model": model, "prompt": prompt, "raw": True, "stream": False, "options": options, "truncate": False}
    return {**sent, **fields}


def probe(server: Desk, **fields: Any) -> Ticket:
    """Send the probe that a user of num_ctx 8192 does not feel, or what `fields` make of it."""
    return server.send("/api/generate", agent=AGENT, **{**body(prompt=f"unlike{server.now} any other"), **fields})


def used(*, keep_alive: Any = None, max_loaded: int = 3) -> Desk:
    """A server whose user has loaded a model with num_ctx 8192."""
    server = Desk(A, B, REMOTE, max_loaded=max_loaded)
    server.ask(**body(keep_alive=keep_alive))
    return server


def prolonging(server: Desk) -> None:
    for _ in range(2):
        server.wait(200)
        server.answer(probe(server))


def probing(**fields: Any) -> Callable[[Desk], None]:
    def act(server: Desk) -> None:
        server.wait(3)
        server.answer(probe(server, **fields))

    return act


def nothing(_: Desk) -> None:
    pass


HARMFUL: list[tuple[Harm, Callable[[Desk], None]]] = [
    (Harm.RELOAD, probing(options={"num_predict": 48})),  # leaves num_ctx out
    (Harm.RELOAD, probing(options={"num_predict": 48, "num_ctx": 8192, "num_thread": 4})),
    (Harm.RELOAD, probing(shift=False)),
    (Harm.KEEP_ALIVE, probing(keep_alive="20s")),
    (Harm.KEEP_ALIVE, probing(keep_alive=-1)),
    (Harm.KEEP_ALIVE, probing(prompt="", keep_alive=0)),
    (Harm.UNBOUNDED, probing(options={"num_ctx": 8192, "num_predict": 0})),
    (Harm.UNBOUNDED, probing(options={"num_ctx": 8192})),
    (Harm.LOAD, probing(model="tiny-b")),
    (Harm.LOAD, probing(model="tiny-b", prompt="")),
    (Harm.REMOTE, probing(model="big:cloud")),
    (Harm.PROLONGED, prolonging),
]


@pytest.mark.parametrize(("harm", "act"), HARMFUL)
def test_a_harmful_probe_is_caught_for_what_it_does_and_for_nothing_else(
    harm: Harm, act: Callable[[Desk], None]
) -> None:
    server = used()
    act(server)
    ledger = server.ollama.ledger
    assert {event.harm for event in ledger.events if event.by_probe} == {harm}
    with pytest.raises(AssertionError, match=harm.value):
        assert_harmless(ledger)


def test_a_probe_that_pushes_another_model_out_is_caught() -> None:
    server = used(max_loaded=1)
    server.answer(probe(server, model="tiny-b"))
    (event,) = server.ollama.ledger.of(Harm.EVICTION)
    assert event.detail == "tiny-a:latest has to leave"
    with pytest.raises(AssertionError, match="pushed out another model"):
        assert_harmless(server.ollama.ledger)


def test_a_probe_with_the_users_context_and_nothing_else_is_harmless() -> None:
    server = used()
    for _ in range(3):
        server.wait(30)
        server.answer(probe(server))
    assert_harmless(server.ollama.ledger, probes=3)
    assert_uncached(server.ollama.ledger)


def test_a_probe_that_names_the_session_there_is_changes_nothing() -> None:
    server = used(keep_alive="20s")
    server.answer(probe(server, keep_alive=20))
    assert_harmless(server.ollama.ledger)


@pytest.mark.parametrize("act", [act for _, act in HARMFUL] + [nothing])
def test_without_the_expected_probes_nothing_counts_as_harmless(act: Callable[[Desk], None]) -> None:
    server = used()
    act(server)
    with pytest.raises(AssertionError):
        assert_harmless(server.ollama.ledger)
    if act is nothing:
        assert_harmless(server.ollama.ledger, probes=0)


def test_what_users_do_to_each_other_is_no_harm_of_probes() -> None:
    server = used(max_loaded=1)
    server.ask(**body(keep_alive="1h"))
    server.ask(**body(options={}))
    server.ask(**body(model="tiny-b"))
    ledger = server.ollama.ledger
    assert_harmless(ledger, probes=0)
    user_kinds = {event.harm for event in ledger.of(*Harm, by_probe=False)}
    assert user_kinds == {Harm.LOAD, Harm.KEEP_ALIVE, Harm.RELOAD, Harm.EVICTION, Harm.UNBOUNDED}


def test_a_raw_request_of_another_program_is_a_users() -> None:
    server = used()
    server.ask(agent="python-httpx/0.28", **body(keep_alive="1h"))
    assert server.ollama.ledger.probes == 0


def test_a_probe_within_the_life_that_users_caused_prolongs_nothing() -> None:
    server = used()
    for _ in range(2):
        server.wait(140)
        server.answer(probe(server))
    assert_harmless(server.ollama.ledger, probes=2)


def test_a_user_who_is_being_served_keeps_the_model_alive() -> None:
    server = used(keep_alive=5)
    server.send("/api/generate", **body(num_predict=4000))
    server.wait(8)
    server.answer(probe(server))
    assert_harmless(server.ollama.ledger)


def test_a_user_for_ever_cannot_be_prolonged() -> None:
    server = used(keep_alive=-1)
    server.wait(86_400)
    server.answer(probe(server))
    assert_harmless(server.ollama.ledger)


# Waiting


def test_a_user_behind_a_probe_is_delayed_by_what_is_left_of_it() -> None:
    server = used()
    running = probe(server, options={"num_ctx": 8192, "num_predict": 1001})
    server.wait(1)
    came = server.now
    behind = server.send("/api/generate", **body())
    server.answer(running)
    left = server.now
    server.answer(behind)
    (event,) = server.ollama.ledger.of(Harm.DELAY)
    assert event.seconds == server.ollama.ledger.delayed_seconds() == (left - came) / SECOND


def test_a_user_who_waits_for_a_load_of_a_probe_is_delayed_by_it() -> None:
    server = used()
    loading = probe(server, model="tiny-b")
    server.wait(0.5)
    server.answer(server.send("/api/generate", **body(options={"num_ctx": 1024, "num_predict": 1})))
    assert loading.answer is not None
    assert server.ollama.ledger.delayed_seconds() == pytest.approx(1.5)


def test_a_user_whose_model_waits_for_a_probe_to_end_is_delayed_by_it() -> None:
    server = used()
    probe(server, options={"num_ctx": 8192, "num_predict": 1001})
    server.wait(1)
    server.answer(server.send("/api/generate", **body(options={"num_ctx": 1024, "num_predict": 1})))
    assert server.ollama.ledger.delayed_seconds() == pytest.approx(2.0, abs=0.1)


def test_a_user_behind_a_user_is_not_delayed_by_probes() -> None:
    server = used()
    tickets = [server.send("/api/generate", **body()) for _ in range(3)]
    for ticket in tickets:
        server.answer(ticket)
    assert server.ollama.ledger.delayed_seconds() == 0


def test_probes_that_wait_behind_users_are_counted_in_runs() -> None:
    server = used()
    for busy in (True, True, False, False, False, True):
        if busy:
            server.send("/api/generate", **body())
        server.answer(probe(server))
    ledger = server.ollama.ledger
    assert ledger.waited == [True, True, False, False, False, True]
    assert ledger.longest_run_of_waits() == 2
    with pytest.raises(AssertionError, match="2 probes in a row waited"):
        assert_backs_off(ledger)


def test_the_ledger_keeps_the_newest_events_and_probes_and_no_more() -> None:
    ledger = Ledger()
    event = Event(0, Harm.LOAD, "a:latest", by_probe=True, detail="")
    for number in range(MOST_PROBES + 7):
        ledger.end_probe(waited=number % 2 == 1)
    for _ in range(MOST_EVENTS + 7):
        ledger.events.append(event)
    assert (len(ledger.waited), len(ledger.events)) == (MOST_PROBES, MOST_EVENTS)
    assert ledger.waited[:2] == [True, False]
    assert ledger.waited[-1] is False


def test_a_probe_that_gives_up_in_the_queue_has_waited_too() -> None:
    server = used()
    server.send("/api/generate", **body(num_predict=4000))
    ticket = probe(server)
    server.wait(1)
    server.ollama.cancel(server.now, ticket)
    assert server.ollama.ledger.waited == [True]
    assert server.ollama.ledger.probe_seconds == 0
    assert_backs_off(server.ollama.ledger)


def test_a_probe_behind_a_users_load_has_waited() -> None:
    server = used()
    server.send("/api/generate", **body(model="tiny-b"))
    server.answer(probe(server, model="tiny-b", options={"num_ctx": 8192, "num_predict": 48}))
    assert server.ollama.ledger.waited == [True]
    assert_harmless(server.ollama.ledger)


def test_a_probe_that_only_loads_behind_a_users_load_has_waited_too() -> None:
    server = used()
    server.send("/api/generate", **body(model="tiny-b"))
    server.answer(probe(server, model="tiny-b", prompt=""))
    assert server.ollama.ledger.waited == [True]


def test_a_probe_whose_load_waits_for_a_user_to_end_has_waited_and_pushed_out_once() -> None:
    server = used(max_loaded=1)
    server.send("/api/generate", **body(num_predict=1000))
    ticket = probe(server, model="tiny-b")
    server.send("/api/generate", **body(model="tiny-b"))
    server.answer(ticket)
    assert server.ollama.ledger.waited == [True]
    assert len(server.ollama.ledger.of(Harm.EVICTION)) == 1


def test_a_load_with_a_keep_alive_of_its_own_is_a_load_and_no_more() -> None:
    server = Desk(A)
    server.ask(**body(keep_alive="1h"))
    assert [event.harm for event in server.ollama.ledger.events] == [Harm.LOAD]


def test_the_budget_is_the_time_in_the_slot() -> None:
    server = used()
    before = server.now
    server.answer(probe(server))
    took = (server.now - before) / SECOND
    ledger = server.ollama.ledger
    assert ledger.probe_seconds == pytest.approx(took)
    assert_within_budget(ledger, 0.01, took * 101)
    with pytest.raises(AssertionError, match=r"allowed are 1\.00%"):
        assert_within_budget(ledger, 0.01, took * 99)


def test_a_probe_given_up_in_the_slot_has_used_it_until_then() -> None:
    server = used()
    ticket = probe(server, options={"num_ctx": 8192, "num_predict": 4000})
    server.wait(2)
    server.ollama.cancel(server.now, ticket)
    server.wait(1)
    assert server.ollama.ledger.probe_seconds == pytest.approx(2.02)


def test_a_probe_that_repeats_a_prompt_is_caught() -> None:
    server = used()
    for _ in range(2):
        server.answer(probe(server, prompt="the same words again and again"))
    (event,) = server.ollama.ledger.of(Harm.CACHE_HIT)
    assert event.detail == "8 of 9 tokens"  # the last one is always computed
    with pytest.raises(AssertionError, match="repeated a prompt"):
        assert_uncached(server.ollama.ledger)
    assert_harmless(server.ollama.ledger, probes=2)


# An hour


def an_hour(timeline: Timeline, prober: Callable[[httpx.AsyncClient], Any]) -> Ledger:
    """A user who comes and goes, and a prober who looks every 5 seconds."""
    server = Desk(A, B).ollama
    transport = OllamaTransport(server, timeline)
    user = User("tiny-a", [Visit(pause=240, requests=4, num_ctx=8192) for _ in range(6)])

    async def probes() -> None:
        headers = {"User-Agent": AGENT}
        async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=600, headers=headers) as client:
            while True:
                await timeline.sleep(5)
                await prober(client)

    async def both() -> None:
        probing = asyncio.create_task(probes())
        await asyncio.gather(user.live(transport), timeline.sleep(3600))
        probing.cancel()

    timeline.run(both())
    return server.ledger


def test_in_an_hour_a_careless_prober_does_all_its_harms() -> None:
    timeline = Timeline()

    async def careless(client: httpx.AsyncClient) -> None:
        await client.post("/api/generate", json=body(prompt="Hello to the server", options={"num_predict": 400}))

    ledger = an_hour(timeline, careless)
    assert {Harm.LOAD, Harm.RELOAD, Harm.DELAY, Harm.CACHE_HIT} <= {event.harm for event in ledger.of(*Harm)}
    assert ledger.probes > 300
    assert timeline.clock() >= 53_600


def test_in_an_hour_a_careful_prober_does_none() -> None:
    timeline = Timeline()

    async def careful(client: httpx.AsyncClient) -> None:
        for model in (await client.get("/api/ps")).json()["models"]:
            options = {"num_ctx": model["context_length"], "num_predict": 16}
            sent = body(model["name"], prompt=f"{timeline.clock()} is unlike any other", options=options)
            await client.post("/api/generate", content=json.dumps(sent))
            await timeline.sleep(400)

    ledger = an_hour(timeline, careful)
    assert_harmless(ledger, probes=5)
    assert_uncached(ledger)
    assert_within_budget(ledger, 0.01, 3600)
