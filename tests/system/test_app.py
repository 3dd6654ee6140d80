import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phasewatch import app
from phasewatch.base.errors import BindError, Reason
from phasewatch.config import settings
from phasewatch.demo.ollama.model import Model
from phasewatch.web.server import bind
from tests.support.fakes import Exporter, FakeVllm, logfmt, program
from tests.support.probe_assertions import assert_harmless, assert_uncached
from tests.support.processes import PATIENCE, eventually
from tests.support.simulated_ollama import FakeOllama
from tests.support.targets import new_target

UP = "llm_target_up"
RELOADED = "phasewatch_config_last_reload_successful"
SUM = "llm_target_scrape_errors_total"


def target(name: str, url: str, **keys: Any) -> dict[str, Any]:
    """A target that is scraped often, and whose scrapes do not time out on a busy machine."""
    return {"name": name, "backend": "vllm", "url": url, "interval": "100ms", "timeout": f"{PATIENCE:g}s", **keys}


@pytest.fixture
def vllm() -> Iterator[FakeVllm]:
    with FakeVllm() as server:
        yield server


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address at which nobody listens, and which no server of the test gets: its port stays taken."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a test may start a server there by its number
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Writes the configuration, again and again to the same file."""

    def write(*targets: dict[str, Any]) -> Path:
        path = tmp_path / "phasewatch.yml"
        path.write_text(json.dumps({"targets": targets}))
        return path

    return write


Config = Callable[..., Path]


def read_log(exporter: Exporter) -> list[dict[str, str]]:
    """Its log, but for what it says of devices and models: that depends on the machine."""
    return [line for line in map(logfmt, exporter.lines) if line["msg"] not in {"device", "model"}]


def messages(exporter: Exporter) -> list[str]:
    return [line["msg"] for line in read_log(exporter)]


def serving(path: Path, *words: str, **options: Any) -> Exporter:
    return Exporter("--config.file", str(path), *words, **options)


def test_it_watches_its_targets_until_sigterm_and_exits_with_0(vllm: FakeVllm, config: Config) -> None:
    with serving(config(target("chat", vllm.url))) as exporter:
        assert exporter.ask("/-/healthy").text == "Healthy\n"
        assert exporter.ask("/-/ready").text == "Ready\n"
        exporter.shows(1.0, UP, target="chat", backend="vllm")
        exporter.shows(1.0, "llm_target_info", target="chat", version="0.32.0")
        running = {"target": "chat", "model_name": "tiny"}
        eventually(lambda: exporter.value("llm_requests_running", **running) is not None, "running requests")
        exporter.signal(signal.SIGTERM)
        assert exporter.ended() == 0
    assert messages(exporter) == ["listening", "stopped"]


QUICK = Model("a:latest", "a" * 64, load_seconds=0.05, cold_factor=1.0)
SLOW = Model("a:latest", "a" * 64, load_seconds=0.05, cold_factor=1.0, decode_seconds_per_token=2.0)


def an_ollama(server: FakeOllama, **keys: Any) -> dict[str, Any]:
    """A target that is probed every second, with a model that a user has loaded for ever."""
    body = {"model": "a", "prompt": "", "keep_alive": -1}
    httpx.post(f"{server.url}/api/generate", json=body, trust_env=False).raise_for_status()
    probe = {"interval": "1s", "budget": 0.5}
    return target("o", server.url, backend="ollama", **{"probe": probe, **keys})


def test_it_measures_an_ollama_and_harms_nobody(config: Config) -> None:
    with FakeOllama(QUICK) as server, serving(config(an_ollama(server))) as exporter:
        labels = {"target": "o", "backend": "ollama", "model_name": "a:latest"}
        exporter.shows(pytest.approx(1 / 0.003), "llm_decode_tokens_per_second", **labels)
        eventually(lambda: (exporter.value("llm_probes_total", **labels) or 0) >= 3, "three probes")
        exporter.shows(pytest.approx(2000, rel=0.05), "llm_prefill_tokens_per_second", **labels)
        exporter.shows(pytest.approx(0.107, abs=0.01), "llm_time_to_first_token_mean_seconds", **labels)
        exporter.shows(1.0, "llm_model_loaded", **labels)
        exporter.shows(1.0, "llm_target_info", target="o", version="0.33.0")
        exporter.signal(signal.SIGTERM)
        assert exporter.ended() == 0
        assert_harmless(server.ollama.ledger, probes=3)
        assert_uncached(server.ollama.ledger)
    assert messages(exporter) == ["configuration", "listening", "runners", "stopped"]


def test_a_running_probe_is_cancelled_at_the_end(config: Config) -> None:
    with FakeOllama(SLOW) as server, serving(config(an_ollama(server))) as exporter:
        eventually(lambda: server.ollama.ledger.probes == 1, "a probe")
        exporter.signal(signal.SIGTERM)
        assert exporter.ended() == 0

        def seen() -> bool:
            httpx.get(f"{server.url}/api/ps", trust_env=False)
            return len(server.ollama.ledger.waited) == 1

        eventually(seen, "the end of the probe, whose answer would have taken 94 seconds")
        assert server.ollama.ledger.probe_seconds < 94
    assert messages(exporter) == ["configuration", "listening", "runners", "stopped"]


def test_an_ollama_without_probes_gets_no_generate_request(config: Config) -> None:
    with FakeOllama(QUICK) as server, serving(config(an_ollama(server, probe={"enabled": False}))) as exporter:
        exporter.shows(1.0, "llm_model_loaded", model_name="a:latest")
        eventually(lambda: len(server.ollama.requests) > 20, "some scrapes")
        assert server.ollama.ledger.probes == 0
        assert exporter.value("llm_probes_total") is None


def test_sigint_ends_it_like_sigterm(nowhere: str, config: Config) -> None:
    with serving(config(target("chat", nowhere, optional=True))) as exporter:
        exporter.signal(signal.SIGINT)
        assert exporter.ended() == 0


def test_a_head_request_is_answered_without_a_body(nowhere: str, config: Config) -> None:
    with serving(config(target("chat", nowhere))) as exporter:
        for path in ("/", "/metrics", "/-/healthy"):
            answer = exporter.ask(path, "HEAD")
            assert (answer.status_code, answer.content) == (200, b"")
        assert "server" not in answer.headers


def test_a_reload_takes_up_new_targets_and_keeps_the_data_of_unchanged_ones(
    vllm: FakeVllm, nowhere: str, config: Config
) -> None:
    kept, gone = target("kept", vllm.url, interval="1h", window="2h"), target("gone", nowhere)
    with serving(config(kept, gone)) as exporter, FakeVllm() as other:
        exporter.shows(1.0, UP, target="kept")
        exporter.shows(0.0, UP, target="gone")
        before = exporter.value("llm_target_last_success_timestamp_seconds", target="kept")
        config(target("new", other.url), kept)
        exporter.signal(signal.SIGHUP)
        exporter.shows(1.0, UP, target="new")
        assert exporter.value(UP, target="kept") == 1.0
        assert exporter.value("llm_target_last_success_timestamp_seconds", target="kept") == before
        assert exporter.value(UP, target="gone") is None
        assert exporter.value(RELOADED) == 1.0
        assert logfmt(exporter.logged("configuration reloaded"))["targets"] == "2"


def test_a_reload_drops_the_data_of_a_changed_target(vllm: FakeVllm, nowhere: str, config: Config) -> None:
    with serving(config(target("chat", vllm.url))) as exporter:
        exporter.shows(1.0, UP, target="chat")
        config(target("chat", nowhere))
        exporter.signal(signal.SIGHUP)
        exporter.shows(0.0, UP, target="chat")
        assert exporter.value("llm_target_last_success_timestamp_seconds", target="chat") is None


def test_an_invalid_reload_keeps_the_configuration_in_force(vllm: FakeVllm, config: Config) -> None:
    with serving(path := config(target("chat", vllm.url))) as exporter:
        exporter.shows(1.0, UP, target="chat")
        loaded = exporter.value("phasewatch_config_last_reload_success_timestamp_seconds")
        assert exporter.value(RELOADED) == 1.0
        path.write_text("intervall: 5s\ntargets: []")
        exporter.signal(signal.SIGHUP)
        exporter.shows(0.0, RELOADED)
        assert exporter.value(UP, target="chat") == 1.0
        assert exporter.value("phasewatch_config_last_reload_success_timestamp_seconds") == loaded
        assert "The newest configuration is invalid" in exporter.ask("/").text
        exporter.logged("configuration not reloaded", times=2)
        lines = {logfmt(line)["key"]: logfmt(line) for line in exporter.lines if "not reloaded" in line}
        assert lines.keys() == {"intervall", "targets"}
        assert lines["targets"]["error"] == "expected at least one entry"
        assert lines["targets"]["level"] == "error"
        config(target("chat", vllm.url))
        exporter.signal(signal.SIGHUP)
        exporter.shows(1.0, RELOADED)


@pytest.mark.parametrize("content", ["a: 2026-13-45", "targets: [{name: a, body_size_limit: 16kiB}]", "\x00"])
def test_a_malformed_file_is_refused_by_a_reload(content: str, nowhere: str, config: Config) -> None:
    with serving(path := config(target("chat", nowhere)), "--web.enable-lifecycle") as exporter:
        path.write_text(content)
        assert exporter.ask("/-/reload", "POST").text.startswith("The configuration is invalid")
        assert exporter.value(RELOADED) == 0.0


def test_a_changed_target_is_watched_at_once_while_its_old_scrape_still_hangs(vllm: FakeVllm, config: Config) -> None:
    slow = {"interval": "1h", "window": "2h", "timeout": "1h"}
    with FakeVllm() as hanging:
        hanging.hang()
        with serving(config(target("chat", hanging.url, **slow))) as exporter:
            hanging.asked.get(timeout=PATIENCE)
            config(target("chat", vllm.url, **slow))
            exporter.signal(signal.SIGHUP)
            exporter.shows(1.0, UP, target="chat")
            assert exporter.value("phasewatch_scrapes_missed_total") == 0.0


def test_a_removed_target_causes_no_more_lines(vllm: FakeVllm, config: Config) -> None:
    with FakeVllm() as hanging:
        hanging.hang()
        with serving(config(target("gone", hanging.url), target("kept", vllm.url))) as exporter:
            hanging.asked.get(timeout=PATIENCE)
            config(target("kept", vllm.url))
            exporter.signal(signal.SIGHUP)
            exporter.logged("configuration reloaded")
            exporter.shows(None, UP, target="gone")
            exporter.signal(signal.SIGTERM)
            assert exporter.ended() == 0
    assert messages(exporter) == ["listening", "configuration reloaded", "stopped"]


def test_a_post_reloads_where_that_is_enabled(vllm: FakeVllm, nowhere: str, config: Config) -> None:
    with serving(path := config(target("chat", nowhere)), "--web.enable-lifecycle") as exporter:
        assert exporter.ask("/-/reload").status_code == 405
        config(target("chat", nowhere), target("code", vllm.url))
        assert exporter.ask("/-/reload", "POST").status_code == 200
        exporter.shows(1.0, UP, target="code")
        path.write_text("targets: []")
        answer = exporter.ask("/-/reload", "POST")
        assert answer.status_code == 500
        assert answer.text.endswith("targets: expected at least one entry\n")
        assert exporter.value(RELOADED) == 0.0
        assert exporter.value(UP, target="code") == 1.0


def test_a_post_reloads_nothing_where_that_is_not_enabled(vllm: FakeVllm, nowhere: str, config: Config) -> None:
    with serving(config(target("chat", nowhere))) as exporter:
        config(target("code", vllm.url))
        assert exporter.ask("/-/reload", "POST").status_code == 403
        assert exporter.ask("/-/reload").status_code == 405
        assert exporter.value(UP, target="code") is None


def test_each_outage_is_logged_once_when_it_begins_and_once_when_it_ends(vllm: FakeVllm, config: Config) -> None:
    with serving(config(target("chat", vllm.url))) as exporter:
        exporter.shows(1.0, UP, target="chat")
        vllm.status = 503
        exporter.logged("target down")
        eventually(lambda: (exporter.value(SUM, reason="http_status") or 0) >= 3, "three failures")
        assert "http_status: the server answered 503 instead of 200" in exporter.ask("/").text
        vllm.status = 200
        exporter.logged("target up again")
        exporter.shows(1.0, UP, target="chat")
        exporter.signal(signal.SIGTERM)
        assert exporter.ended() == 0
    listening, down, up, stopped = read_log(exporter)
    assert (listening["msg"], stopped["msg"]) == ("listening", "stopped")
    assert (down["level"], down["msg"], down["target"], down["url"]) == ("warning", "target down", "chat", vllm.url)
    assert (down["reason"], down["error"]) == ("http_status", "the server answered 503 instead of 200")
    assert (up["level"], up["msg"], up["target"]) == ("info", "target up again", "chat")
    assert int(up["failed_scrapes"]) >= 3


def test_while_a_target_is_down_only_its_trouble_is_shown(vllm: FakeVllm, config: Config) -> None:
    with serving(config(target("chat", vllm.url), target("code", vllm.url))) as exporter:
        exporter.shows(1.0, UP, target="code")
        vllm.page = b"not a page\n"
        exporter.shows(0.0, UP, target="chat")
        exporter.shows(0.0, UP, target="code")
        text = exporter.ask("/metrics").text
        names = {line.partition("{")[0] for line in text.splitlines() if line.startswith("llm_")}
        assert names == {
            UP,
            SUM,
            "llm_target_scrape_duration_seconds",
            "llm_target_last_success_timestamp_seconds",
        }


def test_an_optional_target_stays_out_until_it_has_answered(vllm: FakeVllm, nowhere: str, config: Config) -> None:
    port = int(nowhere.rpartition(":")[2])
    with serving(config(target("chat", nowhere, optional=True), target("code", vllm.url))) as exporter:
        exporter.shows(1.0, UP, target="code")
        assert logfmt(exporter.logged("optional target not there yet"))["level"] == "info"
        assert exporter.value(UP, target="chat") is None
        assert exporter.value(SUM, target="chat") is None
        assert "optional, not there yet" in exporter.ask("/").text
        with FakeVllm(port=port):
            exporter.shows(1.0, UP, target="chat")
        exporter.shows(0.0, UP, target="chat")


def test_one_target_that_hangs_holds_up_neither_the_others_nor_the_pages(vllm: FakeVllm, config: Config) -> None:
    with FakeVllm() as hanging:
        hanging.hang()
        with serving(config(target("stuck", hanging.url, timeout="1h"), target("chat", vllm.url))) as exporter:
            exporter.shows(1.0, UP, target="chat")
            assert exporter.value(UP, target="stuck") is None
            assert "not scraped yet" in exporter.ask("/").text
            eventually(lambda: (exporter.value("phasewatch_scrapes_missed_total") or 0) >= 2, "missed scrapes")


def test_a_scrape_under_way_does_not_hold_up_the_end(config: Config) -> None:
    with FakeVllm() as hanging:
        hanging.hang()
        with serving(config(target("chat", hanging.url, timeout="1h"))) as exporter:
            hanging.asked.get(timeout=PATIENCE)
            exporter.signal(signal.SIGTERM)
            assert exporter.ended() == 0
    assert messages(exporter) == ["listening", "stopped"]


def test_clients_that_stay_connected_do_not_hold_up_the_end(nowhere: str, config: Config) -> None:
    with serving(config(target("chat", nowhere, optional=True))) as exporter:
        port = int(exporter.url.rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            for begun in (b"", b"GET /metrics HTTP/1.1\r\n", b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
                client.sendall(begun)
            assert client.recv(12) == b"HTTP/1.1 200"
            exporter.signal(signal.SIGTERM)
            assert exporter.ended() == 0


def test_a_client_that_does_not_read_its_answers_does_not_hold_up_the_end(vllm: FakeVllm, config: Config) -> None:
    with serving(config(target("chat", vllm.url))) as exporter, socket.socket() as client:
        exporter.shows(1.0, UP, target="chat")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(exporter.url.rpartition(":")[2])))
        client.settimeout(1)
        with contextlib.suppress(TimeoutError):  # which shows that the exporter has stopped reading as well
            for _ in range(2000):
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        exporter.signal(signal.SIGTERM)
        assert exporter.ended() == 0


def test_a_taken_port_ends_it_with_3_and_says_which(nowhere: str, config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("--config.file", str(config(target("chat", nowhere))), "--web.listen-address", address)
        with program("serve", *words) as process:
            _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert output.startswith(f"cannot listen on {address}: Address already in use")
    assert output.count("\n") == 1


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_ours_cannot_be_bound(host: str) -> None:
    with pytest.raises(BindError, match=f"^cannot listen on {host}:10061: "):
        bind(host, 10061)


@pytest.mark.parametrize(
    ("host", "peers"), [("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"]), ("", ["127.0.0.1", "::1"])]
)
def test_it_listens_on_the_configured_address(host: str, peers: list[str]) -> None:
    with bind(host, 0) as bound:
        for peer in peers:
            with socket.create_connection((peer, bound.getsockname()[1]), PATIENCE):
                pass


def test_flags_may_come_from_the_environment_and_a_flag_beats_it(nowhere: str, config: Config) -> None:
    environment = {
        "PHASEWATCH_CONFIG_FILE": str(config(target("chat", nowhere))),
        "PHASEWATCH_WEB_LISTEN_ADDRESS": "127.0.0.1:0",
        "PHASEWATCH_WEB_ENABLE_LIFECYCLE": "true",
        "PHASEWATCH_LOG_FORMAT": "json",
        "PHASEWATCH_LOG_LEVEL": "error",
    }
    with Exporter("--log.level", "info", environment=environment, listen=()) as exporter:
        assert exporter.ask("/-/reload", "POST").status_code == 200
        exporter.shows(0.0, UP, target="chat")
        for message in ("configuration reloaded", "target down"):
            exporter.logged(message)
        lines = [json.loads(line) for line in list(exporter.lines)]
    assert {"listening", "configuration reloaded", "target down"} <= {line["msg"] for line in lines}
    assert all(line.keys() >= {"time", "level", "msg"} for line in lines)


def test_a_secret_reaches_its_server_and_nothing_else(vllm: FakeVllm, config: Config, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hunter2\n")
    authorization = {"type": "Bearer", "credentials_file": str(key)}
    path = config(target("chat", vllm.url, authorization=authorization))
    with serving(path, "--log.level", "debug") as exporter:
        exporter.shows(1.0, UP, target="chat")
        _, headers = vllm.asked.get(timeout=PATIENCE)
        assert headers["Authorization"] == "Bearer hunter2"
        vllm.status = 401
        exporter.logged("target down")
        texts = exporter.ask("/metrics").text + exporter.ask("/").text
        exporter.signal(signal.SIGTERM)
        assert exporter.ended() == 0
    assert "auth: the server answered 401: set authorization, or renew its secret" in texts
    assert "hunter2" not in texts + "\n".join(exporter.lines)


def test_a_rotated_secret_is_taken_up_without_a_reload(vllm: FakeVllm, config: Config, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("old")
    authorization = {"credentials_file": str(key)}
    with serving(config(target("chat", vllm.url, authorization=authorization))) as exporter:
        exporter.shows(1.0, UP, target="chat")
        key.write_text("new")
        eventually(lambda: vllm.asked.get(timeout=PATIENCE)[1]["Authorization"] == "Bearer new", "the new secret")


def test_a_clock_set_back_does_not_pause_the_scrapes(nowhere: str) -> None:
    async def work() -> None:
        target = new_target("chat", "vllm", nowhere, interval=3600.0)
        exporter = app.Exporter(None, settings.Config((target,)))

        async def failures(wanted: int) -> None:
            while exporter.collect_snapshots()[1][0].errors[Reason.CONNECT] < wanted:  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.01)

        exporter.start()
        await failures(1)
        exporter.scrape_now()
        await failures(2)
        await exporter.stop()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))
