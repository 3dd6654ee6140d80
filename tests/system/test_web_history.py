"""The charts' memory and the operator's word on probes in the running exporter, over reloads."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from phasewatch.analysis.samples import EngineKey
from phasewatch.app import Exporter
from tests.support.fakes import FakeVllm
from tests.support.processes import PATIENCE
from tests.support.targets import load_config

KEY = EngineKey("tiny", "0")


def vllm(name: str, url: str, interval: str = "100ms") -> dict[str, Any]:
    return {"name": name, "backend": "vllm", "url": url, "interval": interval, "timeout": f"{PATIENCE:g}s"}


def run(path: Path, look: Callable[[Exporter], Awaitable[None]]) -> None:
    async def go() -> None:
        exporter = Exporter(path, load_config(path))
        exporter.start()
        try:
            await look(exporter)
        finally:
            await exporter.stop()

    asyncio.run(asyncio.wait_for(go(), 2 * PATIENCE))


def has(exporter: Exporter, name: str) -> bool:
    return exporter.history.get_track(name, KEY, time.monotonic()) is not None


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110  # the exporter tells nobody
        await asyncio.sleep(0.02)


def test_a_reload_keeps_the_history_of_unchanged_targets_alone(tmp_path: Path) -> None:
    path = tmp_path / "phasewatch.yml"

    def write(*targets: dict[str, Any]) -> None:
        path.write_text(json.dumps({"targets": targets}))

    with FakeVllm() as server:

        async def look(exporter: Exporter) -> None:
            await until(lambda: all(has(exporter, name) for name in "abc"))
            write(vllm("a", server.url), vllm("b", server.url, "200ms"))
            exporter.reload()
            assert [has(exporter, name) for name in "abc"] == [True, False, False]
            await until(lambda: has(exporter, "b"))

        write(*(vllm(name, server.url) for name in "abc"))
        run(path, look)


@pytest.mark.parametrize(
    ("probe", "probed"),
    [
        ({}, {"m:latest": True, "other": True}),
        ({"enabled": False}, {"m:latest": False, "other": False}),
        ({"models": [{"name": "m", "enabled": False}]}, {"m:latest": False, "other": True}),
    ],
)
def test_the_page_knows_which_models_are_to_be_probed(
    probe: dict[str, Any], probed: dict[str, bool], tmp_path: Path
) -> None:
    path = tmp_path / "phasewatch.yml"
    target = {"name": "o", "backend": "ollama", "url": "http://127.0.0.1:9", "probe": probe}
    path.write_text(json.dumps({"targets": [target]}))
    exporter = Exporter(path, load_config(path))
    assert {model: exporter.is_probed("o", model) for model in probed} == probed
    assert exporter.is_probed("a target that has just been removed", "m")
