import asyncio
import gzip
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from phasewatch.base.errors import ConfigError, Problem
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import replay
from phasewatch.snapshot.target import TargetSnapshot
from phasewatch.web.landing.load_history import LoadHistory
from phasewatch.web.routes import View, create_app
from tests.support.live_page import OLLAMA
from tests.support.paths import RECORDINGS
from tests.support.targets import new_target

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
FILES = {
    "/style.css": "text/css; charset=utf-8",
    "/live.js": "text/javascript; charset=utf-8",
    "/icon.svg": "image/svg+xml",
}
STATUS = SelfStatus("1.2.3", reload_successful=True, reload_success_time=1.0, scrapes_missed=0)


def played(name: str) -> TargetSnapshot:
    target = new_target("chat", "vllm", "http://h")
    *_, (_, last) = replay(RecordingReader(RECORDINGS / f"{name}.jsonl.xz"), target)
    return last


@pytest.fixture(scope="module")
def snapshot() -> TargetSnapshot:
    return played("single-stream")


class Exporter:
    """What the routes see of the exporter."""

    def __init__(self, *snapshots: TargetSnapshot) -> None:
        self.snapshots = snapshots
        self.ready = True
        self.reloads = 0
        self.problems: list[Problem] = []
        self.history = LoadHistory()
        self.probed = True
        self.notice = ""

    def reload(self) -> None:
        self.reloads += 1
        if self.problems:
            raise ConfigError(self.problems)

    def view(self) -> View:
        return View(
            lambda: (STATUS, self.snapshots),
            self.reload,
            lambda: self.ready,
            self.history,
            lambda _target, _model: self.probed,
            self.notice,
        )


def ask(
    exporter: Exporter, path: str, method: str = "GET", *, enable_lifecycle: bool = False, **headers: str | None
) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(exporter.view(), enable_lifecycle=enable_lifecycle))
        async with httpx.AsyncClient(transport=transport, base_url="http://phasewatch") as client:
            client.headers.clear()
            return await client.request(method, path, headers=sent)

    return asyncio.run(go())


def plain_name(escaped: str) -> str:
    """The escapings `dots` and `values` double underscores; ours have no two in a row."""
    return escaped.removeprefix("U__").replace("__", "_")


def samples_of(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Values by name and labels, names as they were before escaping."""
    return {
        (plain_name(sample.name), frozenset((plain_name(n), v) for n, v in sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


FORMS: list[tuple[str | None, str, Callable[[str], Any]]] = [
    (None, TEXT, parse_text),
    ("", TEXT, parse_text),
    ("*/*", TEXT, parse_text),
    ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT, parse_text),
    ("application/json", TEXT, parse_text),
    ("text/plain", TEXT, parse_text),
    ("text/plain;version=0.0.4", TEXT, parse_text),
    (
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        parse_text,
    ),
    (
        "application/openmetrics-text;version=1.0.0",
        f"{OPENMETRICS}; escaping=underscores",
        parse_openmetrics,
    ),
    *(
        (
            f"application/openmetrics-text;version=1.0.0;escaping={escaping}",
            f"{OPENMETRICS}; escaping={escaping}",
            parse,
        )
        for escaping, parse in (
            ("allow-utf-8", parse_openmetrics),
            ("underscores", parse_openmetrics),
            # These escape suffixes as well, so a strict parser takes `x__sum` for a family that interrupts `x`.
            ("dots", parse_text),
            ("values", parse_text),
        )
    ),
    (PROMETHEUS_2_42, f"{OPENMETRICS}; escaping=underscores", parse_openmetrics),
    (PROMETHEUS_3, f"{OPENMETRICS}; escaping=allow-utf-8", parse_openmetrics),
]
"""Accept header, content type of the answer, and what reads it."""


def test_every_accepted_format_has_the_same_samples(snapshot: TargetSnapshot) -> None:
    plain = samples_of(parse_text(ask(Exporter(snapshot), "/metrics").text))
    for accept, content_type, parse in FORMS:
        answer = ask(Exporter(snapshot), "/metrics", accept=accept)
        assert answer.status_code == 200, accept
        assert answer.headers["content-type"] == content_type, accept
        samples = samples_of(parse(answer.text))
        ours = {key: value for key, value in samples.items() if key[0].startswith(("llm_", "phasewatch_"))}
        assert len(ours) > 50, accept
        assert ours == {key: value for key, value in plain.items() if key in ours}, accept
        assert samples.keys() == plain.keys(), accept


def test_the_page_is_about_the_target_the_exporter_and_the_process(snapshot: TargetSnapshot) -> None:
    text = ask(Exporter(snapshot), "/metrics").text
    assert 'llm_target_up{backend="vllm",target="chat"} 1.0' in text
    assert 'phasewatch_build_info{version="1.2.3"} 1.0' in text
    assert "process_resident_memory_bytes " in text
    assert "python_info{" in text
    assert "_created" not in text


def test_the_page_is_compressed_if_that_is_accepted(snapshot: TargetSnapshot) -> None:
    for accept_encoding, zipped in (("gzip", True), ("br, gzip;q=0.5", True), ("br", False)):
        answer = ask(Exporter(snapshot), "/metrics", accept_encoding=accept_encoding)
        assert answer.headers.get("content-encoding") == ("gzip" if zipped else None), accept_encoding
        assert 'llm_target_up{backend="vllm",target="chat"} 1.0\n' in answer.text, accept_encoding
        assert (int(answer.headers["content-length"]) < len(answer.text) / 2) is zipped, accept_encoding


def test_the_page_is_not_compressed_for_a_client_that_excludes_it() -> None:
    for accept_encoding in ("gzip;q=0", "gzip;q=0.0, *;q=0", "identity, gzip; q=0"):
        answer = ask(Exporter(), "/metrics", accept_encoding=accept_encoding)
        assert "content-encoding" not in answer.headers, accept_encoding


def test_the_page_is_fresh_and_varies_with_what_is_accepted() -> None:
    headers = ask(Exporter(), "/metrics").headers
    assert headers["cache-control"] == "no-store"
    assert headers["vary"] == "Accept, Accept-Encoding"


def test_the_page_shows_the_newest_view(snapshot: TargetSnapshot) -> None:
    exporter = Exporter()
    app = create_app(exporter.view(), enable_lifecycle=False)

    async def go() -> list[bool]:
        pages = []
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://phasewatch") as client:
            for snapshots in ((), (snapshot,), ()):
                exporter.snapshots = snapshots
                pages.append("llm_target_up" in (await client.get("/metrics")).text)
        return pages

    assert asyncio.run(go()) == [False, True, False]


def test_head_is_answered_like_get(snapshot: TargetSnapshot) -> None:
    for path in ("/", "/metrics", *FILES, "/-/healthy", "/-/ready"):
        head, get = ask(Exporter(snapshot), path, "HEAD"), ask(Exporter(snapshot), path)
        assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"]), path


def test_pages_for_people_are_guarded_by_a_content_security_policy() -> None:
    for path in ("/", *FILES):
        headers = ask(Exporter(), path).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == "'none'", path
        assert {policy.pop("base-uri"), policy.pop("form-action")} == {"'none'"}, path
        assert policy == dict.fromkeys(("connect-src", "img-src", "script-src", "style-src"), "'self'"), path
        assert headers["x-content-type-options"] == "nosniff", path


def test_the_landing_page_is_html_that_is_never_cached(snapshot: TargetSnapshot) -> None:
    page = ask(Exporter(snapshot), "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    assert "<bdi>chat</bdi>" in page.text


def test_its_parts_have_their_type_and_are_revalidated() -> None:
    for path, content_type in FILES.items():
        headers = ask(Exporter(), path).headers
        assert (headers["content-type"], headers["cache-control"]) == (content_type, "no-cache"), path


def test_the_landing_page_shows_the_notice_the_probes_and_the_history(snapshot: TargetSnapshot) -> None:
    exporter = Exporter(replace(OLLAMA, last_success=None))
    exporter.notice = "Simulated <servers>."
    page = ask(exporter, "/").text
    assert "Simulated &lt;servers&gt;." in page
    assert "<dt>Newest probe</dt><dd>answered</dd>" in page
    assert 'class="chart"' not in page
    exporter.probed = False
    assert "<dt>Newest probe</dt><dd>off</dd>" in ask(exporter, "/").text
    exporter.snapshots = (snapshot,)
    exporter.history.record(exporter.snapshots, time.monotonic())
    assert 'class="chart"' in ask(exporter, "/").text


def test_every_link_of_the_landing_page_leads_somewhere(snapshot: TargetSnapshot) -> None:
    page = ask(Exporter(snapshot), "/").text
    links = [part.split('"')[0] for part in page.split('href="')[1:]]
    assert {"metrics", "-/healthy", "-/ready", "style.css", "icon.svg"} == set(links)
    assert [ask(Exporter(snapshot), f"/{link}").status_code for link in links] == [200] * len(links)


def test_it_is_always_healthy_and_ready_while_it_serves() -> None:
    exporter = Exporter()
    assert (ask(exporter, "/-/ready").status_code, ask(exporter, "/-/ready").text) == (200, "Ready\n")
    exporter.ready = False
    assert (ask(exporter, "/-/ready").status_code, ask(exporter, "/-/ready").text) == (503, "Not ready\n")
    assert (ask(exporter, "/-/healthy").status_code, ask(exporter, "/-/healthy").text) == (200, "Healthy\n")


def test_an_unknown_path_is_answered_in_plain_text() -> None:
    for path in ("/nothing", "/<script>", "/-/quit", "/../etc/passwd"):
        answer = ask(Exporter(), path)
        assert (answer.status_code, answer.text) == (404, "Not Found.\n"), path
        assert answer.headers["content-type"] == "text/plain; charset=utf-8", path


def test_metrics_are_only_read() -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = ask(Exporter(), "/metrics", method)
        assert (answer.status_code, answer.text) == (405, "Method Not Allowed.\n"), method
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}, method


def test_reloading_is_off_unless_it_was_turned_on() -> None:
    exporter = Exporter()
    answer = ask(exporter, "/-/reload", "POST")
    assert answer.status_code == 403
    assert answer.text == "Reloading over HTTP is off; start with --web.enable-lifecycle.\n"
    assert exporter.reloads == 0


def test_reloading_is_done_by_post() -> None:
    exporter = Exporter()
    answer = ask(exporter, "/-/reload", "POST", enable_lifecycle=True)
    assert (answer.status_code, answer.text, exporter.reloads) == (200, "Reloaded\n", 1)


def test_reloading_is_not_done_by_another_method() -> None:
    for method in ("GET", "HEAD", "PUT"):
        for enable_lifecycle in (True, False):
            exporter = Exporter()
            answer = ask(exporter, "/-/reload", method, enable_lifecycle=enable_lifecycle)
            assert (answer.status_code, answer.headers["allow"], exporter.reloads) == (405, "POST", 0), method
            assert answer.text == (
                "" if method == "HEAD" else "Method Not Allowed. This endpoint requires a POST request.\n"
            ), method


def test_an_invalid_reload_is_answered_with_every_problem() -> None:
    exporter = Exporter()
    exporter.problems = [Problem("targets", "missing"), Problem("window", "too short")]
    answer = ask(exporter, "/-/reload", "POST", enable_lifecycle=True)
    assert answer.status_code == 500
    assert answer.text.splitlines()[1:] == ["targets: missing", "window: too short"]


def test_a_compressed_page_is_a_whole_one() -> None:
    async def compressed(path: str) -> bytes:
        transport = httpx.ASGITransport(create_app(Exporter().view(), enable_lifecycle=False))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://phasewatch") as client,
            client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            return b"".join([chunk async for chunk in answer.aiter_raw()])

    for path, end in (("/metrics", b"\n"), ("/", b"</html>")):
        assert gzip.decompress(asyncio.run(compressed(path))).endswith(end), path


def test_an_invalid_version_gets_the_plain_format(snapshot: TargetSnapshot) -> None:
    for accept in (
        'application/openmetrics-text; version="1.0.0"',
        "application/openmetrics-text;version=x",
        "text/plain;version=1.x",
    ):
        answer = ask(Exporter(snapshot), "/metrics", accept=accept)
        assert (answer.status_code, answer.headers["content-type"]) == (200, TEXT), accept


def test_a_trailing_slash_is_not_redirected(snapshot: TargetSnapshot) -> None:
    for path in ("/metrics/", "/-/healthy/", "/-/reload/", "/style.css/"):
        assert ask(Exporter(snapshot), path).status_code == 404, path
