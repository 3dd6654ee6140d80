"""The landing page in a real browser: what only a browser can tell of it."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.analysis.saturation import SaturationState
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.target import TargetSnapshot
from phasewatch.web.landing.page import REFRESH_SECONDS
from tests.support.live_page import DOWN, HOSTILE, KNOWN, OLLAMA, UP, Shown, eight, recorded, render_html, served
from tests.support.processes import PATIENCE, free_port, needs

pytestmark = needs("chromium")

SIZES = ((1600, 1000), (1000, 800), (390, 844))
WITHOUT_FACTS = replace(UP, name="elsewhere", engines=(replace(KNOWN, ceiling=Ceiling()),))
ABSURD = EngineSnapshot(
    KNOWN.key,
    Phases(1e308, 1e308, 1e308, 1e308),
    load=Load(1e308, 1e308, kv_cache_usage_ratio=1e308),
    ceiling=Ceiling(decode_ceiling_tokens_per_second={"weights": 1e-308}, decode_ceiling_ratio={"weights": 1e308}),
    state=SaturationState.HEALTHY,
)
STRANGE = replace(UP, name=HOSTILE, url=HOSTILE, engines=(replace(KNOWN, key=EngineKey(HOSTILE, HOSTILE)),))
CASES = {
    "one model": (UP,),
    "eight models": eight(),
    "a target down": (UP, DOWN),
    "a hostile name": (STRANGE, replace(DOWN, name=HOSTILE)),
    "no device facts": (WITHOUT_FACTS,),
    "an Ollama": (OLLAMA, UP),
    "absurd numbers": (replace(UP, engines=(ABSURD,)),),
}

OVERFLOWING = """[...document.querySelectorAll('body, .card, .banner, td')]
    .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth)
    .map((element) => `${element.className || element.tagName}: ${element.scrollWidth} in ${element.clientWidth}`)"""


@dataclass
class Visit:
    """A page that is looked at, all that its console said, and every address that was asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def wait(self, seconds: int = REFRESH_SECONDS) -> None:
        """Let time pass for the script."""
        self.page.clock.run_for(1000 * seconds)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def turn(self, *, hidden: bool) -> None:
        """Go to another tab, or come back."""
        self.page.evaluate(
            f"Object.defineProperty(document, 'hidden', {{value: {str(hidden).lower()}, configurable: true}});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    def sleep(self) -> None:
        """Let hours pass in which nothing runs, as when a computer sleeps."""
        self.page.evaluate("(hours) => { const real = Date.now; Date.now = () => real() + hours * 3.6e6 }", 2)

    def hold(self) -> list[Route]:
        """Leave the questions to come without an answer; they are listed as they come."""
        held: list[Route] = []
        self.page.route(self.page.url, lambda route: held.append(route))  # noqa: PLW0108  # what is built in it does not take
        return held

    def question(self, held: list[Route]) -> Route:
        """The first question that is held, once there is one."""
        for _ in range(int(100 * PATIENCE)):
            if held:
                return held.pop(0)
            self.page.wait_for_timeout(10)
        raise AssertionError("no question")

    @property
    def old(self) -> bool:
        """Whether the numbers are shown as old, and a banner says so."""
        return bool(
            self.page.evaluate(
                "document.querySelector('main').classList.contains('old') && !document.getElementById('outage').hidden"
            )
        )

    def complains(self, words: str, times: int) -> None:
        """Wait for the console, which is told later than the page, to have so many lines with these words."""
        for _ in range(int(100 * PATIENCE)):
            if len([line for line in self.said if words in line]) >= times:
                break
            self.page.wait_for_timeout(10)
        assert len([line for line in self.said if words in line]) == times, self.said

    def shows(self, words: str) -> None:
        """Wait for words to be on the page."""
        self.page.get_by_text(words).first.wait_for()


Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens a page, whose time stands still until a test lets it pass."""
    contexts = []

    def open_page(url: str, size: tuple[int, int] = SIZES[0], **options: Any) -> Visit:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        found = Visit(context.new_page())
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("request", lambda request: found.asked.append(request.url))
        if options.get("java_script_enabled", True):
            found.page.clock.install()
        found.page.goto(url)
        return found

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("targets", CASES.values(), ids=CASES.keys())
def test_nothing_overflows_at_any_size_in_any_theme_and_nothing_is_loaded_from_elsewhere(
    targets: tuple[TargetSnapshot, ...], visit: Open
) -> None:
    with served(Shown(targets, recorded(*targets))) as url:
        seen = visit(url)
        seen.wait()
        grounds = set()
        for width, height in SIZES:
            seen.page.set_viewport_size({"width": width, "height": height})
            for scheme in ("light", "dark"):
                seen.page.emulate_media(color_scheme=scheme)
                assert seen.page.evaluate("document.documentElement.scrollWidth") == width
                assert seen.page.evaluate(OVERFLOWING) == []
                grounds.add(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    assert seen.said == []
    assert {asked.startswith(url) for asked in seen.asked} == {True}
    assert {urlsplit(asked).path.removeprefix("/watch") for asked in seen.asked} >= {"/", "/style.css", "/live.js"}


@pytest.mark.parametrize("size", [SIZES[0], SIZES[2]], ids=["desk", "phone"])
def test_the_first_screen_answers_how_the_first_model_does(size: tuple[int, int], visit: Open) -> None:
    with served(Shown((UP, DOWN), recorded(UP), notice="Simulated servers: nothing here was measured.")) as url:
        page = visit(url, size).page
        for selector in (".state", ".fill.prefill", ".fill.decode", ".fill.memory"):
            box = page.locator(selector).first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= size[1], selector


def test_a_refresh_changes_numbers_and_keeps_scroll_position_focus_and_open_details(visit: Open) -> None:
    shown = Shown(eight(), recorded(*eight()))
    with served(shown) as url:
        seen = visit(url, SIZES[2])
        seen.page.locator("summary").nth(2).click()
        seen.page.locator("summary").nth(3).focus()
        seen.page.evaluate("scrollTo(0, 900)")
        faster = replace(KNOWN, phases=replace(KNOWN.phases, decode_tokens_per_second=41.5))
        shown.targets = tuple(
            replace(target, engines=(replace(faster, key=target.engines[0].key, state=target.engines[0].state),))
            for target in eight()
        )
        assert "33.2" in seen.text(".phases")
        seen.wait()
        seen.shows("41.5")
        assert seen.page.evaluate("scrollY") == 900
        assert seen.page.evaluate("[...document.querySelectorAll('summary')].indexOf(document.activeElement)") == 3
        assert seen.page.locator("details[open]").count() == 1
        assert seen.said == []


def test_open_details_stay_open_when_a_model_before_them_disappears(visit: Open) -> None:
    shown = Shown(eight())
    with served(shown) as url:
        seen = visit(url)
        opened = seen.page.locator("details").nth(5)
        opened.locator("summary").click()
        words = opened.inner_text()
        shown.targets = (replace(DOWN, name="chat-0"), *eight()[1:])
        seen.wait()
        seen.shows("chat-0 is down")
        assert seen.page.locator("article").count() == 7
        assert seen.page.locator("details[open]").all_inner_texts() == [words]
        assert seen.page.evaluate("document.activeElement.tagName") == "SUMMARY"
        shown.targets = eight()
        seen.wait()
        seen.page.locator("article").nth(7).wait_for()
        assert seen.page.locator(".banner:visible").count() == 0
        assert seen.page.locator("h3").all_inner_texts() == [f"model-{number}" for number in range(8)]


def test_open_details_and_focus_survive_changes_of_state_and_moved_cards(visit: Open) -> None:
    def show(*states: SaturationState) -> None:
        shown.targets = tuple(
            replace(target, engines=(replace(target.engines[0], state=state),))
            for target, state in zip(eight()[:2], states, strict=True)
        )

    shown = Shown()
    show(SaturationState.HEALTHY, SaturationState.KV_CACHE_FULL)
    with served(shown) as url:
        seen = visit(url)
        opened = seen.page.locator("#models article", has_text="model-1").locator("details")
        opened.locator("summary").click()
        show(SaturationState.HEALTHY, SaturationState.STUCK)
        seen.wait()
        seen.shows("Take the server out of the load balancer")
        shown.targets = shown.targets[::-1]
        seen.wait()
        seen.page.locator("article:first-child", has_text="model-1").wait_for()
        assert opened.evaluate("(found) => found.open && found.firstChild === document.activeElement")
        show(SaturationState.HEALTHY, SaturationState.HEALTHY)
        seen.wait()
        opened.wait_for(state="hidden")
        show(SaturationState.HEALTHY, SaturationState.PREEMPTING)
        seen.wait()
        seen.shows("--watermark")
        assert opened.evaluate("(found) => found.open")


def test_advice_is_replaced_when_the_state_changes(visit: Open) -> None:
    shown = Shown((UP,))
    with served(shown) as url:
        seen = visit(url)
        seen.shows("--gpu-memory-utilization")
        shown.targets = (replace(UP, engines=(replace(KNOWN, state=SaturationState.STUCK),)),)
        seen.wait()
        seen.shows("Take the server out of the load balancer")
        assert seen.page.locator("details").count() == 1


def test_an_unreachable_exporter_is_announced_until_it_is_back(visit: Open) -> None:
    port = free_port()
    shown = Shown((UP,))
    with served(shown, port) as url:
        seen = visit(url)
        moment = seen.text(".as-of time")
    seen.wait()
    seen.shows(f"The exporter gives no answer since {moment}. The numbers below are old.")
    assert seen.page.evaluate("getComputedStyle(document.querySelector('#models')).opacity") != "1"
    shown.targets = (DOWN,)
    with served(shown, port):
        seen.wait()
        seen.shows("embeddings is down")
        assert seen.page.locator("#outage").is_hidden()
        assert seen.page.evaluate("getComputedStyle(document.querySelector('#targets')).opacity") == "1"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"status": 503, "body": "busy"}, "answer 503"),
        ({"status": 200, "body": "<main>Who are you?</main></html>", "content_type": "text/html"}, "not this page"),
    ],
    ids=["an error", "a page to log in"],
)
def test_a_response_other_than_the_page_is_announced(answer: dict[str, Any], text: str, visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        seen.page.route("**/*", lambda route: route.fulfill(**answer))
        seen.wait()
        seen.shows(text)
        assert "33.2" in seen.text(".phases")


def test_no_part_of_a_truncated_or_broken_response_is_shown(visit: Open) -> None:
    good = render_html(replace(UP, engines=(replace(KNOWN, phases=Phases(decode_tokens_per_second=41.5)),)))
    broken = [
        good[: good.index("</tbody>")],
        good.replace('id="targets"', ""),
        good.replace("<time", "<b").replace("</time", "</b"),
        good.replace("data-seconds", "data-none"),
        good.replace(f'data-seconds="{REFRESH_SECONDS}"', 'data-seconds="0"'),
        good.replace("data-version", "data-none"),
    ]
    with served(Shown((UP,))) as url:
        seen = visit(url)
        held = seen.hold()
        for body in broken:
            seen.wait()
            seen.question(held).fulfill(status=200, body=body, content_type="text/html")
            seen.page.locator("#outage").wait_for()
            assert "not the whole of it" in seen.text("#outage")
            assert "33.2" in seen.text(".phases")
            seen.page.evaluate("document.getElementById('outage').hidden = true")
        seen.wait()
        seen.question(held).fulfill(status=200, body=good, content_type="text/html")
        seen.shows("41.5")
        assert not seen.old


def test_a_truncated_first_page_is_completed_after_an_outage(visit: Open) -> None:
    whole = render_html(UP)
    with served(Shown((UP,))) as url:
        seen = visit(url)
        seen.page.route(
            url, lambda route: route.fulfill(body=whole.partition('<p class="as-of"')[0], content_type="text/html")
        )
        seen.page.reload()
        assert seen.page.locator("main > *").count() == 0
        seen.page.unroute_all()
        held = seen.hold()
        seen.wait()
        seen.question(held).abort()
        seen.shows("The exporter gives no answer since this page was opened.")
        seen.wait()
        seen.question(held).fulfill(body=whole, content_type="text/html")
        seen.shows("33.2")


def test_after_the_computer_slept_numbers_are_shown_as_old_at_once(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        moment = seen.text(".as-of time")
        held = seen.hold()
        seen.turn(hidden=True)
        seen.sleep()
        seen.turn(hidden=False)
        assert seen.old
        assert seen.text("#outage") == f"There is no answer since {moment} yet. The numbers below are old."
        seen.question(held).continue_()
        seen.page.locator("#outage").wait_for(state="hidden")
        assert not seen.old


def test_numbers_become_old_while_a_response_is_late_or_the_computer_sleeps(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        held = seen.hold()
        seen.wait()
        late = seen.question(held)
        assert not seen.old
        seen.wait(REFRESH_SECONDS + 2)
        assert seen.old
        late.continue_()
        seen.page.locator("#outage").wait_for(state="hidden")
        seen.wait()
        late = seen.question(held)
        seen.sleep()
        with seen.page.expect_response(url):
            late.fulfill(body=render_html(replace(UP, name="after the sleep")), content_type="text/html")
        seen.shows("after the sleep")
        assert seen.old


def test_a_request_without_a_response_is_aborted_and_repeated(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        seen.page.evaluate(
            """AbortSignal.timeout = (delay) => {  // as it is, but by the time of the test
                const given = new AbortController();
                setTimeout(() => given.abort(), delay);
                return given.signal;
            }"""
        )
        held = seen.hold()
        seen.wait()
        seen.question(held)
        seen.wait(8)
        seen.shows("The exporter gives no answer")
        seen.wait()
        seen.question(held)


def test_there_is_one_request_at_a_time_and_none_while_the_tab_is_hidden(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        held = seen.hold()
        for hidden in (True, False, True, False, True):
            seen.turn(hidden=hidden)
        question = seen.question(held)
        asked = seen.asked.count(url)
        question.fulfill(body=render_html(replace(UP, name="elsewhere")), content_type="text/html")
        seen.shows("elsewhere")
        seen.wait(10 * REFRESH_SECONDS)
        assert (seen.asked.count(url), held) == (asked, [])


def test_an_outage_is_announced_once(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        seen.page.evaluate(
            """window.changes = 0;
            new MutationObserver((found) => { window.changes += found.length })
                .observe(document.getElementById('outage'), {childList: true, characterData: true, subtree: true})"""
        )
        held = seen.hold()
        for _ in range(4):
            seen.wait()
            seen.question(held).abort()
            seen.page.locator("#outage").wait_for()
            seen.page.evaluate("document.getElementById('outage').hidden = true")
        assert seen.page.evaluate("changes") == 1


def test_the_printed_page_is_light_and_keeps_its_bars(visit: Open) -> None:
    with served(Shown((UP,), recorded(UP))) as url:
        page = visit(url).page

        def style(selector: str, name: str) -> str:
            return str(page.locator(selector).first.evaluate(f"(found) => getComputedStyle(found).{name}"))

        grounds = []
        for media, scheme in (("screen", "light"), ("screen", "dark"), ("print", "dark")):
            page.emulate_media(media=media, color_scheme=scheme)  # type: ignore[arg-type]  # words it knows
            grounds.append((style("body", "backgroundColor"), style("body", "color"), style(".bar", "backgroundColor")))
        assert grounds[2] == grounds[0] != grounds[1]
        assert style(":root", "colorScheme") == "light"
        assert (style(".bar", "printColorAdjust"), style(".bar", "borderTopStyle")) == ("exact", "solid")


def test_lines_of_a_chart_and_their_names_differ_by_more_than_hue(visit: Open) -> None:
    with served(Shown((UP,), recorded(UP))) as url:
        page = visit(url).page
        for selector in (".chart path{}", ".key{}"):
            widths = [
                page.locator(selector.format(kind)).first.evaluate(
                    "(found) => { const style = getComputedStyle(found);"
                    " return parseFloat(found.matches('path') ? style.strokeWidth : style.borderBottomWidth) }"
                )
                for kind in (".running", ".waiting")
            ]
            assert widths[0] >= 2 * widths[1] > 0


def test_a_hidden_tab_requests_nothing_until_it_is_shown(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        seen.turn(hidden=True)
        seen.wait(100 * REFRESH_SECONDS)
        assert seen.asked.count(url) == 1
        with seen.page.expect_response(url):
            seen.turn(hidden=False)


def test_a_page_of_another_version_is_reloaded(visit: Open) -> None:
    shown = Shown((UP,))
    with served(shown) as url:
        seen = visit(url)
        shown.status = replace(shown.status, version="9.9.9")
        with seen.page.expect_navigation():
            seen.wait()
        assert seen.text("h1") == "PhaseWatch 9.9.9"


def test_without_scripts_the_page_is_complete_but_not_refreshed(visit: Open) -> None:
    with served(Shown((UP, OLLAMA), recorded(UP))) as url:
        seen = visit(url, java_script_enabled=False)
        assert seen.page.locator("article").count() == 2
        assert seen.page.locator(".chart path").count() == 3
        assert "refreshed" not in seen.text(".as-of")
        assert seen.said == []


def test_reduced_motion_switches_transitions_off(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        page = visit(url, reduced_motion="reduce").page
        duration = "getComputedStyle(document.querySelector('.fill')).transitionDuration"
        assert page.evaluate(duration) == "0s"
        page.emulate_media(reduced_motion="no-preference")
        assert page.evaluate(duration) != "0s"


def test_injected_html_can_neither_run_nor_load_anything(visit: Open) -> None:
    with served(Shown((UP,))) as url:
        seen = visit(url)
        harm = """<img src=x onerror="window.harmed = 1"><img src="http://127.0.0.2:9/"><p style="color: red">"""
        seen.page.evaluate("(harm) => document.body.insertAdjacentHTML('beforeend', harm)", harm)
        seen.page.locator("img").first.evaluate("(image) => image.decode().catch(() => 0)")
        assert seen.page.evaluate("window.harmed") is None
        seen.complains("Content Security Policy", times=3)
