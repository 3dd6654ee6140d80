"""A new kind of server is one folder and one line: everything asks the `Backend`, and nothing else has to change."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from phasewatch import backends
from phasewatch.backends.backend import ServerSign
from phasewatch.backends.vllm import VLLM
from phasewatch.cli.main import main
from phasewatch.recordings.format import RecordingReader
from tests.support.configurations import BACKENDS_KNOWN
from tests.support.fakes import Exporter, FakeVllm, recorded_page
from tests.support.paths import ROOT
from tests.support.plain_counters import PLAIN_COUNTERS

LABELS = {"target": "kettle", "backend": "plain_counters"}
REGISTERED = """
import sys
from phasewatch import backends
from phasewatch.cli.main import main
from tests.support.plain_counters import PLAIN_COUNTERS
backends.BACKENDS = (*backends.BACKENDS, PLAIN_COUNTERS)
sys.exit(main())
"""


def counters(prompt: float, prompt_seconds: float, predicted: float, predicted_seconds: float) -> str:
    values = {
        "prompt_tokens_total": prompt,
        "prompt_seconds_total": prompt_seconds,
        "tokens_predicted_total": predicted,
        "tokens_predicted_seconds_total": predicted_seconds,
    }
    return "".join(f"# TYPE {name} counter\n{name} {value}\n" for name, value in values.items())


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "BACKENDS", (*backends.BACKENDS, PLAIN_COUNTERS))


def configuration(folder: Path, url: str = "http://127.0.0.1:9", **keys: object) -> Path:
    path = folder / "phasewatch.yml"
    target = {"name": "kettle", "backend": "plain_counters", "url": url, **keys}
    path.write_text(json.dumps({"targets": [target]}))
    return path


@pytest.mark.usefixtures("registered")
def test_check_applies_the_rules_of_a_registered_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config.file", str(configuration(tmp_path, probe={"enabled": True}))]) == 0
    assert capsys.readouterr() == (
        "configuration valid: 1 target(s)\n",
        "note: targets[0].probe: accepted, but not used: a plain_counters target is never sent a prompt\n",
    )
    assert main(["check", "--config.file", str(configuration(tmp_path, model={"kv_cache_dtype": "fp8"}))]) == 1
    assert capsys.readouterr().err == "targets[0].model.kv_cache_dtype: a plain_counters target has no KV cache\n"


def test_an_unregistered_backend_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config.file", str(configuration(tmp_path))]) == 1
    assert capsys.readouterr().err == f"targets[0].backend: expected {BACKENDS_KNOWN}, found 'plain_counters'\n"


def test_no_backend_imports_the_http_client_before_it_is_needed() -> None:
    code = "import sys, phasewatch.cli.main, tests.support.plain_counters; print('httpx' in sys.modules)"
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'exporter'}"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


@pytest.mark.usefixtures("registered")
def test_a_recording_of_a_registered_backend_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kettle.jsonl"
    pages = [(0.0, counters(0, 0, 0, 0)), (10.0, counters(1200, 1.5, 100, 5.0))]
    lines = [{"kind": "scrape", "t": time, "took": 0.0, "status": 200, "body": body} for time, body in pages]
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in [{"kind": "header", "engine": "plain_counters"}, *lines])
    )
    assert main(["replay", str(path), "--format", "json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    values = {metric["name"]: metric["value"] for metric in last["metrics"]}
    assert {name: values[name] for name in values if name.startswith(("llm_prefill", "llm_decode"))} == {
        "llm_prefill_tokens_per_second": 800.0,
        "llm_prefill_throughput_tokens_per_second": 120.0,
        "llm_prefill_streams": 0.15,
        "llm_decode_tokens_per_second": 20.0,
        "llm_decode_throughput_tokens_per_second": 10.0,
        "llm_decode_streams": 0.5,
    }


def test_record_recognises_a_registered_backend_by_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "new.jsonl"
    for answer, recorded in (({"version": "0.32.0"}, "plain_counters"), ({"version": "0.33.0"}, "vllm")):
        sign = ServerSign("/version", answer.__eq__)
        monkeypatch.setattr(backends, "BACKENDS", (VLLM, replace(PLAIN_COUNTERS, sign=sign)))
        with FakeVllm(counters(0, 0, 0, 0).encode() + recorded_page()) as server:
            words = ["--target", server.url, "--duration", "100ms", "--interval", "100ms", "--output", str(output)]
            assert main(["record", *words]) == 0, recorded
        assert RecordingReader(output).header.backend == recorded


@pytest.mark.usefixtures("registered")
def test_a_recording_does_not_play_a_target_of_another_registered_backend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "vllm.jsonl"
    recording.write_text('{"kind": "header", "engine": "vllm"}\n')
    assert main(["replay", str(recording), "--config.file", str(configuration(tmp_path))]) == 1
    assert capsys.readouterr() == (
        "",
        (
            f"{recording}:1: a recording with the engine vllm, but the target 'kettle' has the backend "
            "plain_counters: name a target of the same kind, or leave the configuration out\n"
        ),
    )


def test_serve_exposes_a_registered_backend_on_metrics_and_the_landing_page(tmp_path: Path) -> None:
    script = tmp_path / "registered.py"
    script.write_text(REGISTERED)
    with FakeVllm(counters(0, 0, 0, 0).encode()) as server:
        path = configuration(tmp_path, server.url, interval="100ms")
        environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'exporter'}"}
        with Exporter("--config.file", str(path), entry=(str(script),), environment=environment) as exporter:
            exporter.shows(1.0, "llm_target_up", **LABELS)
            server.page = counters(1200, 1.5, 100, 5.0).encode()
            exporter.shows(20.0, "llm_decode_tokens_per_second", **LABELS)
            exporter.shows(800.0, "llm_prefill_tokens_per_second", **LABELS)
            page = exporter.ask("/").text
            assert "no ceiling: set <code>device</code> and <code>model</code> in the configuration" in page
