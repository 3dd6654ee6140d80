"""The kind of a server of which only the address is known is recognised by one harmless request per kind."""

import asyncio
import json
from dataclasses import replace

import httpx

from phasewatch.backends.backend import Backend, ServerSign
from phasewatch.backends.client import ServerClient
from phasewatch.backends.ollama import OLLAMA
from phasewatch.backends.recognition import recognise_backend
from phasewatch.backends.vllm import VLLM
from tests.support.plain_counters import PLAIN_COUNTERS
from tests.support.targets import new_target

KETTLE = replace(PLAIN_COUNTERS, sign=ServerSign("/props", lambda answer: "litres" in answer))
CANDIDATES = (VLLM, KETTLE, OLLAMA)
VERSION = json.dumps({"version": "0.33.0"})


def recognise(answers: dict[str, tuple[int, str]]) -> tuple[Backend | None, list[str]]:
    """The backend recognised by these answers, and the paths that were asked for. A path without an answer refuses."""
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path not in answers:
            raise httpx.ConnectError("refused")
        status, body = answers[request.url.path]
        return httpx.Response(status, stream=httpx.ByteStream(body.encode()))

    client = ServerClient(new_target("new", "vllm", "http://a.invalid"), httpx.MockTransport(answer))
    return asyncio.run(recognise_backend(client, CANDIDATES)), asked


def test_the_first_kind_whose_sign_is_there_is_recognised() -> None:
    for answers, backend in (
        ({"/props": (200, '{"litres": 2}'), "/api/version": (200, VERSION)}, KETTLE),
        ({"/props": (404, ""), "/api/version": (200, VERSION)}, OLLAMA),
        ({"/props": (404, '{"litres": 2}'), "/api/version": (200, VERSION)}, OLLAMA),
    ):
        assert recognise(answers)[0] is backend, answers


def test_a_server_without_a_sign_is_not_recognised() -> None:
    for body in ("", "{}", "null", "[]", '"0.33.0"', '{"version": 1}', "<html>"):
        answers = {"/props": (404, ""), "/api/version": (200, body)}
        assert recognise(answers) == (None, ["/props", "/api/version"]), body


def test_a_server_that_does_not_answer_is_asked_once() -> None:
    assert recognise({"/api/version": (200, VERSION)}) == (None, ["/props"])
