"""A recording of a llama-server has its figures and nothing that its users wrote."""

import asyncio
import json

import pytest

from phasewatch.backends.llamacpp.recorder import LlamacppRecorder
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.recorded import FetchedLine
from tests.support.scripted_llama_server import WRITTEN, Job, ScriptedLlamaServer
from tests.support.targets import new_target

BUSY = (Job(0.0, 1.0, 4000, 0.05),)


def record(server: ScriptedLlamaServer, time: float = 5.0) -> tuple[dict[str, object], FetchedLine]:
    """The header's keys and a line."""

    async def work() -> tuple[dict[str, object], FetchedLine]:
        target = new_target("t", "llamacpp", "http://a.invalid")
        recorder = LlamacppRecorder(target, server.create_transport(lambda: time))
        header, line = dict(await recorder.fetch_header()), await recorder.fetch_line(lambda: time)
        await recorder.close()
        recorder.check(line)
        return header, line

    return asyncio.run(work())


def test_a_recording_has_nothing_that_users_wrote() -> None:
    header, line = record(ScriptedLlamaServer(BUSY))
    assert WRITTEN not in json.dumps(header) + json.dumps(dict(line.keys))
    assert "n_decoded" in json.dumps(dict(line.keys))


def test_a_sleeping_server_is_a_line_of_its_own_kind_and_is_not_woken() -> None:
    server = ScriptedLlamaServer(sleep_after=3.0)
    _, line = record(server)
    assert (line.kind, line.keys["body"]) == ("props", "true")
    assert server.wakes == 0
    assert not {"/metrics", "/slots"} & set(server.asked)


def test_a_hang_is_recorded_with_what_health_answered() -> None:
    for hanging, alive in (({"/metrics"}, 200), ({"/slots"}, 200), ({"/metrics", "/health"}, 0), ({"/props"}, 200)):
        server = ScriptedLlamaServer(BUSY, hanging=frozenset(hanging))

        async def work(server: ScriptedLlamaServer = server) -> FetchedLine:
            target = new_target("t", "llamacpp", "http://a.invalid")
            recorder = LlamacppRecorder(target, server.create_transport(lambda: 5.0))
            line = await recorder.fetch_line(lambda: 5.0)
            with pytest.raises(ScrapeError) as raised:
                recorder.check(line)
            assert raised.value.reason is Reason.TIMEOUT
            await recorder.close()
            return line

        health = asyncio.run(work()).keys["health"]
        assert isinstance(health, dict)
        assert health["status"] == alive, hanging
