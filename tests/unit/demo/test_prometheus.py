"""Locating and configuring Prometheus, without starting it."""

import json
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from phasewatch.base.errors import DemoError
from phasewatch.demo.prometheus import (
    DEFAULT_PORT,
    build_configuration,
    find_free_port,
    find_prometheus,
    find_rules,
)
from tests.support.paths import ALERTS
from tests.support.processes import needs

EXPORTER = "127.0.0.1:10061"
VLLMS = {"simulated-vllm": "127.0.0.1:8000"}


def test_the_configuration_has_the_scrape_jobs_that_the_rules_expect() -> None:
    configuration = build_configuration(Path("/rules"), "127.0.0.1:9090", EXPORTER, VLLMS)
    shipped = yaml.safe_load((ALERTS / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job["static_configs"] for job in configuration["scrape_configs"]}
    assert {job["job_name"] for job in shipped["scrape_configs"]} <= jobs.keys()
    assert jobs["phasewatch"] == [{"targets": [EXPORTER]}]
    assert jobs["vllm"] == [{"targets": ["127.0.0.1:8000"], "labels": {"target": "simulated-vllm"}}]
    assert configuration["rule_files"] == ["/rules/*.yml"]


@needs("promtool")
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(build_configuration(find_rules(), "127.0.0.1:9090", EXPORTER, VLLMS)))
    subprocess.run(["promtool", "check", "config", file], check=True, capture_output=True)


def test_the_rules_are_those_of_this_checkout() -> None:
    assert find_rules() == ALERTS / "rules"


def test_without_the_program_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError, match="no program `prometheus` on PATH; install it"):
        find_prometheus()


def test_the_default_port_is_used_if_it_is_free_and_another_one_otherwise() -> None:
    port = find_free_port()
    try:
        server = socket.create_server(("127.0.0.1", DEFAULT_PORT))
    except OSError:
        assert port != DEFAULT_PORT
        return
    with server:
        assert port == DEFAULT_PORT
        assert find_free_port() != DEFAULT_PORT
