import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import pytest

from phasewatch.advice import ADVICE
from phasewatch.ceiling import Ceiling
from phasewatch.errors import Reason
from phasewatch.health import Trouble
from phasewatch.latency import Latencies, Latency
from phasewatch.load import Load
from phasewatch.metric import SelfStatus
from phasewatch.ollama.record import ProbeRecord
from phasewatch.phases import Phases
from phasewatch.quantiles import Quantile
from phasewatch.samples import EngineKey
from phasewatch.saturation import State
from phasewatch.snapshot import EngineReading, ModelReading, ServerFacts, TargetSnapshot
from phasewatch.web.landing import STYLE, page

STATUS = SelfStatus("1.2.3", reload_successful=True, reload_success_time=0.0, scrapes_missed=0)
DASH = "\N{EN DASH}"
HOSTILE = """<script>alert('x')</script>"><img src=x onerror=alert(1)>&amp;"""

UNKNOWN = EngineReading(EngineKey("tiny", "0"), state=State.IDLE)
UP = TargetSnapshot(
    name="chat",
    backend="vllm",
    url="http://127.0.0.1:8000",
    optional=False,
    answered=True,
    up=True,
    trouble=None,
    errors=dict.fromkeys(Reason, 0),
    scrape_seconds=0.01,
    last_success=1_800_000_000.0,
    facts=ServerFacts("0.32.0"),
    engines=(UNKNOWN,),
)
DOWN = replace(
    UP,
    up=False,
    trouble=Trouble(5.0, 3, Reason.CONNECT, "cannot connect: Connection refused"),
    errors={**UP.errors, Reason.CONNECT: 3, Reason.TIMEOUT: 1},
    engines=(),
    facts=ServerFacts(),
)


class Cells(HTMLParser):
    """The rows of all tables, and every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr" or (tag == "thead" and not self._open):
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data


def targets_row(*targets: TargetSnapshot) -> list[str]:
    return Cells(page(STATUS, targets)).rows[1]


def numbers(engine: EngineReading) -> dict[str, str]:
    """The numbers of an engine by column."""
    rows = Cells(page(STATUS, [replace(UP, engines=(engine,))])).rows
    return dict(zip(rows[-2], rows[-1], strict=True))


def test_a_target_is_shown_with_what_is_known_of_it() -> None:
    assert targets_row(UP) == ["chat", "vllm", "http://127.0.0.1:8000", "up", "0.32.0", "0", ""]


def test_trouble_is_shown_with_its_reason_and_the_last_answer() -> None:
    assert targets_row(DOWN) == [
        "chat",
        "vllm",
        "http://127.0.0.1:8000",
        "down, last answer 2027-01-15 08:00:00 UTC",
        "",
        "4",
        "connect: cannot connect: Connection refused",
    ]
    assert 'class="down"' in page(STATUS, [DOWN])


@pytest.mark.parametrize(
    ("target", "state"),
    [
        (replace(DOWN, answered=False, last_success=None), "down"),
        (replace(DOWN, answered=False, last_success=None, optional=True), "optional, not there yet"),
        (replace(DOWN, optional=True), "down, last answer 2027-01-15 08:00:00 UTC"),
        (replace(UP, up=None, answered=False, engines=()), "not scraped yet"),
    ],
)
def test_the_state_tells_why_there_are_no_numbers(target: TargetSnapshot, state: str) -> None:
    assert targets_row(target)[3] == state


def test_a_refused_reload_is_shown() -> None:
    warning = "The newest configuration is invalid"
    assert warning not in page(STATUS, [])
    assert warning in page(replace(STATUS, reload_successful=False), [])


def test_no_target_and_no_engine_is_a_page_too() -> None:
    assert len(Cells(page(STATUS, [])).rows) == 1
    assert "<h2>Models</h2>" not in page(STATUS, [DOWN])


def test_unknown_numbers_are_dashes() -> None:
    assert numbers(UNKNOWN) == {
        "target": "chat",
        "model": "tiny",
        "engine": "0",
        "state": "Idle",
        "prefill, one request (tok/s)": DASH,
        "prefill, server (tok/s)": DASH,
        "decode, one stream (tok/s)": DASH,
        "decode, server (tok/s)": DASH,
        "decode of its ceiling (%)": DASH,
        "memory bandwidth used (%)": DASH,
        "first token, p50 (s)": DASH,
        "inter-token, p99 (s)": DASH,
        "running": DASH,
        "waiting": DASH,
        "KV cache (%)": DASH,
        "no token for (s)": DASH,
    }


def test_known_numbers_stand_in_their_columns() -> None:
    reading = EngineReading(
        EngineKey("tiny", "1"),
        Phases(
            prefill_tokens_per_second=12345.67,
            prefill_throughput_tokens_per_second=2.0,
            decode_tokens_per_second=3.04,
            decode_throughput_tokens_per_second=0.0,
        ),
        Latencies(
            time_to_first_token=Latency(0.1, ((0.5, Quantile(0.0254, 0.02, 0.04)), (0.99, Quantile(9.0, 8.0, 10.0)))),
            inter_token=Latency(0.1, ((0.5, Quantile(9.0, 8.0, 10.0)), (0.99, Quantile(0.0712, 0.05, 0.075)))),
        ),
        Load(requests_running=1234.0, requests_waiting=0.0, kv_cache_usage_ratio=0.256),
        Ceiling(
            decode_ceiling_ratio={"weights": 0.5, "read": 0.614},
            memory_bandwidth_utilization_ratio={"engine": 0.9, "derived": 1.05},
        ),
        1.25,
        State.KV_CACHE_FULL,
        asleep=False,
    )
    assert list(numbers(reading).values()) == [
        "chat", "tiny", "1", "KV cache full",
        "12,345.7", "2.0", "3.0", "0.0", "61", "105", "0.025", "0.071", "1,234", "0", "26", "1.2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("quantile", "shown"),
    [
        (Quantile(0.01, 0.0, 0.01), "≤ 0.01"),
        (Quantile(80.0, 80.0, None), "≥ 80"),
        (Quantile(0.015, 0.01, 0.02), "0.015"),
    ],
)
def test_a_quantile_in_an_outer_bucket_is_shown_as_the_bound_it_is(quantile: Quantile, shown: str) -> None:
    latencies = Latencies(
        time_to_first_token=Latency(0.1, ((0.5, quantile),)), inter_token=Latency(0.1, ((0.99, quantile),))
    )
    columns = numbers(replace(UNKNOWN, latencies=latencies))
    assert (columns["first token, p50 (s)"], columns["inter-token, p99 (s)"]) == (shown, shown)


def test_models_in_memory_are_shown_and_others_are_not() -> None:
    forever = ModelReading(
        "llama:8b", loaded=1.0, bytes=5.5e9, gpu_ratio=0.75, context_length_tokens=4096.0, expiry=11_018_500_000.0,
        probe=ProbeRecord(probes=3, success=True),
    )  # fmt: skip
    soon = ModelReading("qwen", loaded=1.0, expiry=1_800_000_000.0, probe=ProbeRecord(probes=1, success=False))
    rows = Cells(page(STATUS, [replace(UP, engines=(), models=(forever, soon, ModelReading("cold", loaded=0.0)))])).rows
    assert rows[-2:] == [
        ["chat", "llama:8b", "5.50", "75", "4,096", "never", "3", "answered"],
        ["chat", "qwen", DASH, DASH, DASH, "2027-01-15 08:00:00 UTC", "1", "failed"],
    ]


def test_hostile_names_are_text_wherever_they_stand() -> None:
    hostile = replace(
        UP,
        name=HOSTILE,
        backend=HOSTILE,
        url=HOSTILE,
        facts=ServerFacts(HOSTILE),
        engines=(replace(UNKNOWN, key=EngineKey(HOSTILE, HOSTILE)),),
        models=(ModelReading(HOSTILE, loaded=1.0),),
    )
    failed = replace(hostile, up=False, trouble=Trouble(0.0, 1, Reason.PARSE, HOSTILE), engines=(), models=())
    text = page(replace(STATUS, version=HOSTILE), [hostile, failed])
    cells = Cells(text)
    assert {tag for tag, _ in cells.tags}.isdisjoint({"script", "img"})
    shown = [cell for row in cells.rows for cell in row]
    assert shown.count(HOSTILE) == 4 + 4 + 3 + 2
    assert f"parse: {HOSTILE}" in shown


def test_the_page_keeps_to_its_content_security_policy() -> None:
    text = page(replace(STATUS, reload_successful=False), [UP, DOWN])
    for tag, attributes in Cells(text).tags:
        assert tag not in {"script", "style", "img", "iframe", "form"}
        assert not {name for name in attributes if name == "style" or name.startswith("on")}
        assert not (attributes.get("href") or "").startswith(("http:", "https:", "//", "/", "data:", "javascript:"))
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_every_class_of_the_page_has_a_style() -> None:
    text = page(replace(STATUS, reload_successful=False), [UP, DOWN, replace(UP, up=None)])
    classes = {name for _, attributes in Cells(text).tags for name in (attributes.get("class") or "").split()}
    assert {"up", "down", "unknown", "number", "error", "scroll"} == classes
    assert classes <= set(re.findall(r"\.([a-z]+)", STYLE))


def test_a_state_that_hurts_is_explained_once_with_what_to_change() -> None:
    hurt = replace(UNKNOWN, state=State.PREEMPTING)
    text = page(STATUS, [replace(UP, engines=(hurt, hurt, UNKNOWN))])
    assert text.count(f"<h2>{ADVICE[State.PREEMPTING].title}</h2>") == 1
    assert all(escape(line) in text for line in ADVICE[State.PREEMPTING].change)
    assert ADVICE[State.IDLE].meaning not in text
