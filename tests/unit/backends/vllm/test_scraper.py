"""A vLLM's models and devices: determined once it responds, exposed as ceilings, and logged once if unknown."""

import asyncio
import json
import re
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

Metrics = dict[str, float]


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


def serve(root: str, bodies: Sequence[str]) -> Callable[[httpx.Request], httpx.Response]:
    """A server with these pages, one after the other, that reports `root` as the origin of its model."""
    pages: Iterator[str] = iter(bodies)
    name = "tiny"
    responses: Mapping[str, Any] = {
        "/version": {"version": "0.32.0"},
        "/v1/models": {"data": [{"id": name, "root": root, "max_model_len": 4096}]},
    }

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            return httpx.Response(200, stream=httpx.ByteStream(next(pages).encode()))
        if request.url.path in responses:
            return httpx.Response(200, stream=httpx.ByteStream(json.dumps(responses[request.url.path]).encode()))
        return httpx.Response(404)

    return handle


def watch(
    root: str,
    rounds: int = 2,
    *,
    pages: Sequence[str] = PAGES,
    before: Callable[[int], None] = lambda _: None,
    **keys: Any,
) -> tuple[list[Metrics], list[dict[str, Any]]]:
    """The metrics after each round of a scrape and a refresh of facts, and log lines about pages, models and devices.

    Args:
        root: see `serve`.
        rounds: number of rounds.
        pages: pages of the server.
        before: called with the number of each round before it.
        keys: keys of the target.
    """
    entry = {"name": "chat", "backend": "vllm", "url": "http://server.invalid:8000", **keys}
    target = parse_config(json.dumps({"targets": [entry]})).targets[0]
    time = iter(range(1000))
    rounds_metrics: list[Metrics] = []

    async def work() -> None:
        monitor = VllmScraper(target, lambda: float(next(time)), lambda: 1.7e9, httpx.MockTransport(serve(root, pages)))
        for turn in range(rounds):
            before(turn)
            await monitor.scrape()
            await monitor.refresh_facts()
            samples = [
                sample for family in build_target_families([monitor.get_snapshot()]) for sample in family.samples
            ]
            rounds_metrics.append({sample.name: sample.value for sample in samples})
        await monitor.close()

    with capture_logs() as logs:
        asyncio.run(work())
    return rounds_metrics, [
        dict(line) for line in logs if line["event"] in {"page", "model", "device", "equipment broke"}
    ]


@pytest.mark.usefixtures("hub")
def test_a_model_in_the_hub_cache_is_found_by_its_root() -> None:
    rounds_metrics, logs = watch("org/tiny", device={"memory_bandwidth": "30GB/s"})
    assert rounds_metrics[-1]["llm_weight_bytes"] == WEIGHTS
    assert rounds_metrics[-1]["llm_kv_cache_bytes_per_token"] == 23_040
    assert rounds_metrics[-1]["llm_decode_ceiling_tokens_per_second"] == pytest.approx(30e9 / WEIGHTS, rel=0.3)
    assert logs == []


def test_a_model_without_local_files_has_no_ceiling_and_is_logged_once() -> None:
    rounds_metrics, logs = watch("nobody/tiny", rounds=3, device={"memory_bandwidth": "30GB/s"})
    assert not {"llm_weight_bytes", "llm_decode_ceiling_tokens_per_second"} & rounds_metrics[-1].keys()
    assert [line["note"] for line in logs] == ["its files are not on this machine: set model.path, or model.weights"]


def test_a_configured_folder_needs_no_root(tmp_path: Path) -> None:
    shutil.copy(SHAPE, tmp_path / "config.json")
    rounds_metrics, logs = watch("nobody/tiny", device={"memory_bandwidth": "30GB/s"}, model={"path": str(tmp_path)})
    assert rounds_metrics[-1]["llm_weight_bytes"] == WEIGHTS
    assert logs == []


def test_configured_weights_give_a_ceiling_without_files() -> None:
    rounds_metrics, logs = watch("nobody/tiny", device={"memory_bandwidth": "30GB/s"}, model={"weights": "300MB"})
    assert rounds_metrics[-1]["llm_decode_ceiling_tokens_per_second"] == pytest.approx(100)
    assert "llm_weight_read_bytes" not in rounds_metrics[-1]
    assert logs == []


def test_a_broken_path_is_logged_once_even_if_weights_are_configured(tmp_path: Path) -> None:
    model = {"path": str(tmp_path / "none"), "weights": "300MB"}
    rounds_metrics, logs = watch("nobody/tiny", rounds=9, device={"memory_bandwidth": "30GB/s"}, model=model)
    assert rounds_metrics[-1]["llm_decode_ceiling_tokens_per_second"] == pytest.approx(100)
    assert [line["note"] for line in logs] == [f"{tmp_path / 'none'}: cannot be read: No such file or directory"]


def test_a_folder_that_is_mounted_later_is_found_on_the_fourth_tick(tmp_path: Path) -> None:
    def mount(turn: int) -> None:
        if turn == 2:
            shutil.copy(SHAPE, tmp_path / "config.json")

    model = {"path": str(tmp_path)}
    rounds_metrics, logs = watch(
        "nobody/tiny", rounds=5, device={"memory_bandwidth": "30GB/s"}, model=model, before=mount
    )
    assert ["llm_weight_bytes" in metrics for metrics in rounds_metrics] == [False, False, False, True, True]
    assert len(logs) == 1


def test_impossible_parameters_are_logged_and_give_no_negative_utilization(tmp_path: Path) -> None:
    shutil.copy(SHAPE, tmp_path / "config.json")
    device = {"memory_bandwidth": "30GB/s", "flops": "1TFLOPS"}
    model = {"path": str(tmp_path), "active_parameters": 1}
    rounds_metrics, (line,) = watch("nobody/tiny", rounds=3, device=device, model=model)
    assert rounds_metrics[-1]["llm_compute_utilization_ratio"] > 0
    assert line["note"].startswith("model.active_parameters: not used: ")


def test_an_unknown_cache_format_is_logged_unless_one_is_configured(tmp_path: Path) -> None:
    for dtype, lines in ((None, 1), ("fp8", 0)):
        shutil.copy(SHAPE, tmp_path / "config.json")
        pages = [page.replace('cache_dtype="auto"', 'cache_dtype="turbo3"') for page in PAGES]
        assert pages != PAGES, dtype
        model = {"path": str(tmp_path)} | ({} if dtype is None else {"kv_cache_dtype": dtype})
        rounds_metrics, logs = watch(
            "nobody/tiny", rounds=3, pages=pages, device={"memory_bandwidth": "30GB/s"}, model=model
        )
        assert ("llm_kv_cache_bytes_per_token" in rounds_metrics[-1]) == (dtype is not None), dtype
        assert len(logs) == lines, dtype
        assert all("as 'turbo3'" in line["note"] for line in logs), dtype


def test_as_many_tensor_parallel_devices_as_engines_are_logged_once() -> None:
    pages = [body_at("data-parallel", time) for time in range(8, 12)]
    for keys, lines in (({"count": 2}, 1), ({"count": 2, "layout": "replica"}, 0), ({"count": 4}, 0), ({}, 0)):
        device = {"memory_bandwidth": "30GB/s", **keys}
        _, logs = watch("nobody/tiny", rounds=4, pages=pages, device=device, model={"weights": "300MB"})
        assert len(logs) == lines
        assert all("set device.layout to replica" in line["note"] for line in logs)


def test_what_is_left_out_of_pages_is_logged_once() -> None:
    odd = re.sub(r"(vllm:kv_cache_usage_perc\{.*\}) .*", r"\1 1.7", body_at("single-stream", 40))
    rounds_metrics, logs = watch("nobody/tiny", rounds=4, pages=[odd, odd, odd, odd], model={"weights": "300MB"})
    assert [line["note"] for line in logs if line["event"] == "page"] == [
        "vllm:kv_cache_usage_perc is above 1 and therefore left out"
    ]
    assert rounds_metrics[-1]["llm_target_up"] == 1
    assert "llm_kv_cache_usage_ratio" not in rounds_metrics[-1]


def test_a_computed_share_above_1_is_left_out_with_a_note() -> None:
    hits = 'vllm:prefix_cache_hits_total{engine="0",model_name="tiny"}'
    queries = 'vllm:prefix_cache_queries_total{engine="0",model_name="tiny"}'
    pages = [
        f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {count}\n{hits} {3 * count}\n{queries} {count}\n'
        for count in (0, 100, 200, 300)
    ]
    rounds_metrics, logs = watch("nobody/tiny", rounds=4, pages=pages, model={"weights": "300MB"})
    assert [line["note"] for line in logs if line["event"] == "page"] == [
        "llm_prefix_cache_hit_ratio would be above 1 and is therefore left out"
    ]
    assert "llm_prefix_cache_hit_ratio" not in rounds_metrics[-1]


def test_an_unknown_device_has_no_ceiling_and_is_logged_once() -> None:
    rounds_metrics, logs = watch("nobody/tiny", rounds=3, device={"name": "Quantum 9000"}, model={"weights": "300MB"})
    assert "llm_decode_ceiling_tokens_per_second" not in rounds_metrics[-1]
    assert len(logs) == 1
    assert "Quantum 9000" in logs[0]["note"]
    assert "device.memory_bandwidth" in logs[0]["note"]


def test_devices_and_models_are_not_looked_for_before_the_first_response() -> None:
    async def work() -> None:
        target = parse_config("targets: [{name: chat, backend: vllm, url: 'http://server.invalid:8000'}]").targets[0]
        monitor = VllmScraper(target, lambda: 1.0, lambda: 1.7e9, httpx.MockTransport(lambda _: httpx.Response(500)))
        await monitor.scrape()
        await monitor.refresh_facts()

    with capture_logs() as logs:
        asyncio.run(work())
    assert [line["event"] for line in logs] == ["target down"]
