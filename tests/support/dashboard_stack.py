"""A real Prometheus with data for every dashboard: recordings, a simulated Ollama, and an exporter that runs live.

All recordings, and the samples of the Ollama, end at the same moment, which has just passed. The server of a target
that is down was killed in its recording. The exporter runs live for its own metrics, and Prometheus scrapes a page that
is played live as a vLLM for the objectives.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from phasewatch.config.settings import DeviceSettings
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from phasewatch.metrics.collector import build_target_families
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from tests.support.fakes import Exporter
from tests.support.model_folders import load_config, write_json
from tests.support.pages import bodies
from tests.support.paths import RECORDINGS
from tests.support.processes import eventually, free_port, get, running
from tests.support.rule_files import RULES, promtool
from tests.support.servers import RecordedServer
from tests.support.targets import new_probe_settings, parse_config
from tests.support.timeline import EPOCH, START
from tests.support.watched_ollama import build_user, watch

FLEET: Final = {
    "mfu-metrics": "healthy",
    "kv-saturation": "kv-cache",
    "preemption": "preempting",
    "seq-limit": "slots",
    "prefill-limited": "prefill",
    "shedding": "shedding",
    "paused": "paused",
    "speculative": "speculative",
    "data-parallel": "two-engines",
    "restart": "restarted",
}
"""Recording -> name of the target that it plays."""

_FACTS: Final = """
targets:
  - name: {name}
    backend: vllm
    url: http://recording.invalid
    window: 30s
    device: {{name: CPU, memory_bandwidth: 45.6GB/s, flops: 1.9TFLOPS}}
    model: {{path: {model}}}
"""
"""Configuration with the recorded model, and a device about as fast as the one that it ran on."""

FIRST, OTHER = "pw:10061", "pw-2:10061"
"""Instances of the exporters; the second one scrapes only TWICE."""
TWICE: Final = "kv-cache"

_LABELS: Final = {"job": "phasewatch", "instance": FIRST}


@dataclass(frozen=True, slots=True)
class Stack:
    """A Prometheus: its address, and the Unix time at which the recordings end."""

    url: str
    end: float

    def instant(self, expr: str, moment: float) -> list[dict[str, Any]]:
        """The samples of a query at a moment."""
        return _query(f"{self.url}/api/v1/query", {"query": expr, "time": f"{moment:.3f}"})

    def course(self, expr: str, seconds: float, step: float = 2.0) -> list[dict[str, Any]]:
        """The series of a query from this long before the end of the recordings until now."""
        moments = {"start": f"{self.end - seconds:.3f}", "end": f"{time.time():.3f}", "step": f"{step:g}"}
        return _query(f"{self.url}/api/v1/query_range", {"query": expr, **moments})


def _query(url: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    response = httpx.post(url, data=dict(parameters), timeout=30.0, trust_env=False).json()
    assert response["status"] == "success", (response.get("error"), parameters["query"])
    result: list[dict[str, Any]] = response["data"]["result"]
    return result


def replay_lines(recording: str, name: str, model: Path, end: float, exporters: Sequence[str]) -> Iterator[str]:
    """Metrics that exporters expose for a recording that ends at a Unix time, scrape by scrape, in OpenMetrics."""
    (target,) = parse_config(_FACTS.format(name=name, model=model)).targets
    reader = RecordingReader(RECORDINGS / f"{recording}.jsonl.xz")
    snapshots = list(replay(reader, target))
    shift = end - snapshots[-1][0]
    clock = shift - (reader.header.wall_start or 0.0)
    for moment, snapshot in snapshots:
        for family in build_target_families([snapshot]):
            for sample in family.samples:
                value = _shift_timestamp(sample.name, sample.value, clock)
                for instance in exporters:
                    labels = {**_LABELS, "instance": instance, **sample.labels}
                    yield _format_line(sample.name, labels, value, moment + shift)


def _shift_timestamp(name: str, value: float, seconds: float) -> float:
    """The value of a metric, moved to the present if it is a timestamp."""
    return value + seconds if name.endswith("_timestamp_seconds") else value


def read_native_lines(recording: str, end: float) -> Iterator[str]:
    """vLLM's own histograms, as a Prometheus stores them that scrapes the server itself."""
    pages = list(bodies(recording))
    shift = end - pages[-1][0]
    wanted = ("vllm:time_to_first_token_seconds_", "vllm:inter_token_latency_seconds_")
    for moment, body in pages:
        for line in body.splitlines():
            if line.startswith(wanted):
                name, _, value = line.rpartition(" ")
                yield f'{name[:-1]},job="vllm",instance="{recording}"}} {value} {moment + shift:.3f}'


def simulate_ollama_lines(seconds: float, end: float) -> Iterator[str]:
    """Metrics of a simulated Ollama whose users come and go, with one of two models partly on the CPU."""
    models = [
        Model("small:latest", "a" * 64, resident_bytes=2_000_000_000, vram_bytes=2_000_000_000),
        Model(
            "large:latest",
            "b" * 64,
            resident_bytes=9_000_000_000,
            vram_bytes=6_300_000_000,
            decode_seconds_per_token=0.09,
        ),
    ]
    watched = watch(
        models,
        [build_user(1, "small:latest"), build_user(2, "large:latest")],
        new_probe_settings(interval=60.0),
        seconds=seconds,
        device=DeviceSettings(memory_bandwidth=90e9, flops=5e12, cpu_memory_bandwidth=45e9),
    )
    began = end - seconds
    clock = began - (EPOCH / SECOND + START)
    for moment, metrics in watched.readings:
        for (name, labels), value in metrics.items():
            all_labels = {**_LABELS, **dict(labels), "target": "workstation"}
            yield _format_line(name, all_labels, _shift_timestamp(name, value, clock), began + moment)


def _format_line(name: str, labels: Mapping[str, str], value: float, moment: float) -> str:
    label_text = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{label_text}}} {value} {moment:.3f}"


@contextlib.contextmanager
def run_filled_prometheus(
    folder: Path, fleet: Mapping[str, str], *, ollama_seconds: float, native: Sequence[str] = ()
) -> Iterator[Stack]:
    """Prometheus with the samples of recordings, and with an exporter and a vLLM that run live.

    Args:
        folder: for its files.
        fleet: recordings and the targets that they play.
        ollama_seconds: length of the Ollama's samples; 0 for none.
        native: recordings whose own histograms are added.
    """
    end = time.time() - 1
    lines: list[str] = []
    model = folder / "model"
    model.mkdir()
    write_json(model / "config.json", load_config("llama-recordings"))
    for recording, name in fleet.items():
        exporters = (FIRST, OTHER) if name == TWICE else (FIRST,)
        lines += replay_lines(recording, name, model, end, exporters)
    for recording in native:
        lines += read_native_lines(recording, end)
    lines += [
        _format_line("phasewatch_build_info", {**_LABELS, "version": "0"}, 1, end - second)
        for second in range(180, 0, -1)
    ]
    if ollama_seconds:
        lines += simulate_ollama_lines(ollama_seconds, end)
    _load_blocks(lines, folder)
    played = RecordedServer([(index, body) for index, (_, body) in enumerate(list(bodies("mfu-metrics"))[20:])])
    config = folder / "phasewatch.yml"
    config.write_text(
        yaml.safe_dump(
            {"interval": "1s", "timeout": "1s", "targets": [{"name": "live", "backend": "vllm", "url": played.url}]}
        )
    )
    with (
        played.playing(),
        Exporter("--config.file", str(config)) as exporter,
        _run_prometheus(folder, exporter.url, played.url) as url,
    ):
        stack = Stack(url, end)
        eventually(
            lambda: stack.instant("phasewatch_slo:time_to_first_token_slow_ratio:rate5m", time.time()), "rules ran"
        )
        yield stack


def _load_blocks(lines: Iterable[str], folder: Path) -> None:
    file = folder / "series.txt"
    file.write_text("".join(f"{line}\n" for line in lines) + "# EOF\n")
    promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", str(file), str(folder / "data"))


@contextlib.contextmanager
def _run_prometheus(folder: Path, exporter: str, server: str) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    jobs = {"phasewatch": exporter, "vllm": server}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules" / "*.yml")],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [url.removeprefix("http://")]}]}
            for job, url in jobs.items()
        ],
    }
    (folder / "rules").mkdir()
    for path in RULES.glob("*.yml"):
        # Groups over days are evaluated every two minutes, and alerts have a `for`.
        quick = re.sub(r"^( +interval: )\w+$", r"\g<1>1s", path.read_text(), flags=re.MULTILINE)
        (folder / "rules" / path.name).write_text(re.sub(r"^( +for: )\w+$", r"\g<1>0s", quick, flags=re.MULTILINE))
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    flags = (
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        # Loaded blocks have no staleness markers; a short lookback takes their place.
        "--query.lookback-delta=15s",
    )
    with running("prometheus", *flags, log=folder / "prometheus.log"):
        eventually(lambda: get(f"http://{address}/-/ready"), "Prometheus is ready")
        yield f"http://{address}"
