"""Targets that documentation is held against, and the series that an Ollama shows."""

import asyncio
from dataclasses import replace
from functools import cache
from random import Random
from typing import Final

from prometheus_client.samples import Sample

from phasewatch.backends.ollama.scraper import OllamaScraper
from phasewatch.config.settings import DeviceSettings
from phasewatch.demo.ollama.model import Model
from phasewatch.metrics.collector import build_target_families
from phasewatch.scrape.scraper import Job
from tests.support.simulated_ollama import URL, OllamaTransport, RecordingOllama, User, Visit
from tests.support.targets import new_model_probe, new_probe_settings, new_target
from tests.support.timeline import Timeline

CHAT: Final = new_target("chat", "vllm", "http://127.0.0.1:8000")
WORKSTATION: Final = new_target("workstation", "ollama", "http://127.0.0.1:11434")


@cache
def ollama_samples(*, load: bool) -> tuple[Sample, ...]:
    """The samples of a simulated Ollama with two models on disk, after some minutes of simulated time.

    Args:
        load: a probe may load the first model. Otherwise a user has loaded it.
    """
    timeline = Timeline()
    server = RecordingOllama(Model("a:latest", "a" * 64, vram_bytes=115_941_047), Model("b:latest", "b" * 64))
    transport = OllamaTransport(server, timeline)
    settings = new_probe_settings(models={"a": new_model_probe(load=True)} if load else {})
    target = replace(WORKSTATION, url=URL, probe=settings, device=DeviceSettings(name="NVIDIA L40S"))

    async def watch() -> tuple[Sample, ...]:
        scraper = OllamaScraper(target, timeline.clock, timeline.wall_clock, transport, Random(1))  # noqa: S311  # jitter
        tasks = [asyncio.create_task(_repeat(job)) for job in scraper.list_jobs()]
        if not load:
            user = User("a:latest", [Visit(pause=5, requests=20)])
            tasks.append(asyncio.create_task(user.live(transport)))
        await asyncio.sleep(290 if load else 600)  # a model that a probe has loaded leaves after five minutes
        snapshot = scraper.get_snapshot()
        await scraper.close()
        for task in tasks:
            task.cancel()
        return tuple(sample for family in build_target_families([snapshot]) for sample in family.samples)

    return timeline.run(watch())


async def _repeat(job: Job) -> None:
    while True:
        await job.run()
        await asyncio.sleep(job.seconds)
