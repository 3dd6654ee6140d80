"""The stack of docker-compose.yml without containers: its services run as the programs they are, over the very files.

Names of services become addresses on loopback, and what is waited for is shorter; nothing else is changed.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
import pytest

from phasewatch.demo.run import VLLM_NAME
from tests.support.accelerated_rules import accelerate, divide_duration
from tests.support.alert_stack import NOWHERE, Webhook
from tests.support.compose_file import Stack
from tests.support.dashboard_lint import choose, expand_variables, iterate_queries, load_dashboards
from tests.support.fakes import Exporter
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE, eventually, free_port, get, get_json, needs, running
from tests.support.rule_files import rules

FACTOR: Final = 30
"""What rules and Alertmanager wait for is divided by this."""

SCRAPE_FACTOR: Final = 10
"""And this is what scrapes do: their interval is also the time that they have."""

SERVERS: Final = 2
"""Simulated vLLMs: the second begins in the middle of the script, where one trouble follows the other."""

PROGRAMS: Final = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}
"""Of the Debian packages, for the services that run them."""

HURRY: Final = {"prometheus": ["--rules.alert.resend-delay=2s"]}
"""An alert that fires before Alertmanager is found is lost until it is sent again, by default a minute later."""

COMPOSE: Final = Stack(ROOT)
BOARDS: Final = load_dashboards()
_TIMES: Final = re.compile(r"^( *(?:(scrape)_interval|\w+_interval|group_wait): )(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Native:
    """A service's container as a folder, and where the services are.

    Attributes:
        folder: stands for the root of the container's file system.
        addresses: host and port on loopback, by host and port inside of the stack.
    """

    folder: Path
    addresses: Mapping[str, str] = field(default_factory=dict)

    def write(self, service: str) -> None:
        """Copies what a service mounts."""
        for mount in COMPOSE.mounts(service):
            source = ROOT / mount.source
            for path in [source] if source.is_file() else source.iterdir():
                target = self.inside(mount.target) / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.adapted(path.read_text()) if target.suffix == ".yml" else path.read_text())

    def inside(self, path: str) -> Path:
        return self.folder / path.removeprefix("/")

    def adapted(self, text: str) -> str:
        """A file with addresses on loopback and shorter times."""
        if "\ngroups:" in text:
            return accelerate(text, FACTOR)
        for inside, outside in self.addresses.items():
            text = text.replace(inside, outside)
        return _TIMES.sub(_shorter, text)

    def flags(self, service: str) -> list[str]:
        """The command of a service: paths are below the folder, and it listens on loopback."""
        paths = {mount.target for mount in COMPOSE.mounts(service)}
        paths |= {entry.split(":")[1] for entry in COMPOSE.services[service]["volumes"]}
        given = [word.partition("=") for word in COMPOSE.services[service]["command"]]
        flags = [f"{flag}={self.inside(value) if value in paths else value}" for flag, _, value in given]
        return [*flags, *HURRY.get(service, ()), f"--web.listen-address={self.addresses[inside_address(service)]}"]


def _shorter(match: re.Match[str]) -> str:
    return f"{match[1]}{divide_duration(match[3], SCRAPE_FACTOR if match[2] else FACTOR)}"


def inside_address(service: str) -> str:
    """Host and port of a service as the others know it."""
    return f"{service}:{COMPOSE.published(service)[2]}"


@contextlib.contextmanager
def started(service: str, native: Native) -> Iterator[str]:
    """A service as a process; gives its address."""
    native.folder.mkdir()
    native.write(service)
    address, log = native.addresses[inside_address(service)], native.folder.with_suffix(".log")
    with running(PROGRAMS[service], *native.flags(service), log=log) as process:

        def ready() -> str:
            assert process.poll() is None, log.read_text()
            return get(f"http://{address}/-/ready")

        eventually(ready, f"{service} is ready")
        yield f"http://{address}"


@dataclass(frozen=True, slots=True)
class Running:
    """The stack: addresses of what runs, and where notifications come to."""

    exporter: Exporter
    prometheus: str
    alertmanager: str
    webhook: Webhook


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("stack")
    command, *words = COMPOSE.services["demo"]["command"]
    with contextlib.ExitStack() as stack:
        webhook = stack.enter_context(Webhook())
        exporter = stack.enter_context(Exporter(*words, "--servers", str(SERVERS), command=command))
        (alias,) = COMPOSE.services["demo"]["networks"]["default"]["aliases"]
        own = f"127.0.0.1:{free_port()}"
        addresses = {
            f"{alias}:{COMPOSE.port}": exporter.url.removeprefix("http://"),
            inside_address("prometheus"): own,
            f"localhost:{COMPOSE.published('prometheus')[2]}": own,
            inside_address("alertmanager"): f"127.0.0.1:{free_port()}",
            NOWHERE: webhook.url,
        }
        manager = stack.enter_context(started("alertmanager", Native(folder / "alertmanager", addresses)))
        prometheus = stack.enter_context(started("prometheus", Native(folder / "prometheus", addresses)))
        # The address that Grafana has, so that its data source is the one that is asked.
        (source,) = COMPOSE.yaml("dashboards/provisioning/datasources/phasewatch.yml")["datasources"]
        assert addresses[urlsplit(source["url"]).netloc] == prometheus.removeprefix("http://")
        yield Running(exporter, prometheus, manager, webhook)


pytestmark = [needs("prometheus"), needs("prometheus-alertmanager")]


def number(stack: Running, expr: str) -> int | None:
    """What a query with one result says."""
    found = get_json(f"{stack.prometheus}/api/v1/query?query={quote(expr)}")["data"]["result"]
    return int(found[0]["value"][1]) if found else None


def test_all_targets_are_up(stack: Running) -> None:
    def up() -> set[str] | None:
        found = get_json(f"{stack.prometheus}/api/v1/targets")["data"]["activeTargets"]
        return {one["labels"]["job"] for one in found} if all(one["health"] == "up" for one in found) else None

    configured = {job["job_name"] for job in COMPOSE.yaml("alerts/prometheus.yml")["scrape_configs"]}
    assert eventually(up, "all targets are up") == configured
    servers = SERVERS + 2  # and the llama-server and the Ollama
    eventually(lambda: number(stack, "count(llm_target_up == 1)") == servers, "all servers are up")


def test_all_rules_are_loaded_and_healthy(stack: Running) -> None:
    def evaluated() -> list[dict[str, Any]] | None:
        groups = get_json(f"{stack.prometheus}/api/v1/rules")["data"]["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else None

    found = eventually(evaluated, "every rule was evaluated")
    assert [rule for rule in found if rule["health"] != "ok"] == []
    assert sorted(rule["name"] for rule in found) == sorted(rule.get("alert") or rule["record"] for rule in rules())


def test_prometheus_has_found_alertmanager(stack: Running) -> None:
    def find_managers() -> list[str]:
        managers = get_json(f"{stack.prometheus}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        return [one["url"] for one in managers]

    wanted = [f"{stack.alertmanager}/api/v2/alerts"]
    eventually(lambda: find_managers() == wanted, "Prometheus has found Alertmanager")


@pytest.mark.parametrize("uid", BOARDS)
def test_every_query_of_a_board_is_answered_without_an_error(stack: Running, uid: str) -> None:
    now = time.time()
    failed = []
    for panel, target in iterate_queries(BOARDS[uid]):
        expr, instant = choose(expand_variables(target["expr"], "20s")), target.get("instant")
        moments = {"time": f"{now:.3f}"} if instant else {"start": f"{now - 20:.3f}", "end": f"{now:.3f}", "step": "2"}
        url = f"{stack.prometheus}/api/v1/{'query' if instant else 'query_range'}"
        answer = httpx.post(url, data={"query": expr, **moments}, timeout=30.0, trust_env=False).json()
        if answer["status"] != "success":
            failed.append((panel["title"], target["refId"], answer["error"]))
    assert failed == []


def test_every_simulated_vllm_is_a_target_of_its_own_on_the_boards(stack: Running) -> None:
    states = 'count(count by (target) (llm_saturation_state{backend="vllm"}))'
    assert eventually(lambda: number(stack, states), "states") == SERVERS


def test_the_watchdog_and_an_alert_about_a_server_reach_their_receivers(stack: Running) -> None:
    eventually(lambda: stack.webhook.bodies("/watchdog"), "the watchdog")
    path, alert = eventually(lambda: trouble(stack), "an alert about a simulated server", 4 * PATIENCE)
    assert {"critical": "/page", "warning": "/ticket"}[alert["labels"]["severity"]] == path
    assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{alert['labels']['alertname']}.md")
    # People on the host follow the link to where Prometheus is published.
    _, port, _ = COMPOSE.published("prometheus")
    assert alert["generatorURL"].startswith(f"http://localhost:{port}/graph?")


def trouble(stack: Running) -> tuple[str, dict[str, Any]] | None:
    """The first alert about a simulated vLLM, with the path that it came to: the script has more than one for each."""
    received = [(path, alert) for path in ("/page", "/ticket") for alert in stack.webhook.alerts(path)]
    return next((one for one in received if one[1]["labels"].get("target", "").startswith(VLLM_NAME)), None)
