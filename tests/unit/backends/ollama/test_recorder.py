"""A recording of an Ollama asks it for nothing that costs its users or the network anything."""

import asyncio
import json

import httpx

from phasewatch.backends.ollama.recorder import OllamaRecorder
from tests.support.targets import new_target

TAGS = {
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
        body = {"/api/tags": TAGS, "/api/version": {"version": "0.33.0"}}.get(request.url.path, {})
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(body).encode()))

    async def work() -> dict[str, object]:
        recorder = OllamaRecorder(new_target("t", "ollama", "http://a.invalid"), httpx.MockTransport(answer))
        header = dict(await recorder.fetch_header())
        await recorder.close()
        return header

    header = asyncio.run(work())
    assert shown == ["tiny:latest"]
    assert (header["version"], header["tags"]) == ("0.33.0", TAGS)
