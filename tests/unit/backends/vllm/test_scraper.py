"""A vLLM's models and devices: found out once it answers, shown as ceilings, told in one line where unknown."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from phasewatch.backends.vllm.scraper import VllmScraper
from phasewatch.metrics.collector import build_target_families
from tests.support.pages import body_at
from tests.support.paths import MODELS
from tests.support.targets import parse_config

PAGES = [body_at("mfu-metrics", time) for time in range(20, 30)]
SHAPE = MODELS / "llama-recordings.json"
WEIGHTS = 221_844_096.0

Shown = dict[str, float]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub that holds the model of the recordings, without its weights, as `org/tiny`."""
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    shutil.copy(SHAPE, snapshot / "config.json")
    (tmp_path / "models--org--tiny" / "refs").mkdir()
    (tmp_path / "models--org--tiny" / "refs" / "main").write_text("abc123")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def served(root: str, bodies: Sequence[str]) -> Callable[[httpx.Request], httpx.Response]:
    """A server that shows the pages one after the other, and says it has loaded its model from `root`."""
    pages: Iterator[str] = iter(bodies)
    name = "tiny"
    told: Mapping[str, Any] = {
        "/version": {"version": "0.32.0"},
        "/v1/models": {"data": [{"id": name, "root": root, "max_model_len": 4096}]},
    }

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            return httpx.Response(200, stream=httpx.ByteStream(next(pages).encode()))
        if request.url.path in told:
            return httpx.Response(200, stream=httpx.ByteStream(json.dumps(told[request.url.path]).encode()))
        return httpx.Response(404)

    return handle


def watch(
    root: str,
    rounds: int = 2,
    *,
    pages: Sequence[str] = PAGES,
    before: Callable[[int], None] = lambda _: None,
    **keys: Any,
) -> tuple[list[Shown], list[dict[str, Any]]]:
    """What the metrics of the ceilings are after each round of a scrape and a look at the facts, and the log.

    Args:
        root: see `served`.
        rounds: how many.
        pages: that the server shows.
        before: is called with the number of each round before it.
        keys: of the target.
    """
    entry = {"name": "chat", "backend": "vllm", "url": "http://server.invalid:8000", **keys}
    target = parse_config(json.dumps({"targets": [entry]})).targets[0]
    time = iter(range(1000))
    shown: list[Shown] = []

    async def work() -> None:
        monitor = VllmScraper(
            target, lambda: float(next(time)), lambda: 1.7e9, httpx.MockTransport(served(root, pages))
        )
        for turn in range(rounds):
            before(turn)
            await monitor.scrape()
            await monitor.refresh_facts()
            samples = [
                sample for family in build_target_families([monitor.get_snapshot()]) for sample in family.samples
            ]
            shown.append({sample.name: sample.value for sample in samples})
        await monitor.close()

    with capture_logs() as logs:
        asyncio.run(work())
    return shown, [dict(line) for line in logs if line["event"] in {"model", "device", "equipment broke"}]


@pytest.mark.usefixtures("hub")
def test_a_model_in_the_hubs_cache_is_found_by_its_root() -> None:
    shown, logs = watch("org/tiny", device={"memory_bandwidth": "30GB/s"})
    assert shown[-1]["llm_weight_bytes"] == WEIGHTS
    assert shown[-1]["llm_kv_cache_bytes_per_token"] == 23_040
    assert shown[-1]["llm_decode_ceiling_tokens_per_second"] == pytest.approx(30e9 / WEIGHTS, rel=0.3)
    assert logs == []


def test_a_model_elsewhere_has_no_ceiling_and_one_line_that_says_what_to_set() -> None:
    shown, logs = watch("nobody/tiny", rounds=3, device={"memory_bandwidth": "30GB/s"})
    assert not {"llm_weight_bytes", "llm_decode_ceiling_tokens_per_second"} & shown[-1].keys()
    assert [line["note"] for line in logs] == ["its files are not on this machine: set model.path, or model.weights"]


def test_the_configured_folder_needs_no_root(tmp_path: Path) -> None:
    shutil.copy(SHAPE, tmp_path / "config.json")
    shown, logs = watch("nobody/tiny", device={"memory_bandwidth": "30GB/s"}, model={"path": str(tmp_path)})
    assert shown[-1]["llm_weight_bytes"] == WEIGHTS
    assert logs == []


def test_configured_weights_are_a_ceiling_and_need_no_files() -> None:
    shown, logs = watch("nobody/tiny", device={"memory_bandwidth": "30GB/s"}, model={"weights": "300MB"})
    assert shown[-1]["llm_decode_ceiling_tokens_per_second"] == pytest.approx(100)
    assert "llm_weight_read_bytes" not in shown[-1]
    assert logs == []


def test_a_broken_path_is_told_once_even_where_the_weights_are_configured(tmp_path: Path) -> None:
    model = {"path": str(tmp_path / "none"), "weights": "300MB"}
    shown, logs = watch("nobody/tiny", rounds=9, device={"memory_bandwidth": "30GB/s"}, model=model)
    assert shown[-1]["llm_decode_ceiling_tokens_per_second"] == pytest.approx(100)
    assert [line["note"] for line in logs] == [f"{tmp_path / 'none'}: cannot be read: No such file or directory"]


def test_a_folder_that_is_mounted_later_is_found_at_the_fourth_look(tmp_path: Path) -> None:
    def mount(turn: int) -> None:
        if turn == 2:
            shutil.copy(SHAPE, tmp_path / "config.json")

    model = {"path": str(tmp_path)}
    shown, logs = watch("nobody/tiny", rounds=5, device={"memory_bandwidth": "30GB/s"}, model=model, before=mount)
    assert ["llm_weight_bytes" in metrics for metrics in shown] == [False, False, False, True, True]
    assert len(logs) == 1


def test_parameters_that_cannot_be_are_told_and_give_no_negative_utilization(tmp_path: Path) -> None:
    shutil.copy(SHAPE, tmp_path / "config.json")
    device = {"memory_bandwidth": "30GB/s", "flops": "1TFLOPS"}
    model = {"path": str(tmp_path), "active_parameters": 1}
    shown, (line,) = watch("nobody/tiny", rounds=3, device=device, model=model)
    assert shown[-1]["llm_compute_utilization_ratio"] > 0
    assert line["note"].startswith("model.active_parameters: not used: ")


@pytest.mark.parametrize(("dtype", "told"), [(None, 1), ("fp8", 0)])
def test_a_format_of_the_cache_that_nobody_knows_is_told_unless_the_operator_says_it(
    dtype: str | None, told: int, tmp_path: Path
) -> None:
    shutil.copy(SHAPE, tmp_path / "config.json")
    pages = [page.replace('cache_dtype="auto"', 'cache_dtype="turbo3"') for page in PAGES]
    assert pages != PAGES
    model = {"path": str(tmp_path)} | ({} if dtype is None else {"kv_cache_dtype": dtype})
    shown, logs = watch("nobody/tiny", rounds=3, pages=pages, device={"memory_bandwidth": "30GB/s"}, model=model)
    assert ("llm_kv_cache_bytes_per_token" in shown[-1]) == (dtype is not None)
    assert len(logs) == told
    assert all("as 'turbo3'" in line["note"] for line in logs)


def test_as_many_tensor_parallel_devices_as_engines_are_asked_about_once() -> None:
    pages = [body_at("data-parallel", time) for time in range(8, 12)]
    for keys, lines in (({"count": 2}, 1), ({"count": 2, "layout": "replica"}, 0), ({"count": 4}, 0), ({}, 0)):
        device = {"memory_bandwidth": "30GB/s", **keys}
        _, logs = watch("nobody/tiny", rounds=4, pages=pages, device=device, model={"weights": "300MB"})
        assert len(logs) == lines
        assert all("set device.layout to replica" in line["note"] for line in logs)


def test_an_unknown_device_has_no_ceiling_and_one_line_that_says_what_to_set() -> None:
    shown, logs = watch("nobody/tiny", rounds=3, device={"name": "Quantum 9000"}, model={"weights": "300MB"})
    assert "llm_decode_ceiling_tokens_per_second" not in shown[-1]
    assert len(logs) == 1
    assert "Quantum 9000" in logs[0]["note"]
    assert "device.memory_bandwidth" in logs[0]["note"]


def test_nothing_is_looked_for_before_the_server_has_answered() -> None:
    async def work() -> None:
        target = parse_config("targets: [{name: chat, backend: vllm, url: 'http://server.invalid:8000'}]").targets[0]
        monitor = VllmScraper(target, lambda: 1.0, lambda: 1.7e9, httpx.MockTransport(lambda _: httpx.Response(500)))
        await monitor.scrape()
        await monitor.refresh_facts()

    with capture_logs() as logs:
        asyncio.run(work())
    assert [line["event"] for line in logs] == ["target down"]
