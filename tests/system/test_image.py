"""The image without containers: its health check is run, and the wheel is built from what the Dockerfile copies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.compose_file import Stack
from tests.support.fakes import Exporter, FakeVllm
from tests.support.paths import ROOT

STACK: Final = Stack(ROOT)
CHECK: Final = json.loads(STACK.instruction("HEALTHCHECK").partition("CMD ")[2])


def test_the_health_check_succeeds_while_the_exporter_serves_and_fails_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "phasewatch.yml"
    with FakeVllm() as server:
        file.write_text(f"targets:\n- {{name: chat, backend: vllm, url: '{server.url}'}}\n")
        with Exporter("--config.file", str(file)) as exporter:
            port = exporter.url.rpartition(":")[2]
            assert health(port).returncode == 0
    assert health(port).returncode == 1


def health(port: str) -> "subprocess.CompletedProcess[bytes]":
    """The health check of the image, asking another port; a shell is not there to help it."""
    python, *words = CHECK
    assert python == "/venv/bin/python"
    told = [word.replace(f":{STACK.port}/", f":{port}/") for word in words]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run([sys.executable, *told], env=environment, capture_output=True, check=False)


def test_the_wheel_can_be_built_from_the_copied_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in STACK.copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    words = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, source)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.glob("*.whl")] == [f"phasewatch-{STACK.version}-py3-none-any.whl"]
