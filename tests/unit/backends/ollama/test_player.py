"""A recorded Ollama is played like a live one: each process has its own window, and what is not known is absent."""

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from phasewatch.base.errors import RecordingError
from tests.support.fake_procfs import LAYER, OLLAMA_PID, OTHER_LAYER, build_argv
from tests.support.ollama_facts import A, B
from tests.support.pages import Metrics, replayed, value, values
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer

MODELS: Final = {"a:latest": (A, LAYER), "b:latest": (B, OTHER_LAYER)}
BUSY: Final = ScriptedLlamaServer((Job(0.0, 0.5, 4000, 0.05),))
"""20 tokens per second."""
FASTER: Final = ScriptedLlamaServer((Job(0.0, 0.5, 8000, 0.02),))

RUNNING: Final = "llm_requests_running"
THROUGHPUT: Final = "llm_decode_throughput_tokens_per_second"


def answer(time: float, body: str | bytes, status: int = 200) -> dict[str, Any]:
    return {"t": time, "took": 0.001, "status": status, "body": body if isinstance(body, str) else body.decode()}


def child(time: float, server: ScriptedLlamaServer = BUSY, pid: int = 50, layer: str = LAYER) -> dict[str, Any]:
    """A child as it stands on a line."""
    argv = build_argv(layer, 42000 + pid, 8192)
    answers = {"metrics": answer(time, server.render_page(time)), "slots": answer(time, server.render_slots(time))}
    return {"pid": pid, "parent": OLLAMA_PID, "argv": argv, **answers}


def line(time: float, *children: Any, models: tuple[str, ...] = ("a:latest",)) -> dict[str, Any]:
    entries = [
        {"name": name, "digest": MODELS[name][0], "size": 100, "size_vram": 0, "context_length": 4096}
        for name in models
    ]
    ps = answer(time, json.dumps({"models": entries}))
    return {"kind": "scrape", "t": time, "took": 0.01, "ps": ps, "children": list(children)}


def play(folder: Path, *lines: Mapping[str, Any], **changes: Any) -> list[Metrics]:
    """What is shown after each line."""
    tags = [{"name": name, "digest": digest, "size": 100, "details": {}} for name, (digest, _) in MODELS.items()]
    show = {name: {"modelfile": f"FROM /m/blobs/{layer}\n"} for name, (_, layer) in MODELS.items()}
    header = {"kind": "header", "engine": "ollama", "version": "0.33.0", "tags": {"models": tags}, "show": show}
    with lzma.open(folder / "r.jsonl.xz", "wt") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in ({**header, **changes}, *lines))
    return [metrics for _, metrics in replayed("r", folder=folder)]


def test_each_model_has_the_figures_of_its_own_child(tmp_path: Path) -> None:
    both = ("a:latest", "b:latest")
    shown = play(
        tmp_path,
        *(
            line(time, child(time, FASTER, 51, OTHER_LAYER), child(time), models=both)
            for time in (1.0, 2.0, 3.0, 4.0, 5.0)
        ),
    )
    assert value(shown[-1], THROUGHPUT, model_name="a:latest") == pytest.approx(20.0, rel=0.01)
    assert value(shown[-1], THROUGHPUT, model_name="b:latest") == pytest.approx(50.0, rel=0.01)


def test_another_process_of_a_model_begins_a_window_of_its_own(tmp_path: Path) -> None:
    before = [line(time, child(time)) for time in (1.0, 2.0, 3.0)]
    after = [line(time, child(time, FASTER, pid=51)) for time in (4.0, 5.0)]
    shown = play(tmp_path, *before, *after)
    assert value(shown[2], THROUGHPUT) == pytest.approx(20.0, rel=0.01)
    assert value(shown[3], THROUGHPUT) is None
    assert value(shown[4], THROUGHPUT) == pytest.approx(50.0, rel=0.01)


def test_a_model_whose_child_is_gone_is_in_memory_and_has_no_figures(tmp_path: Path) -> None:
    shown = play(tmp_path, line(1.0, child(1.0)), line(2.0, child(2.0)), line(3.0))
    assert values(shown[1], RUNNING) == [1.0]
    assert values(shown[2], RUNNING) == values(shown[2], THROUGHPUT) == []
    assert value(shown[2], "llm_model_loaded", model_name="a:latest") == 1


def test_a_child_that_does_not_answer_has_no_figures_and_keeps_its_window(tmp_path: Path) -> None:
    timeout = {"t": 3.0, "took": 2.0, "error": "timeout"}
    for silent in ("metrics", "slots"):
        lines = [line(time, child(time)) for time in (1.0, 2.0)]
        shown = play(
            tmp_path, *lines, line(3.0, {**child(3.0), silent: timeout}), line(6.0, child(6.0)), line(7.0, child(7.0))
        )
        assert values(shown[2], RUNNING) == values(shown[2], THROUGHPUT) == [], silent
        assert value(shown[3], THROUGHPUT) == pytest.approx(20.0, rel=0.01)


def test_a_list_of_models_that_fails_is_a_target_that_is_down(tmp_path: Path) -> None:
    failures: list[dict[str, Any]] = [
        {"t": 3.0, "took": 0.0, "error": "connect"},
        answer(3.0, '{"models": []}', status=500),
        answer(3.0, "no json"),
        answer(3.0, '{"models": 3}'),
    ]
    for failure in failures:
        lines = [line(time, child(time)) for time in (1.0, 2.0)]
        shown = play(tmp_path, *lines, {**line(3.0, child(3.0)), "ps": failure}, line(4.0, child(4.0)))
        assert [value(metrics, "llm_target_up") for metrics in shown] == [1, 1, 0, 1], failure
        assert values(shown[2], RUNNING) == []
        assert value(shown[3], RUNNING) == 1


def test_what_waits_is_absent_whether_or_not_the_page_says_0(tmp_path: Path) -> None:
    disabled = answer(1.0, "", status=501)
    for parts in ({}, {"metrics": disabled}):
        shown = play(tmp_path, *(line(time, {**child(time), **parts}) for time in (1.0, 2.0)))
        assert value(shown[-1], RUNNING) == 1
        assert values(shown[-1], "llm_requests_waiting") == []


def test_without_its_children_an_ollama_is_its_models(tmp_path: Path) -> None:
    for changes in ({}, {"show": None}, {"tags": None}, {"tags": {"models": 3}, "show": []}):
        lines = [{key: part for key, part in line(time).items() if key != "children"} for time in (1.0, 2.0)]
        shown = play(tmp_path, *lines, **changes)
        assert value(shown[-1], "llm_model_loaded", model_name="a:latest") == 1, changes
        assert values(shown[-1], "llm_measurement_source") == []


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {"pid": "50", "parent": 1, "argv": []},
        {"pid": 50, "argv": []},
        {"pid": 50, "parent": 1, "argv": "llama-server"},
        {**child(1.0), "metrics": {"status": "ok"}},
        {**child(1.0), "slots": None},
    ],
)
def test_a_child_that_is_none_is_said_to_be_a_fault_of_the_recording(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(RecordingError):
        play(tmp_path, line(1.0, entry))


def test_another_program_among_the_children_is_passed_over(tmp_path: Path) -> None:
    other = {**child(1.0, pid=60), "argv": ["/usr/bin/python3", "llama-server"]}
    assert values(play(tmp_path, line(1.0, other))[-1], RUNNING) == []
