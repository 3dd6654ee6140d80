"""What the exporter shows of the demo's Ollama within ten minutes."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from phasewatch.backends.ollama.scraper import OllamaScraper
from phasewatch.demo.ollama.demo_models import CHAT, LARGE, MODELS, SMALL
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import Harm
from phasewatch.demo.ollama.users import CYCLE_SECONDS, VISITS, OllamaWithUsers
from phasewatch.demo.run import OLLAMA_NAME, PROBE_BUDGET, build_configuration
from tests.support.ollama_facts import seeded
from tests.support.pages import Metrics
from tests.support.probe_assertions import assert_harmless, assert_uncached, assert_within_budget
from tests.support.simulated_ollama import URL, OllamaTransport
from tests.support.targets import parse_config
from tests.support.timeline import EPOCH, Timeline
from tests.support.watched_ollama import read_metrics, run_repeatedly

SAMPLE_SECONDS = 5.0
CYCLES = 2
SEEDS = (1, 2)
NO_PROCESSES = Path("/nonexistent")
"""A process list without children: their ports are not those of this machine."""


class OllamaWithWallClock(OllamaWithUsers):
    """The server with a wall clock, for the Date header."""

    def wall_clock(self, now: int) -> float:
        return (EPOCH + now) / SECOND


@dataclass(frozen=True)
class Observed:
    """The server, and its metrics at each reading."""

    ollama: OllamaWithWallClock
    readings: list[Metrics] = field(default_factory=list)

    def values_or_none(self, name: str, model: str) -> list[float | None]:
        labels = (("backend", "ollama"), ("model_name", model), ("target", OLLAMA_NAME))
        return [metrics.get((name, labels)) for metrics in self.readings]

    def values(self, name: str, model: str) -> list[float]:
        return [value for value in self.values_or_none(name, model) if value is not None]


@cache
def observe(seed: int) -> Observed:
    """Two cycles, scraped with the configuration of the demo."""
    timeline = Timeline()
    observed = Observed(OllamaWithWallClock(seed, EPOCH))
    (target,) = parse_config(build_configuration({OLLAMA_NAME: URL}, NO_PROCESSES)).targets
    transport = OllamaTransport(observed.ollama, timeline)

    async def work() -> None:
        scraper = OllamaScraper(target, timeline.clock, timeline.wall_clock, transport, seeded(seed))
        ended = asyncio.Event()
        jobs = [
            asyncio.create_task(run_repeatedly(job.run, max(job.seconds, 0.5), ended)) for job in scraper.list_jobs()
        ]
        for _ in range(round(CYCLES * CYCLE_SECONDS / SAMPLE_SECONDS)):
            await asyncio.sleep(SAMPLE_SECONDS)
            observed.readings.append(read_metrics(scraper))
        ended.set()
        await scraper.close()
        await asyncio.gather(*jobs)

    timeline.run(work())
    return observed


def test_every_model_is_loaded_measured_and_unloaded_within_two_cycles() -> None:
    for seed in SEEDS:
        observed = observe(seed)
        for model in MODELS:
            row = (seed, model.name)
            assert set(observed.values_or_none("llm_model_loaded", model.name)) == {0, 1}, row
            assert observed.values("llm_decode_tokens_per_second", model.name), row
            assert observed.values("llm_prefill_tokens_per_second", model.name), row


def test_a_probe_succeeds_within_the_first_minute_and_a_half() -> None:
    for seed in SEEDS:
        first = observe(seed).readings[: round(90 / SAMPLE_SECONDS)]
        assert any(name == "llm_decode_tokens_per_second" for metrics in first for name, _ in metrics), seed


def test_only_the_large_model_is_partly_on_the_cpu() -> None:
    for seed in SEEDS:
        ratios = {model.name: set(observe(seed).values("llm_model_gpu_ratio", model.name)) for model in MODELS}
        assert ratios[SMALL.name] == ratios[CHAT.name] == {1}, seed
        (ratio,) = ratios[LARGE.name]
        assert 0.8 < ratio < 1, seed


def test_measured_decode_speeds_are_those_of_the_models() -> None:
    for model in MODELS:
        speeds = observe(1).values("llm_decode_tokens_per_second", model.name)
        expected = pytest.approx(1 / model.decode_seconds_per_token, rel=0.01)
        assert speeds == [expected] * len(speeds), model.name


def test_probes_are_harmless_and_within_their_budget() -> None:
    for seed in SEEDS:
        ledger = observe(seed).ollama.ledger
        assert_harmless(ledger, probes=10)
        assert_uncached(ledger)
        assert_within_budget(ledger, PROBE_BUDGET, CYCLES * CYCLE_SECONDS)


def test_users_load_every_model_and_evict_one() -> None:
    for seed in SEEDS:
        ledger = observe(seed).ollama.ledger
        loaded = {event.model for event in ledger.select(Harm.LOAD, by_probe=False)}
        assert loaded == {model.name for model in MODELS}, seed
        assert ledger.select(Harm.EVICTION, by_probe=False), seed


def list_loads_of_small_model(server: OllamaWithUsers) -> list[int]:
    """When users of the small model arrived, in nanoseconds: each of their visits loads it."""
    return [event.at for event in server.ledger.events if event.harm is Harm.LOAD and event.model == SMALL.name]


def test_equal_seeds_give_equal_users_regardless_of_other_requests() -> None:
    body = json.dumps({"model": CHAT.name, "prompt": "a few words", "stream": False, "options": {"num_predict": 3000}})
    for seed in range(5):
        alone, disturbed, other = (OllamaWithUsers(number, EPOCH) for number in (seed, seed, seed + 1))
        for second in range(2, 100, 20):
            disturbed.request(second * SECOND, "POST", "/api/generate", {"Host": "127.0.0.1"}, body.encode())
        for server in (alone, disturbed, other):
            server.advance(round(CYCLE_SECONDS * SECOND))
        loads = list_loads_of_small_model(alone)
        assert loads, seed
        assert loads == list_loads_of_small_model(disturbed) != list_loads_of_small_model(other), seed


def list_models(server: OllamaWithUsers, second: int, path: str) -> list[dict[str, Any]]:
    exchange = server.request(second * SECOND, "GET", path, {"Host": "127.0.0.1"})
    assert exchange.response is not None
    models: list[dict[str, Any]] = json.loads(exchange.response.body)["models"]
    return models


def test_an_hour_of_suspension_moves_the_expiry_of_models_and_nothing_else() -> None:
    server = OllamaWithUsers(1, EPOCH)
    before, on_disk = list_models(server, 30, "/api/ps"), list_models(server, 30, "/api/tags")
    assert before
    server.advance_wall_clock(3600 * SECOND)
    after = list_models(server, 30, "/api/ps")
    for one, other in zip(before, after, strict=True):
        expiries = [datetime.fromisoformat(model.pop("expires_at")) for model in (one, other)]
        assert expiries[1] - expiries[0] == timedelta(hours=1)
    assert after == before
    assert list_models(server, 30, "/api/tags") == on_disk


def test_visits_are_sorted_within_the_cycle_and_reach_every_model() -> None:
    assert {visit.model for visit in VISITS} == {model.name for model in MODELS}
    assert all(0 <= visit.at < CYCLE_SECONDS for visit in VISITS)
    assert [visit.at for visit in VISITS] == sorted(visit.at for visit in VISITS)
