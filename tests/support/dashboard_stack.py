"""A real Prometheus that knows what boards can show: the recordings, a simulated Ollama, and an exporter that runs now.

The recordings all end at the same moment, which has just passed, and the Ollama was watched until then. A down target
is one whose server was killed in its recording. An exporter runs live for what is told of itself, and a page that is
played live is scraped as a vLLM for the objectives.
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

from phasewatch.config.device_settings import DeviceSettings
from phasewatch.config.probe_settings import ProbeSettings
from phasewatch.config.resolve import parse
from phasewatch.demo.ollama.go_time import SECOND
from phasewatch.demo.ollama.model import Model
from phasewatch.metrics.collector import target_families
from phasewatch.recordings.format import Reader
from phasewatch.recordings.replay import replay
from tests.support.fakes import Exporter
from tests.support.model_folders import config as model_config
from tests.support.model_folders import write_json
from tests.support.pages import bodies
from tests.support.paths import RECORDINGS
from tests.support.processes import eventually, free_port, get, running
from tests.support.rule_files import RULES, promtool
from tests.support.servers import RecordedServer
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
"""The recorded model, and a machine about as fast as the one that it ran on."""

FIRST, OTHER = "pw:10061", "pw-2:10061"
"""The exporters; the second one watches TWICE alone."""
TWICE: Final = "kv-cache"

_LABELS: Final = {"job": "phasewatch", "instance": FIRST}


@dataclass(frozen=True, slots=True)
class Stack:
    """A Prometheus: its address, and the moment at which the recordings end."""

    url: str
    end: float

    def instant(self, expr: str, moment: float) -> list[dict[str, Any]]:
        """The samples of a query at a moment."""
        return _results(f"{self.url}/api/v1/query", {"query": expr, "time": f"{moment:.3f}"})

    def course(self, expr: str, seconds: float, step: float = 2.0) -> list[dict[str, Any]]:
        """The series of a query over the time that ends with the recordings, or a little later."""
        moments = {"start": f"{self.end - seconds:.3f}", "end": f"{time.time():.3f}", "step": f"{step:g}"}
        return _results(f"{self.url}/api/v1/query_range", {"query": expr, **moments})


def _results(url: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    answer = httpx.post(url, data=dict(parameters), timeout=30.0, trust_env=False).json()
    assert answer["status"] == "success", (answer.get("error"), parameters["query"])
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def recorded_lines(recording: str, name: str, model: Path, end: float, exporters: Sequence[str]) -> Iterator[str]:
    """What exporters show of a recording that ends at a Unix time, scrape by scrape, in OpenMetrics."""
    (target,) = parse(_FACTS.format(name=name, model=model)).targets
    reader = Reader(RECORDINGS / f"{recording}.jsonl.xz")
    shown = list(replay(reader, target))
    shift = end - shown[-1][0]
    clock = shift - (reader.header.wall_start or 0.0)
    for moment, snapshot in shown:
        for family in target_families([snapshot]):
            for sample in family.samples:
                value = _moved(sample.name, sample.value, clock)
                for instance in exporters:
                    labels = {**_LABELS, "instance": instance, **sample.labels}
                    yield _line(sample.name, labels, value, moment + shift)


def _moved(name: str, value: float, seconds: float) -> float:
    """A moment that a metric tells, on the clock of now."""
    return value + seconds if name.endswith("_timestamp_seconds") else value


def native_lines(recording: str, end: float) -> Iterator[str]:
    """The histograms that a Prometheus which scrapes the server itself has."""
    found = list(bodies(recording))
    shift = end - found[-1][0]
    wanted = ("vllm:time_to_first_token_seconds_", "vllm:inter_token_latency_seconds_")
    for moment, body in found:
        for line in body.splitlines():
            if line.startswith(wanted):
                name, _, value = line.rpartition(" ")
                yield f'{name[:-1]},job="vllm",instance="{recording}"}} {value} {moment + shift:.3f}'


def ollama_lines(seconds: float, end: float) -> Iterator[str]:
    """What PhaseWatch shows of a simulated Ollama whose users come and go, one of whose models is partly on the CPU."""
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
        ProbeSettings(interval=60.0),
        seconds=seconds,
        device=DeviceSettings(memory_bandwidth=90e9, flops=5e12, cpu_memory_bandwidth=45e9),
    )
    began = end - seconds
    clock = began - (EPOCH / SECOND + START)
    for moment, metrics in watched.readings:
        for (name, labels), value in metrics.items():
            told = {**_LABELS, **dict(labels), "target": "workstation"}
            yield _line(name, told, _moved(name, value, clock), began + moment)


def _line(name: str, labels: Mapping[str, str], value: float, moment: float) -> str:
    told = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{told}}} {value} {moment:.3f}"


@contextlib.contextmanager
def filled(
    folder: Path, fleet: Mapping[str, str], *, ollama_seconds: float, native: Sequence[str] = ()
) -> Iterator[Stack]:
    """Prometheus over what the recordings tell, with an exporter and a vLLM that run live.

    Args:
        folder: for its files.
        fleet: recordings and the targets that they play.
        ollama_seconds: for how long the Ollama was watched; 0 for none.
        native: recordings whose own histograms are there, too.
    """
    end = time.time() - 1
    lines: list[str] = []
    model = folder / "model"
    model.mkdir()
    write_json(model / "config.json", model_config("llama-recordings"))
    for recording, name in fleet.items():
        exporters = (FIRST, OTHER) if name == TWICE else (FIRST,)
        lines += recorded_lines(recording, name, model, end, exporters)
    for recording in native:
        lines += native_lines(recording, end)
    lines += [
        _line("phasewatch_build_info", {**_LABELS, "version": "0"}, 1, end - second) for second in range(180, 0, -1)
    ]
    if ollama_seconds:
        lines += ollama_lines(ollama_seconds, end)
    _load(lines, folder)
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
        _prometheus(folder, exporter.url, played.url) as url,
    ):
        stack = Stack(url, end)
        eventually(
            lambda: stack.instant("phasewatch_slo:time_to_first_token_slow_ratio:rate5m", time.time()), "rules ran"
        )
        yield stack


def _load(lines: Iterable[str], folder: Path) -> None:
    file = folder / "series.txt"
    file.write_text("".join(f"{line}\n" for line in lines) + "# EOF\n")
    promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", str(file), str(folder / "data"))


@contextlib.contextmanager
def _prometheus(folder: Path, exporter: str, server: str) -> Iterator[str]:
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
        # Groups that look at days are evaluated every two minutes, and alerts wait for some.
        quick = re.sub(r"^( +interval: )\w+$", r"\g<1>1s", path.read_text(), flags=re.MULTILINE)
        (folder / "rules" / path.name).write_text(re.sub(r"^( +for: )\w+$", r"\g<1>0s", quick, flags=re.MULTILINE))
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    flags = (
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        # Blocks have no markers for what vanished; a look back this short does instead.
        "--query.lookback-delta=15s",
    )
    with running("prometheus", *flags, log=folder / "prometheus.log"):
        eventually(lambda: get(f"http://{address}/-/ready"), "Prometheus is ready")
        yield f"http://{address}"
