"""The pages have the fields and names of recorded ones, and nothing else."""

from typing import Any

import pytest

from phasewatch.demo.llamacpp.counters import Counters
from phasewatch.demo.llamacpp.page import build_model_list, build_props, build_slots, render_metrics
from phasewatch.demo.llamacpp.server import LLAMA_SETTINGS
from phasewatch.demo.llamacpp.slot_view import SlotView
from tests.support.simulated_llamacpp import RECORDED_PAGES as RECORDED

DECODING = SlotView(task=7, is_processing=True, held=181, processed=59, cached=1, decoded=121, limit=250)
PREFILLING = SlotView(task=7, is_processing=True, held=1024, processed=512, limit=4)
ENDED = SlotView(task=7, held=309, limit=250, has_next=False)


def describe(value: Any) -> Any:
    """A value with each number, text and truth value replaced by its type."""
    if isinstance(value, dict):
        return {key: describe(part) for key, part in value.items()}
    if isinstance(value, list):
        return [describe(part) for part in value]
    return type(value)


def select_lines(page: str, *, comments: bool) -> list[str]:
    return [line if comments else line.split(" ")[0] for line in page.splitlines() if line.startswith("#") is comments]


def test_the_metrics_page_has_the_lines_of_a_recorded_one_in_its_order() -> None:
    page = render_metrics(Counters(), (0.0, 0.0), processing=0, deferred=0)
    assert page == RECORDED["fresh"]["metrics"]
    busy = render_metrics(Counters(1, 2, 3.5, 4, 5.5, 6, 7, 8), (9.0, 10.0), processing=1, deferred=2)
    for comments in (True, False):
        assert select_lines(busy, comments=comments) == select_lines(RECORDED["busy"]["metrics"], comments=comments)


def test_numbers_have_six_significant_digits() -> None:
    counters = Counters(
        prompt_tokens=100_002_345, predicted_tokens=1_000_000, prompt_seconds=2.860071, predicted_seconds=2_222_345.6
    )
    page = render_metrics(counters, (665.97812, 0.0), processing=0, deferred=0).splitlines()
    for line in (
        "llamacpp:prompt_tokens_total 1.00002e+08",
        "llamacpp:tokens_predicted_total 1e+06",
        "llamacpp:prompt_seconds_total 2.86007",
        "llamacpp:tokens_predicted_seconds_total 2.22235e+06",
        "llamacpp:prompt_tokens_seconds 665.978",
    ):
        assert line in page, line


def test_busy_slots_per_decode_is_a_mean_since_the_start() -> None:
    page = render_metrics(Counters(decodes=43, busy_slots=85), (0.0, 0.0), processing=0, deferred=0)
    assert "llamacpp:n_busy_slots_per_decode 1.97674\n" in page


@pytest.mark.parametrize(
    ("view", "recorded"),
    [
        (SlotView(), RECORDED["fresh"]["slots"][0]),
        (DECODING, RECORDED["busy"]["slots"][0]),
        (PREFILLING, RECORDED["prefill"]["slots"][1]),
        (ENDED, RECORDED["ended"]["slots"][0]),
    ],
)
def test_a_slot_has_the_fields_of_a_recorded_one_and_its_numbers(view: SlotView, recorded: dict[str, Any]) -> None:
    (slot,) = build_slots([view], LLAMA_SETTINGS)
    assert describe(slot) == describe(recorded)
    assert list(slot) == list(recorded)
    names = ("is_processing", "n_prompt_tokens", "n_prompt_tokens_processed", "n_prompt_tokens_cache")
    assert [slot.get(name) for name in names] == [recorded.get(name) for name in names]
    for (token,) in [slot["next_token"]] if view.task is not None else []:
        numbers = {key: value for key, value in recorded["next_token"][0].items() if key != "has_new_line"}
        assert token == {**numbers, "has_new_line": False}
        assert slot["params"] == {**recorded["params"], "ignore_eos": False}


def test_props_and_models_have_the_fields_of_recorded_ones() -> None:
    props = build_props(LLAMA_SETTINGS, is_sleeping=False)
    assert describe(props) == describe(RECORDED["props"])
    assert list(props) == list(RECORDED["props"])
    models = build_model_list(LLAMA_SETTINGS, 1_796_083_628)
    assert describe(models) == describe(RECORDED["models"])
    meta = models["data"][0]["meta"]
    assert (meta["size"], meta["n_params"]) == (LLAMA_SETTINGS.weight_bytes, LLAMA_SETTINGS.parameters)
    assert (meta["n_embd"], meta["n_vocab"]) == (LLAMA_SETTINGS.width, LLAMA_SETTINGS.vocabulary)
    assert (meta["n_ctx"], meta["n_ctx_train"]) == (LLAMA_SETTINGS.slot_context, LLAMA_SETTINGS.train_context)
