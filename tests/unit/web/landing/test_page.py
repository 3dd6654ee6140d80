from dataclasses import replace

from phasewatch.analysis.samples import EngineKey
from phasewatch.metrics.descriptor import SelfStatus
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.target import TargetSnapshot
from tests.support.live_page import (
    DOWN,
    HOSTILE,
    KNOWN,
    OLLAMA,
    STATUS,
    UP,
    eight,
    render_everything,
    render_html,
)
from tests.support.markup import Element, Markup

SINCE = "2027-01-15 08:00:00 UTC"
INVALID = "The newest configuration is invalid"


def shown(*targets: TargetSnapshot, status: SelfStatus = STATUS, notice: str = "") -> Markup:
    return Markup(render_html(*targets, status=status, notice=notice))


def row(target: TargetSnapshot) -> dict[str, str]:
    """The only row of the table of targets, by column."""
    cells = shown(target).all("td")
    return {cell.attributes["data-head"]: cell.text for cell in cells}


def test_the_row_of_a_target_has_every_column() -> None:
    assert row(UP) == {
        "Target": "chat",
        "State": "up",
        "Backend": "vllm",
        "Address": "http://127.0.0.1:8000",
        "Version": "0.32.0",
        "Failed scrapes": "0",
        "Last error": "",
    }
    assert list(row(UP)) == shown(UP).texts("th")


def test_trouble_is_shown_with_its_reason_and_the_last_answer() -> None:
    cells = row(DOWN)
    assert cells["State"] == f"down, last answer {SINCE}"
    assert cells["Failed scrapes"] == "4"
    assert cells["Last error"] == "connect: cannot connect: Connection refused"


def test_a_target_that_is_down_has_a_banner_at_the_top() -> None:
    banners = shown(UP, DOWN).texts("p", "banner")
    assert banners[1:] == [f"embeddings is down: cannot connect: Connection refused. Last answer {SINCE}."]


def test_the_state_of_a_target_says_why_there_are_no_numbers() -> None:
    for target, state, banners in (
        (replace(DOWN, answered=False, last_success=None), "down", 1),
        (replace(DOWN, answered=False, last_success=None, optional=True), "optional, not there yet", 0),
        (replace(DOWN, optional=True), f"down, last answer {SINCE}", 1),
        (replace(UP, up=None, answered=False, engines=()), "not scraped yet", 0),
        (UP, "up", 0),
    ):
        assert row(target)["State"] == state, state
        assert len([text for text in shown(target).texts("p", "banner") if "is down" in text]) == banners, (
            target,
            state,
        )


def test_a_refused_reload_is_shown() -> None:
    assert INVALID not in render_html(UP)
    assert INVALID in render_html(UP, status=replace(STATUS, reload_successful=False))


def test_a_notice_is_a_banner_and_without_one_there_is_none() -> None:
    assert shown(UP, notice="Simulated <servers>.").texts("p", "banner")[1] == "Simulated <servers>."
    assert shown(UP).texts("p", "banner") == [""]


def test_the_page_shows_its_time_and_how_often_it_is_refreshed() -> None:
    assert shown(UP).texts("p", "as-of") == [f"{SINCE} · refreshed every 3 s"]


def test_without_a_model_the_page_says_so() -> None:
    for targets in ((), (DOWN,), (replace(UP, engines=()),)):
        page = shown(*targets)
        assert "No model is known now" in page.texts("p", "note")[0], targets
        assert page.all("article") == [], targets


def test_the_fewer_models_there_are_the_more_room_each_gets() -> None:
    for count, classes in ((1, {"cards", "single"}), (4, {"cards"}), (5, {"cards", "many"})):
        page = shown(*eight()[:count])
        assert len(page.all("article")) == count, count
        assert page.all("div", "cards")[0].classes == classes, count


def test_models_are_in_the_order_of_the_configuration() -> None:
    assert shown(*eight()).texts("h3") == [f"model-{number}" for number in range(8)]


def test_models_of_a_target_are_sorted_by_name_and_engine() -> None:
    keys = [EngineKey("b", "10"), EngineKey("b", "2"), EngineKey("c", None), EngineKey("a", "0")]
    page = shown(replace(UP, engines=tuple(replace(KNOWN, key=key) for key in keys)))
    assert page.texts("h3") == ["a", "b", "b", "c"]
    assert page.texts("p", "from") == ["chat, engine 0", "chat, engine 2", "chat, engine 10", "chat"]


def test_a_model_of_an_ollama_has_one_card_for_its_speed_and_its_memory() -> None:
    page = shown(OLLAMA)
    assert page.texts("h3") == ["qwen3:14b"]
    assert page.figures()["In memory"] == "12.40 GB"


def test_models_on_disk_alone_are_listed_and_remote_ones_are_not() -> None:
    models = (*OLLAMA.models, ModelSnapshot("cloud", loaded=None))
    assert "On disk, not in memory: llama3.1:8b (workstation)." in shown(replace(OLLAMA, models=models)).texts(
        "p", "note"
    )
    assert "On disk" not in render_html(UP)


def test_hostile_names_are_text_in_every_place() -> None:
    page = Markup(render_everything())
    assert "img" not in {element.tag for element in page.elements}
    assert [script.attributes for script in page.all("script")] == [{"src": "live.js", "defer": ""}]
    cells = page.texts("td")
    assert cells.count(HOSTILE) == 2 * 4 - 1
    assert f"parse: {HOSTILE}" in cells
    assert HOSTILE in page.texts("h3")


def test_the_page_keeps_to_its_content_security_policy() -> None:
    for element in Markup(render_everything()).elements:
        assert element.tag not in {"style", "iframe", "form", "object", "base"}
        assert not {name for name in element.attributes if name == "style" or name.startswith("on")}
        assert not leaves(element)


def leaves(element: Element) -> bool:
    """Whether it points away, or to the root, which is somebody else's behind a reverse proxy."""
    target = element.attributes.get("href") or element.attributes.get("src") or ""
    return target.startswith(("http:", "https:", "//", "/", "data:", "javascript:"))


def test_every_id_is_unique() -> None:
    named = [element.attributes["id"] for element in Markup(render_everything()).elements if "id" in element.attributes]
    assert len(named) == len(set(named))


def test_every_reference_to_an_id_leads_to_an_element() -> None:
    elements = Markup(render_everything()).elements
    named = {element.attributes.get("id") for element in elements}
    assert {
        element.attributes["aria-labelledby"] for element in elements if "aria-labelledby" in element.attributes
    } <= named


def test_the_page_has_its_language_and_landmarks() -> None:
    page = shown(UP)
    assert page.all("html")[0].attributes["lang"] == "en"
    assert {"header", "nav", "main", "h1"} <= {element.tag for element in page.elements}
    assert {section.attributes["aria-labelledby"] for section in page.all("section")} == {
        "models-title",
        "targets-title",
    }
