"""What is to be seen of the demo's Ollama within ten minutes, by the monitor that watches it in the exporter."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest

from phasewatch.backends.ollama.scraper import OllamaMonitor
from phasewatch.config.resolve import parse
from phasewatch.demo.ollama.demo_models import CHAT, LARGE, MODELS, SMALL
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.harm_ledger import Harm
from phasewatch.demo.ollama.users import CYCLE_SECONDS, VISITS, InhabitedOllama
from phasewatch.demo.run import OLLAMA_NAME, PROBE_BUDGET, configuration
from tests.support.ollama_facts import seeded
from tests.support.pages import Metrics
from tests.support.probe_assertions import assert_harmless, assert_uncached, assert_within_budget
from tests.support.simulated_ollama import URL, OllamaTransport
from tests.support.timeline import EPOCH, Timeline
from tests.support.watched_ollama import every, shown

LOOK_SECONDS = 5.0
CYCLES = 2
SEEDS = [1, 2]


class Simulated(InhabitedOllama):
    """With a clock on the wall."""

    def wall(self, now: int) -> float:
        return (EPOCH + now) / SECOND


@dataclass(frozen=True)
class Seen:
    """The server, and what /metrics showed at each look."""

    ollama: Simulated
    metrics: list[Metrics] = field(default_factory=list)

    def values(self, name: str, model: str) -> list[float | None]:
        labels = (("backend", "ollama"), ("model_name", model), ("target", OLLAMA_NAME))
        return [look.get((name, labels)) for look in self.metrics]

    def known(self, name: str, model: str) -> list[float]:
        return [value for value in self.values(name, model) if value is not None]


@cache
def watched(seed: int) -> Seen:
    """Two cycles, with the configuration of the demo."""
    timeline = Timeline()
    seen = Seen(Simulated(seed, EPOCH))
    (target,) = parse(configuration({OLLAMA_NAME: URL})).targets
    transport = OllamaTransport(seen.ollama, timeline)

    async def work() -> None:
        monitor = OllamaMonitor(target, timeline.clock, timeline.wall_clock, transport, seeded(seed))
        ended = asyncio.Event()
        jobs = [asyncio.create_task(every(job.run, max(job.seconds, 0.5), ended)) for job in monitor.jobs()]
        for _ in range(round(CYCLES * CYCLE_SECONDS / LOOK_SECONDS)):
            await asyncio.sleep(LOOK_SECONDS)
            seen.metrics.append(shown(monitor))
        ended.set()
        await monitor.close()
        await asyncio.gather(*jobs)

    timeline.run(work())
    return seen


@pytest.mark.parametrize("model", [model.name for model in MODELS])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_model_is_loaded_measured_and_gone_within_two_cycles(model: str, seed: int) -> None:
    seen = watched(seed)
    assert set(seen.values("llm_model_loaded", model)) == {0, 1}
    assert seen.known("llm_decode_tokens_per_second", model)
    assert seen.known("llm_prefill_tokens_per_second", model)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_probe_has_counted_within_the_first_minute_and_a_half(seed: int) -> None:
    first = watched(seed).metrics[: round(90 / LOOK_SECONDS)]
    assert any(name == "llm_decode_tokens_per_second" for look in first for name, _ in look)


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_large_model_is_partly_on_the_cpu(seed: int) -> None:
    shares = {model.name: set(watched(seed).known("llm_model_gpu_ratio", model.name)) for model in MODELS}
    assert shares[SMALL.name] == shares[CHAT.name] == {1}
    (share,) = shares[LARGE.name]
    assert 0.8 < share < 1


def test_what_is_measured_is_what_the_models_do() -> None:
    for model in MODELS:
        speeds = watched(1).known("llm_decode_tokens_per_second", model.name)
        assert speeds == [pytest.approx(1 / model.decode_seconds_per_token, rel=0.01)] * len(speeds)


@pytest.mark.parametrize("seed", SEEDS)
def test_probes_harm_nobody_and_keep_to_their_budget(seed: int) -> None:
    ledger = watched(seed).ollama.ledger
    assert_harmless(ledger, probes=10)
    assert_uncached(ledger)
    assert_within_budget(ledger, PROBE_BUDGET, CYCLES * CYCLE_SECONDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_users_load_models_and_push_one_out(seed: int) -> None:
    ledger = watched(seed).ollama.ledger
    assert {event.model for event in ledger.of(Harm.LOAD, by_probe=False)} == {model.name for model in MODELS}
    assert ledger.of(Harm.EVICTION, by_probe=False)


def arrivals(server: InhabitedOllama) -> list[int]:
    """When the users of the small model came, in nanoseconds: it is always loaded for them."""
    return [event.at for event in server.ledger.events if event.harm is Harm.LOAD and event.model == SMALL.name]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_users_whoever_else_asks(seed: int) -> None:
    alone, disturbed, other = (InhabitedOllama(number, EPOCH) for number in (seed, seed, seed + 1))
    body = json.dumps({"model": CHAT.name, "prompt": "a few words", "stream": False, "options": {"num_predict": 3000}})
    for second in range(2, 100, 20):
        disturbed.request(second * SECOND, "POST", "/api/generate", {"Host": "127.0.0.1"}, body.encode())
    for server in (alone, disturbed, other):
        server.advance(round(CYCLE_SECONDS * SECOND))
    assert arrivals(alone)
    assert arrivals(alone) == arrivals(disturbed) != arrivals(other)


def inventory(server: InhabitedOllama, second: int, path: str) -> list[dict[str, Any]]:
    ticket = server.request(second * SECOND, "GET", path, {"Host": "127.0.0.1"})
    assert ticket.answer is not None
    models: list[dict[str, Any]] = json.loads(ticket.answer.body)["models"]
    return models


def test_an_hour_in_which_it_stood_still_changes_when_models_expire_and_nothing_else() -> None:
    server = InhabitedOllama(1, EPOCH)
    before, on_disk = inventory(server, 30, "/api/ps"), inventory(server, 30, "/api/tags")
    assert before
    server.stand_still(3600 * SECOND)
    after = inventory(server, 30, "/api/ps")
    for one, other in zip(before, after, strict=True):
        expiries = [datetime.fromisoformat(model.pop("expires_at")) for model in (one, other)]
        assert expiries[1] - expiries[0] == timedelta(hours=1)
    assert after == before
    assert inventory(server, 30, "/api/tags") == on_disk


def test_every_visit_is_to_a_model_on_disk_and_within_the_cycle() -> None:
    assert {visit.model for visit in VISITS} == {model.name for model in MODELS}
    assert all(0 <= visit.at < CYCLE_SECONDS for visit in VISITS)
    assert [visit.at for visit in VISITS] == sorted(visit.at for visit in VISITS)
