"""The ways to drive a simulated Ollama: by httpx in simulated time, by users, over loopback in real time."""

import asyncio
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from phasewatch.demo.child_servers import OLLAMA_PROCESS
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from tests.support.ollama_requests import A, build_request, start_server
from tests.support.processes import PATIENCE
from tests.support.simulated_ollama import FIRST_CHILD_PORT, URL, FakeOllama, OllamaTransport, User, Visit
from tests.support.timeline import START, Timeline


def test_over_the_transport_a_request_takes_its_simulated_time() -> None:
    timeline = Timeline()
    server = start_server().ollama

    async def send() -> dict[str, Any]:
        async with httpx.AsyncClient(transport=OllamaTransport(server, timeline), base_url=URL) as client:
            response = await client.post("/api/generate", json=build_request(num_predict=1000), timeout=60)
        body: dict[str, Any] = response.json()
        return body

    body = timeline.run(send())
    assert timeline.nanoseconds() - round(START * SECOND) == body["total_duration"]
    assert server.requests[0].headers["host"] == "127.0.0.1:11434"


def test_over_the_transport_a_cancelled_request_admits_the_next_one_at_once() -> None:
    timeline = Timeline()
    transport = OllamaTransport(start_server().ollama, timeline)

    async def measure_wait() -> float:
        async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=None) as client:  # noqa: S113  # simulated
            await client.post("/api/generate", json=build_request())
            long = asyncio.create_task(client.post("/api/generate", json=build_request(num_predict=30_000)))
            await asyncio.sleep(1)
            queued = asyncio.create_task(client.post("/api/generate", json=build_request(num_predict=8)))
            await asyncio.sleep(1)
            long.cancel()
            cancelled_at = timeline.clock()
            assert (await queued).status_code == 200
            return timeline.clock() - cancelled_at

    assert timeline.run(measure_wait()) < 1


def test_over_the_transport_children_are_found_in_the_process_list_and_answer_until_they_end(tmp_path: Path) -> None:
    timeline = Timeline()
    server = start_server().ollama
    transport = OllamaTransport(server, timeline, tmp_path / "proc")

    async def read() -> None:
        async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=None) as client:  # noqa: S113  # simulated
            await client.post("/api/generate", json=build_request())
            (child,) = server.list_children()
            port = FIRST_CHILD_PORT + child.number
            arguments = (tmp_path / "proc" / str(OLLAMA_PROCESS + child.number) / "cmdline").read_text().split("\0")
            assert arguments[arguments.index("--port") + 1] == str(port)
            props = await client.get(f"http://127.0.0.1:{port}/props")
            assert props.json()["model_path"] == arguments[arguments.index("--model") + 1]
            assert (await client.get(f"http://127.0.0.1:{port}/slots?fail_on_no_slot=1")).status_code == 200
            await asyncio.sleep(400)
            with pytest.raises(httpx.ConnectError):
                await client.get(f"http://127.0.0.1:{port}/props")
            assert not (tmp_path / "proc" / str(OLLAMA_PROCESS + child.number)).exists()

    timeline.run(read())


def test_a_user_continues_a_conversation_within_a_visit_and_starts_a_new_one_in_the_next() -> None:
    timeline = Timeline()
    user = User("tiny-a", [Visit(pause=60, requests=2, num_ctx=8192), Visit(pause=600, keep_alive="1m")])
    server = start_server().ollama
    timeline.run(user.live(OllamaTransport(server, timeline)))
    first, second, third = user.responses
    assert second["prompt_eval_count"] > first["prompt_eval_count"] == third["prompt_eval_count"]
    assert second["prompt_eval_duration"] < first["prompt_eval_duration"]
    assert third["load_duration"] > SECOND
    bodies = [json.loads(request.body) for request in server.requests]
    assert [body["options"].get("num_ctx") for body in bodies] == [8192, 8192, None]
    assert bodies[2]["keep_alive"] == "1m"


def test_over_loopback_a_fast_server_responds_sooner_than_it_reports() -> None:
    with FakeOllama(A, speed=1000.0) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        response = client.post("/api/generate", json=build_request(num_predict=4000), timeout=PATIENCE)
        assert response.json()["total_duration"] > PATIENCE * SECOND
        assert client.get("/api/ps").json()["models"][0]["name"] == "tiny-a:latest"


def test_over_loopback_expiry_is_in_the_wall_clock_of_the_test() -> None:
    quick = Model("tiny-a:latest", "a" * 64, load_seconds=0.01)
    with FakeOllama(quick) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        before = time.time()
        client.post("/api/generate", json={"model": "tiny-a"}, timeout=PATIENCE)
        expires_at = client.get("/api/ps").json()["models"][0]["expires_at"]
        assert before < datetime.fromisoformat(expires_at).timestamp() - 300 < time.time()


def test_over_loopback_a_client_that_disconnects_frees_the_slot() -> None:
    quick = Model("tiny-a:latest", "a" * 64, load_seconds=0.01, cold_factor=1.0)
    with FakeOllama(quick) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        client.post("/api/generate", json=build_request(num_predict=1), timeout=PATIENCE)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/api/generate", json=build_request(num_predict=40_000), timeout=0.3)
        response = client.post("/api/generate", json=build_request(num_predict=1), timeout=PATIENCE)
        assert response.status_code == 200
