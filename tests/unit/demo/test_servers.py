"""Simulated servers behind their ports, on the test's own event loop."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from phasewatch.demo.llamacpp.endpoints import LlamaResponse
from phasewatch.demo.ollama.model import Model
from phasewatch.demo.ollama.scheduler import Exchange
from phasewatch.demo.servers import (
    BoundServer,
    bind_server,
    build_llama_application,
    build_ollama_application,
    build_vllm_application,
    serve_all,
)
from phasewatch.scrape.http import Response
from tests.support.processes import PATIENCE
from tests.support.simulated_ollama import RecordingOllama

A = Model("a:latest", "a" * 64, load_seconds=0.05, cold_factor=1.0)
ENDLESS = Model("a:latest", "a" * 64, load_seconds=0.05, decode_seconds_per_token=1000.0)


@dataclass
class FakeVllm:
    """Responds with the time, and records the requests."""

    now: float = -1.0
    requests: list[tuple[str, str]] = field(default_factory=list)

    def advance(self, now: float) -> None:
        self.now = now

    def respond(self, method: str, path: str) -> Response:
        self.requests.append((method, path))
        return Response(418, "text/odd; charset=utf-8", f"{self.now:g}".encode())


@dataclass
class FakeLlama:
    """Responds with the time, and with the path that it was asked for in a header."""

    now: float = -1.0

    def advance(self, now: float) -> None:
        self.now = now

    def respond(self, method: str, path: str) -> LlamaResponse:  # noqa: ARG002  # any
        return LlamaResponse(418, "text/odd; charset=utf-8", f"{self.now:g}".encode(), {"Odd-Header": path})


def now() -> float:
    return time.monotonic()


def run_client(*servers: BoundServer, work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """The result of `work`, which sends requests while the servers run."""

    async def serve_and_work() -> Any:
        async with serve_all(servers), httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            return await work(client)

    return asyncio.run(serve_and_work())


def test_a_response_has_the_simulations_time_status_and_content_type() -> None:
    vllm = FakeVllm()
    server = bind_server(build_vllm_application(vllm, lambda: 12.5))
    response = run_client(server, work=lambda client: client.get(f"{server.url}/metrics"))
    assert (response.status_code, response.text) == (418, "12.5")
    assert response.headers["content-type"] == "text/odd; charset=utf-8"
    assert vllm.requests == [("GET", "/metrics")]


def test_a_response_of_a_llama_server_has_its_headers_too_and_its_request_the_query() -> None:
    server = bind_server(build_llama_application(FakeLlama(), lambda: 12.5))
    response = run_client(server, work=lambda client: client.get(f"{server.url}/slots?fail_on_no_slot=1"))
    assert (response.status_code, response.text) == (418, "12.5")
    assert response.headers["content-type"] == "text/odd; charset=utf-8"
    assert response.headers["odd-header"] == "/slots?fail_on_no_slot=1"


def test_every_method_and_path_reaches_the_simulation() -> None:
    vllm = FakeVllm()
    server = bind_server(build_vllm_application(vllm, lambda: 0.0))
    requests = [("POST", "/v1/completions"), ("DELETE", "/"), ("GET", "/a/b/")]

    async def work(client: httpx.AsyncClient) -> None:
        for method, path in requests:
            assert (await client.request(method, server.url + path)).status_code == 418, (method, path)

    run_client(server, work=work)
    assert vllm.requests == requests


def test_each_port_belongs_to_its_own_server() -> None:
    vllms = [FakeVllm(), FakeVllm()]
    servers = [bind_server(build_vllm_application(vllm, lambda: 0.0)) for vllm in vllms]
    run_client(*servers, work=lambda client: client.get(servers[1].url))
    assert [len(vllm.requests) for vllm in vllms] == [0, 1]


def test_an_ollama_takes_as_long_to_respond_as_it_reports() -> None:
    ollama = RecordingOllama(A, epoch=0)
    server = bind_server(build_ollama_application(ollama, now))
    body = {"model": "a", "prompt": "some words", "raw": True, "stream": False, "options": {"num_predict": 20}}

    async def work(client: httpx.AsyncClient) -> tuple[float, httpx.Response]:
        began = now()
        response = await client.post(f"{server.url}/api/generate", json=body)
        return now() - began, response

    took, response = run_client(server, work=work)
    assert response.status_code == 200
    assert response.json()["eval_count"] == 20
    assert took >= response.json()["total_duration"] / 1e9


def test_a_client_that_disconnects_frees_the_slot_of_an_ollama() -> None:
    ollama = RecordingOllama(ENDLESS, epoch=0)
    server = bind_server(build_ollama_application(ollama, now))
    agent = {"User-Agent": "phasewatch/0"}

    async def work(client: httpx.AsyncClient) -> None:
        body = {"model": "a", "prompt": "for ever", "stream": False, "options": {"num_predict": 9}}
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{server.url}/api/generate", json=body, headers=agent, timeout=0.3)
        async with asyncio.timeout(PATIENCE):
            while not ollama.ledger.waited:
                await asyncio.sleep(0.02)
                await client.get(f"{server.url}/api/ps")

    run_client(server, work=work)
    assert ollama.ledger.probe_seconds < 1000


def test_a_foreign_host_header_is_forbidden_over_http_too() -> None:
    server = bind_server(build_ollama_application(RecordingOllama(A, epoch=0), now))
    headers = {"Host": "evil.example"}
    response = run_client(server, work=lambda client: client.get(f"{server.url}/api/ps", headers=headers))
    assert response.status_code == 403


def test_pending_requests_do_not_delay_the_end_which_closes_the_ports() -> None:
    arrived = asyncio.Event()

    class SignallingOllama(RecordingOllama):
        def request(self, *request: Any, **more: Any) -> Exchange:
            arrived.set()
            return super().request(*request, **more)

    server = bind_server(build_ollama_application(SignallingOllama(ENDLESS, epoch=0), now))
    url = server.url

    async def work() -> None:
        async with asyncio.timeout(PATIENCE), httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            async with serve_all([server]):
                body = json.dumps({"model": "a", "prompt": "for ever", "stream": False})
                pending = asyncio.create_task(client.post(f"{server.url}/api/generate", content=body))
                await arrived.wait()
            assert (await pending).status_code == 503
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    asyncio.run(work())
    assert server.bound.fileno() == -1
