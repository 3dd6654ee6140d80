"""The children of a simulated Ollama behind their ports, on the test's own event loop."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from phasewatch.demo.child_servers import OLLAMA_PROCESS, ChildServers, serve_children
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from phasewatch.demo.ollama.server import SimulatedOllama
from tests.support.processes import PATIENCE

A = Model("a:latest", "a" * 64, load_seconds=1.0)
B = Model("b:latest", "b" * 64, load_seconds=1.0)


class Setting:
    """A server with its children's ports, whose time a test advances, and a client."""

    def __init__(self, servers: ChildServers, ollama: SimulatedOllama, client: httpx.AsyncClient) -> None:
        self.servers = servers
        self.ollama = ollama
        self.client = client
        self.seconds = 0.0

    async def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.seconds += seconds
        self.ollama.advance(self.now())
        await self.servers.update()

    async def post(self, **body: Any) -> None:
        """Send a request to /api/generate."""
        self.ollama.request(self.now(), "POST", "/api/generate", {}, json.dumps(body).encode())
        await self.servers.update()

    def now(self) -> int:
        return round(self.seconds * SECOND)

    def list_ports(self) -> dict[str, int]:
        """The port of each child by the digest in its arguments, as somebody finds them who reads the process list."""
        ports = {}
        for entry in self.servers.folder.iterdir():
            arguments = (entry / "cmdline").read_text().split("\0")
            if arguments[0].endswith("llama-server"):
                path = arguments[arguments.index("--model") + 1]
                ports[path] = int(arguments[arguments.index("--port") + 1])
        return ports


def run(folder: Path, work: Callable[[Setting], Awaitable[None]]) -> None:
    async def serve_and_work() -> None:
        ollama = SimulatedOllama(A, B, epoch=0, keep_alive=60.0, child_metrics=True)
        setting: list[Setting] = []

        def clock() -> float:
            return setting[0].seconds if setting else 0.0

        async with (
            asyncio.timeout(PATIENCE),
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
            serve_children(ollama, clock, folder) as servers,
        ):
            setting.append(Setting(servers, ollama, client))
            await work(setting[0])

    asyncio.run(serve_and_work())


def test_a_child_is_found_in_the_process_list_and_answers_at_its_own_port(tmp_path: Path) -> None:
    async def work(setting: Setting) -> None:
        await setting.post(model="a")
        await setting.post(model="b")
        (url,) = [f"http://127.0.0.1:{port}" for port in setting.list_ports().values()]
        assert (await setting.client.get(f"{url}/health")).status_code == 503
        await setting.wait(1.5)
        await setting.wait(1.0)
        ports = setting.list_ports()
        assert ports.keys() == {A.blob_path, B.blob_path}
        for path, port in ports.items():
            url = f"http://127.0.0.1:{port}"
            assert (await setting.client.get(f"{url}/props")).json()["model_path"] == path
            response = await setting.client.get(f"{url}/metrics")
            assert response.headers["content-type"] == "text/plain; version=0.0.4"
            assert response.headers["process-start-time-unix"].isdigit()
            assert len((await setting.client.get(f"{url}/slots?fail_on_no_slot=1")).json()) == 1

    run(tmp_path / "proc", work)


def test_a_model_that_is_loaded_again_answers_again_and_nothing_answers_once_it_is_unloaded(tmp_path: Path) -> None:
    async def work(setting: Setting) -> None:
        for _ in range(3):
            await setting.post(model="a")
            await setting.wait(1.5)
            (port,) = setting.list_ports().values()
            assert (await setting.client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
            await setting.wait(61.0)
            assert setting.list_ports() == {}
            with pytest.raises(httpx.ConnectError):
                await setting.client.get(f"http://127.0.0.1:{port}/health")

    run(tmp_path / "proc", work)


def test_between_the_end_of_a_child_and_that_of_its_port_nothing_is_answered_for_it(tmp_path: Path) -> None:
    async def work(setting: Setting) -> None:
        await setting.post(model="a")
        await setting.wait(1.5)
        (port,) = setting.list_ports().values()
        setting.seconds += 61.0
        setting.ollama.advance(setting.now())
        assert (await setting.client.get(f"http://127.0.0.1:{port}/slots")).status_code == 503

    run(tmp_path / "proc", work)


def test_the_end_closes_all_ports_and_the_ollama_is_the_parent_of_its_children(tmp_path: Path) -> None:
    left: list[int] = []

    async def work(setting: Setting) -> None:
        await setting.post(model="a")
        await setting.wait(1.5)
        left.extend(setting.list_ports().values())
        (stat,) = [entry / "stat" for entry in (tmp_path / "proc").iterdir() if int(entry.name) > OLLAMA_PROCESS]
        assert stat.read_text().split()[3] == str(OLLAMA_PROCESS)
        assert (tmp_path / "proc" / str(OLLAMA_PROCESS) / "cmdline").read_bytes() == b"/usr/bin/ollama\0serve\0"
        assert (tmp_path / "proc" / "1" / "stat").exists()

    run(tmp_path / "proc", work)
    assert len(left) == 1
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{left[0]}/health", trust_env=False)
