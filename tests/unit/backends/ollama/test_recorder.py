"""A recording of an Ollama has its figures, and nothing that users or operators wrote."""

import asyncio
import json
import lzma
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from phasewatch.backends.ollama.inventory import parse_stored_models
from phasewatch.backends.ollama.recorder import OllamaRecorder
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import OllamaSettings
from phasewatch.scrape.recorded import FetchedLine
from tests.support.fake_procfs import LAYER, OTHER_LAYER, FakeProcfs, build_argv
from tests.support.ollama_facts import A, B
from tests.support.pages import replayed, value
from tests.support.scripted_llama_server import WRITTEN, Job, ScriptedLlamaServer
from tests.support.targets import new_target

HOME: Final = "/home/alice"
SECRET: Final = "sk-do-not-keep"  # noqa: S105  # a key that is found nowhere
DETAILS: Final = {"parent_model": f"{HOME}/blobs/{LAYER}", "format": "gguf", "family": "llama"}
NAMES: Final = {"name": "a:latest", "model": "a:latest", "digest": A, "details": DETAILS}
TAGS: Final = {"models": [{**NAMES, "size": 5, "url": f"https://{SECRET}", "note": WRITTEN}]}
LOADED: Final = {
    "models": [
        {**NAMES, "size": 5, "size_vram": 0, "context_length": 4096, "expires_at": "2318-01-01T00:00:00Z", "x": SECRET}
    ]
}
SHOW: Final = {
    "modelfile": f"# {WRITTEN}\nFROM {HOME}/.ollama/models/blobs/{LAYER}\nSYSTEM {WRITTEN}\n",
    "system": WRITTEN,
    "template": WRITTEN,
    "license": WRITTEN,
    "parameters": WRITTEN,
    "messages": [{"role": "user", "content": WRITTEN}],
    "details": DETAILS,
    "capabilities": ["completion"],
    "model_info": {
        "general.architecture": "llama",
        "general.parameter_count": 7,
        "general.description": WRITTEN,
        "general.author": "alice",
        "llama.block_count": 2,
        "tokenizer.chat_template": WRITTEN,
    },
}
BUSY: Final = Job(0.0, 1.0, 4000, 0.05)


class RecordedOllama:
    """An Ollama with one model, its child, and the child of another Ollama."""

    def __init__(self, folder: Path, server: ScriptedLlamaServer | None = None, *more: str) -> None:
        self.server = server or ScriptedLlamaServer((BUSY,))
        self.other = ScriptedLlamaServer((BUSY,))
        self.procfs = FakeProcfs(folder)
        self.loaded: Any = LOADED
        self.time = 5.0
        self.procfs.add(50, build_argv(LAYER, 42083, 8192, 2, "--api-key", SECRET, *more))
        self.procfs.add(60, build_argv(OTHER_LAYER, 42084), parent=59)

    def record(self, times: tuple[float, ...] = (5.0,)) -> tuple[dict[str, object], list[FetchedLine]]:
        """The header's keys and lines."""

        async def work() -> tuple[dict[str, object], list[FetchedLine]]:
            settings = OllamaSettings("auto", self.procfs.folder)
            target = new_target("o", "ollama", "http://127.0.0.1:11434", ollama=settings)
            recorder = OllamaRecorder(target, httpx.MockTransport(self.answer))
            header, lines = dict(await recorder.fetch_header()), []
            for self.time in times:
                lines.append(await recorder.fetch_line(lambda: self.time))
                recorder.check(lines[-1])
            await recorder.close()
            return header, lines

        return asyncio.run(work())

    async def answer(self, request: httpx.Request) -> httpx.Response:
        children = {42083: self.server, 42084: self.other}
        if request.url.port in children:
            transport = children[request.url.port].create_transport(lambda: self.time)
            return await transport.handle_async_request(request)
        answers: dict[str, Any] = {
            "/api/version": {"version": "0.33.0", "host": SECRET},
            "/api/tags": TAGS,
            "/api/ps": self.loaded,
            "/api/show": SHOW,
        }
        body = json.dumps(answers[request.url.path]).encode()
        return httpx.Response(200, headers={"Content-Type": "application/json"}, stream=httpx.ByteStream(body))


def list_children(line: FetchedLine) -> list[dict[str, Any]]:
    children = line.keys["children"]
    assert isinstance(children, list)
    return children


def test_a_recording_has_nothing_that_users_or_operators_wrote(tmp_path: Path) -> None:
    header, lines = RecordedOllama(tmp_path / "proc").record()
    text = json.dumps(header) + json.dumps([dict(line.keys) for line in lines])
    for written in (WRITTEN, SECRET, "alice", "api-key"):
        assert written not in text
    for needed in ("n_decoded", "tokens_predicted_total", "llama.block_count", "0.33.0", LAYER, A):
        assert needed in text


def test_a_recording_replays_as_the_users_saw_it(tmp_path: Path) -> None:
    header, lines = RecordedOllama(tmp_path / "proc").record(tuple(float(time) for time in range(5, 80)))
    documents = [{"kind": "header", "engine": "ollama", **header}, *({"kind": "scrape", **line.keys} for line in lines)]
    with lzma.open(tmp_path / "made.jsonl.xz", "wt") as file:
        file.writelines(f"{json.dumps(document)}\n" for document in documents)
    *_, (_, last) = replayed("made", folder=tmp_path)
    rates = [
        value(last, name, model_name="a:latest")
        for name in ("llm_decode_tokens_per_second", "llm_decode_throughput_tokens_per_second")
    ]
    assert rates == pytest.approx([20.0, 20.0], rel=0.02)
    assert value(last, "llm_measurement_source", model_name="a:latest", source="traffic") == 1


def test_the_child_of_another_ollama_is_not_asked(tmp_path: Path) -> None:
    ollama = RecordedOllama(tmp_path / "proc")
    _, (line,) = ollama.record()
    assert [child["pid"] for child in list_children(line)] == [50]
    assert ollama.other.asked == []


def test_a_model_that_is_gone_has_no_child(tmp_path: Path) -> None:
    ollama = RecordedOllama(tmp_path / "proc")
    ollama.loaded = {"models": []}
    _, (line,) = ollama.record()
    assert line.keys["children"] == []
    assert ollama.server.asked == []


def test_a_child_that_sleeps_is_not_woken(tmp_path: Path) -> None:
    server = ScriptedLlamaServer(sleep_after=3.0)
    _, (line,) = RecordedOllama(tmp_path / "proc", server, "--sleep-idle-seconds", "3").record()
    assert line.keys["children"] == []
    assert server.wakes == 0


def test_what_is_no_ollama_is_refused(tmp_path: Path) -> None:
    answers: tuple[Any, ...] = ({}, [], {"models": 5}, {"models": [5]}, {"models": [{"name": 5}]})
    for number, answer in enumerate(answers):
        ollama = RecordedOllama(tmp_path / f"proc{number}")
        ollama.loaded = answer
        with pytest.raises(ScrapeError) as raised:
            ollama.record()
        assert raised.value.reason in {Reason.NO_METRICS, Reason.PARSE}, answer


def test_without_other_digests_than_those_of_its_models_a_child_is_unknown(tmp_path: Path) -> None:
    ollama = RecordedOllama(tmp_path / "proc")
    ollama.loaded = {"models": [{**LOADED["models"][0], "digest": B}]}
    _, (line,) = ollama.record()
    assert line.keys["children"] == []


STORED = {
    "models": [
        {"name": "tiny:latest", "digest": "a" * 64, "size": 100, "details": {"format": "gguf"}},
        {"name": "big:cloud", "digest": "b" * 64, "size": 100, "details": {}},
        {"name": "far:latest", "digest": "c" * 64, "size": 100, "details": {}, "remote_host": "https://far.invalid"},
    ]
}


def test_the_metadata_of_models_that_run_elsewhere_are_not_requested() -> None:
    shown = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/show":
            shown.append(json.loads(request.content)["model"])
        body = {"/api/tags": STORED, "/api/version": {"version": "0.33.0"}}.get(request.url.path, {})
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    async def work() -> dict[str, object]:
        recorder = OllamaRecorder(new_target("t", "ollama", "http://a.invalid"), httpx.MockTransport(answer))
        header = dict(await recorder.fetch_header())
        await recorder.close()
        return header

    header = asyncio.run(work())
    assert shown == ["tiny:latest"]
    assert header["version"] == "0.33.0"
    recorded = parse_stored_models(header["tags"])
    assert [model.remote for model in recorded.values()] == [False, True, True]
    assert "far.invalid" not in json.dumps(header)
