"""End to end: a real Prometheus scrapes the exporter, which scrapes a server that plays a recording in real time."""

import time
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import Exporter
from tests.support.pages import bodies, replayed, value
from tests.support.processes import eventually, free_port, get_json, needs, running
from tests.support.servers import RecordedServer

CONFIG = """
window: 10s
targets:
  - name: recording
    backend: vllm
    url: {url}
    interval: 1s
"""

SCRAPE_SECONDS = 1

PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 900ms}}
scrape_configs:
  - job_name: phasewatch
    static_configs: [{{targets: ["{address}"]}}]
"""

# Steady from 78 to 87 s with a window of 10 s behind it: eight streams.
BEGIN, END = 66.0, 88.0
COMPARED = [
    "llm_decode_tokens_per_second",
    "llm_decode_throughput_tokens_per_second",
    "llm_prefill_throughput_tokens_per_second",
    "llm_time_to_first_token_mean_seconds",
    "llm_inter_token_latency_mean_seconds",
]


@needs("prometheus")
def test_prometheus_gets_the_true_numbers_and_loses_them_when_the_server_stops(tmp_path: Path) -> None:
    pages = [(moment - BEGIN, body) for moment, body in bodies("batch-ramp") if BEGIN <= moment <= END]
    server = RecordedServer([(0.0, pages[0][1]), *pages[1:]])
    config = tmp_path / "phasewatch.yml"
    config.write_text(CONFIG.format(url=server.url))
    with Exporter("--config.file", str(config)) as exporter:
        file = tmp_path / "prometheus.yml"
        file.write_text(PROMETHEUS.format(address=exporter.url.removeprefix("http://")))
        listen = f"127.0.0.1:{free_port()}"
        flags = (f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={listen}")
        with running("prometheus", *flags, log=tmp_path / "prometheus.log"):
            api = f"http://{listen}/api/v1/query?"

            def query(expression: str, **options: str) -> list[dict[str, Any]]:
                response = get_json(api + urllib.parse.urlencode({"query": expression, **options}))
                result: list[dict[str, Any]] = response["data"]["result"]
                return result

            def single(expression: str) -> float | None:
                result = query(expression)
                return float(result[0]["value"][1]) if result else None

            with server.playing():
                eventually(lambda: single("min_over_time(llm_target_up[3s])") == 1, "the target is up")
                eventually(lambda: server.page() == pages[-1][1], "the recording has been played")
                expected = replayed_end()
                assert expected.keys() == set(COMPARED)
                for name in COMPARED:
                    (series,) = query(f"{name}[10s]")
                    response = [float(number) for _, number in series["values"]]
                    nearest = min(response, key=lambda number: abs(number - expected[name]))
                    assert nearest == pytest.approx(expected[name], rel=0.02), name
            down = "min(min_over_time(timestamp(llm_target_up == 0)[1m:1s]))"
            fell = eventually(lambda: single(down), "the target is down")
            eventually(lambda: time.time() > fell + 3 * SCRAPE_SECONDS + 1, "three more scrapes")
            after_three_scrapes = str(fell + 3 * SCRAPE_SECONDS)
            assert query('{__name__=~"llm_.+",model_name!=""}', time=after_three_scrapes) == []
            assert [one["value"][1] for one in query("llm_target_up", time=after_three_scrapes)] == ["0"]
            assert query("phasewatch_build_info")


def replayed_end() -> dict[str, float]:
    """What a replay shows when the recording has played to the same end."""
    metrics = next(metrics_then for moment, metrics_then in replayed("batch-ramp", window=10) if moment >= END)
    return {name: number for name in COMPARED if (number := value(metrics, name)) is not None}
