"""A frozen server that drops connections now and then pages when one that drops none would."""

import asyncio
import errno
import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from phasewatch.backends.vllm.scraper import VllmScraper
from phasewatch.metrics.collector import build_target_families
from tests.support.pages import page
from tests.support.processes import needs
from tests.support.promtool_plan import list_groups, render_values, selector
from tests.support.rule_files import RULES, promtool
from tests.support.targets import new_target
from tests.support.timeline import START, Timeline

STEP: Final = 15
"""Seconds between two samples and two evaluations of Prometheus; the exporter scrapes every five."""
FROZEN: Final = 60
"""Second from which on no token comes; the requests go on running."""
FIRING: Final = 225
"""Second at which the alert fires without any dropped connection: the stall exceeds 60 s at the sample of 135, and the
alert waits for 90 s."""
END: Final = 300

Trouble = Callable[[], Awaitable[None]]


async def resets() -> None:
    raise httpx.ReadError("") from ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


async def closes() -> None:
    raise httpx.RemoteProtocolError("Server disconnected without sending a response.")


async def has_no_name() -> None:
    raise httpx.ConnectError("") from socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


async def lacks_descriptors() -> None:
    raise httpx.ConnectError("") from OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def hangs() -> None:
    await asyncio.sleep(1e6)


async def refuses() -> None:
    raise httpx.ConnectError("") from ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


async def answers() -> None:
    return


FREEZING: Final[Mapping[str, Trouble]] = {
    "steady": answers,
    "resets": resets,
    "closes": closes,
    "no-name": has_no_name,
    "no-descriptor": lacks_descriptors,
    "hangs": hangs,
}


@needs("promtool")
def test_a_frozen_server_that_drops_connections_pages_at_its_time(tmp_path: Path) -> None:
    stalls: dict[str, list[float]] = {}
    series: dict[str, dict[int, float]] = {}
    for name, trouble in {**FREEZING, "refuses": refuses}.items():
        for index, (key, value) in watch(name, trouble):
            series.setdefault(key, {})[index] = value
            if key.startswith("llm_token_stall_seconds"):
                stalls.setdefault(name, []).append(value)
    assert {name: max(stalls[name]) for name in FREEZING} == dict.fromkeys(FREEZING, END - FROZEN)
    assert max(stalls["refuses"]) < 2 * STEP, "a server that refuses connections is a new one each time"
    paths = [RULES / f"phasewatch-{name}.yml" for name in ("thresholds", "effective", "recording", "alerts")]
    firing = 'group by (target) (ALERTS{alertname="LLMTokenStall", alertstate="firing"})'
    everyone = [{"labels": selector("", {"target": name}), "value": 1} for name in sorted(FREEZING)]
    plan = {
        "rule_files": [str(path) for path in paths],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": list_groups(paths),
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": [{"series": key, "values": render_values(values)} for key, values in series.items()],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": f"{FIRING - STEP}s", "exp_samples": []},
                    {"expr": firing, "eval_time": f"{FIRING}s", "exp_samples": everyone},
                    {"expr": firing, "eval_time": f"{END}s", "exp_samples": everyone},
                ],
            }
        ],
    }
    (tmp_path / "plan").write_text(json.dumps(plan))
    promtool("test", "rules", tmp_path / "plan")


def watch(name: str, trouble: Trouble) -> Iterator[tuple[int, tuple[str, float]]]:
    """What PhaseWatch shows at each sample of Prometheus, of a server with one trouble in every 20 seconds."""
    timeline = Timeline()
    target = new_target(name, "vllm", "http://server.invalid", interval=5.0)
    used = {match for path in RULES.glob("*.yml") for match in re.findall(r"\bllm_\w+", path.read_text())}
    samples: list[tuple[int, tuple[str, float]]] = []

    async def handle(_: httpx.Request) -> httpx.Response:
        second = timeline.clock() - START
        if second >= FROZEN and second % 20 == FROZEN % 20 + 10:
            await trouble()
        tokens = 10 * min(second, FROZEN)
        text = page({"generation_tokens_total": tokens, "num_requests_running": 3, "num_requests_waiting": 0})
        return httpx.Response(200, stream=httpx.ByteStream(text.encode()))

    async def work() -> None:
        scraper = VllmScraper(target, timeline.clock, timeline.wall_clock, httpx.MockTransport(handle))
        for second in range(0, END + 1, 5):
            await asyncio.sleep(START + second - timeline.clock())
            await scraper.scrape()
            if second % STEP == 0:
                for family in build_target_families([scraper.get_snapshot()]):
                    for sample in family.samples:
                        if sample.name in used:
                            key = selector(sample.name, {**sample.labels, "job": "phasewatch", "instance": "pw:10061"})
                            samples.append((second // STEP, (key, sample.value)))

    timeline.run(work())
    return iter(samples)
