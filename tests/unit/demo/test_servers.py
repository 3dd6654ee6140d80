"""Simulated servers behind their ports, on a loop of the test's own."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from phasewatch.demo.ollama.api import Model
from phasewatch.demo.ollama.scheduler import Ticket
from phasewatch.demo.servers import Served, answering, ollama_application, served, vllm_application
from tests.support.processes import PATIENCE
from tests.support.simulated_ollama import Ollama

A = Model("a:latest", "a" * 64, load_seconds=0.05, cold_factor=1.0)
ENDLESS = Model("a:latest", "a" * 64, load_seconds=0.05, decode_seconds_per_token=1000.0)


@dataclass(frozen=True)
class Page:
    status: int
    content_type: str
    body: bytes


@dataclass
class Vllm:
    """Says what it was asked and when."""

    now: float = -1.0
    asked: list[tuple[str, str]] = field(default_factory=list)

    def advance(self, now: float) -> None:
        self.now = now

    def answer(self, method: str, path: str) -> Page:
        self.asked.append((method, path))
        return Page(418, "text/odd; charset=utf-8", f"{self.now:g}".encode())


def now() -> float:
    return time.monotonic()


def asking(*servers: Served, work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """What comes of some requests while the servers answer."""

    async def both() -> Any:
        async with answering(servers), httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            return await work(client)

    return asyncio.run(both())


def test_a_page_is_that_of_this_moment_with_its_status_and_type() -> None:
    vllm = Vllm()
    server = served(vllm_application(vllm, lambda: 12.5))
    answer = asking(server, work=lambda client: client.get(f"{server.url}/metrics"))
    assert (answer.status_code, answer.headers["content-type"], answer.text) == (418, "text/odd; charset=utf-8", "12.5")
    assert vllm.asked == [("GET", "/metrics")]


def test_every_method_and_path_reaches_the_simulation() -> None:
    vllm = Vllm()
    server = served(vllm_application(vllm, lambda: 0.0))

    async def work(client: httpx.AsyncClient) -> None:
        for method, path in (("POST", "/v1/completions"), ("DELETE", "/"), ("GET", "/a/b/")):
            assert (await client.request(method, server.url + path)).status_code == 418

    asking(server, work=work)
    assert vllm.asked == [("POST", "/v1/completions"), ("DELETE", "/"), ("GET", "/a/b/")]


def test_each_port_answers_for_its_own_server() -> None:
    vllms = [Vllm(), Vllm()]
    servers = [served(vllm_application(vllm, lambda: 0.0)) for vllm in vllms]
    asking(*servers, work=lambda client: client.get(servers[1].url))
    assert [len(vllm.asked) for vllm in vllms] == [0, 1]


def test_an_ollama_answers_when_the_time_of_its_answer_has_come() -> None:
    ollama = Ollama(A, epoch=0)
    server = served(ollama_application(ollama, now))
    body = {"model": "a", "prompt": "some words", "raw": True, "stream": False, "options": {"num_predict": 20}}

    async def work(client: httpx.AsyncClient) -> tuple[float, httpx.Response]:
        began = now()
        answer = await client.post(f"{server.url}/api/generate", json=body)
        return now() - began, answer

    took, answer = asking(server, work=work)
    assert answer.status_code == 200
    assert answer.json()["eval_count"] == 20
    assert took >= answer.json()["total_duration"] / 1e9


def test_a_client_that_leaves_frees_the_slot_of_an_ollama() -> None:
    ollama = Ollama(ENDLESS, epoch=0)
    server = served(ollama_application(ollama, now))
    agent = {"User-Agent": "phasewatch/0"}

    async def work(client: httpx.AsyncClient) -> None:
        body = {"model": "a", "prompt": "for ever", "stream": False, "options": {"num_predict": 9}}
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{server.url}/api/generate", json=body, headers=agent, timeout=0.3)
        async with asyncio.timeout(PATIENCE):
            while not ollama.ledger.waited:
                await asyncio.sleep(0.02)
                await client.get(f"{server.url}/api/ps")

    asking(server, work=work)
    assert ollama.ledger.probe_seconds < 1000


def test_a_foreign_host_is_refused_over_the_wire_too() -> None:
    server = served(ollama_application(Ollama(A, epoch=0), now))
    answer = asking(server, work=lambda client: client.get(f"{server.url}/api/ps", headers={"Host": "evil.example"}))
    assert answer.status_code == 403


def test_requests_that_still_wait_do_not_hold_up_the_end_and_the_ports_are_closed() -> None:
    arrived = asyncio.Event()

    class Waiting(Ollama):
        def request(self, *request: Any, **more: Any) -> Ticket:
            arrived.set()
            return super().request(*request, **more)

    server = served(ollama_application(Waiting(ENDLESS, epoch=0), now))
    url = server.url

    async def work() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            async with answering([server]):
                body = json.dumps({"model": "a", "prompt": "for ever", "stream": False})
                waiting = asyncio.create_task(client.post(f"{server.url}/api/generate", content=body))
                await arrived.wait()
            assert (await waiting).status_code == 503
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    async def within() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(within())
    assert server.bound.fileno() == -1
