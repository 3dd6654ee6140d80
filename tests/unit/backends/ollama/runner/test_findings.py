"""What is said of an Ollama's children."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from phasewatch.backends.ollama.runner.children import ProcessListing
from phasewatch.backends.ollama.runner.findings import RunnerLook, Topic, list_findings, may_have_children_here
from phasewatch.config.settings import OllamaSettings
from tests.support.ollama_facts import A, B, loaded
from tests.support.runner_looks import LAYERS, OTHER, child, look
from tests.support.targets import new_target

PROC: Final = Path("/proc")
MLX: Final = loaded(details=replace(loaded().details, format="safetensors"))


def find(seen: RunnerLook, *, found_before: bool = False) -> dict[Topic, str]:
    return list_findings(seen, PROC, found_before=found_before)


def test_children_that_answer_are_counted_by_whether_they_have_metrics() -> None:
    assert find(look(child(5), metrics=True)) == {
        Topic.EXACT: "found 1 llama-server process with /metrics: users' requests are measured exactly"
    }
    (said,) = find(look(child(5), metrics=False)).items()
    assert said[0] is Topic.ESTIMATED
    assert "LLAMA_ARG_ENDPOINT_METRICS=1" in said[1]
    two = look(child(5), child(6, LAYERS[B]), models=(loaded(), loaded(*OTHER)), metrics=True)
    assert find(two)[Topic.EXACT].startswith("found 2 llama-server processes with /metrics")


def test_a_child_that_was_not_asked_yet_is_not_spoken_of() -> None:
    assert find(look(child(5))) == {}


def test_nothing_is_missing_while_no_model_is_in_memory() -> None:
    for listing in (ProcessListing(), ProcessListing(readable=False), ProcessListing(hidden=True)):
        assert find(look(models=(), listing=listing)) == {}, listing
    assert find(look(models=(), version=(0, 24, 0))) == {}


def test_each_reason_why_no_child_is_seen_has_its_finding() -> None:
    rows: list[tuple[Topic, dict[str, Any]]] = [
        (Topic.TOO_OLD, {"version": (0, 29, 9)}),
        (Topic.MLX, {"models": (MLX,)}),
        (Topic.NO_PROCESS_LIST, {"listing": ProcessListing(readable=False)}),
        (Topic.HIDDEN, {"listing": ProcessListing(hidden=True)}),
        (Topic.ELSEWHERE, {}),
        (Topic.ELSEWHERE, {"version": None}),
    ]
    for topic, facts in rows:
        assert find(look(**facts)).keys() == {topic}, facts


def test_a_model_of_unknown_weights_is_not_missed() -> None:
    assert find(look(layers={})) == {}


def test_once_a_child_was_found_nothing_hides_them_all() -> None:
    for listing in (ProcessListing(), ProcessListing(readable=False), ProcessListing(hidden=True)):
        assert find(look(listing=listing), found_before=True) == {}, listing


def test_what_cannot_be_told_apart_is_said() -> None:
    rivals = find(look(child(5), child(6, parent=41)))
    assert rivals.keys() == {Topic.SEVERAL_OLLAMAS}
    shared = find(look(child(5), models=(loaded(), loaded(*OTHER)), layers={A: LAYERS[A], B: LAYERS[A]}))
    assert shared.keys() == {Topic.SHARED_WEIGHTS}
    assert shared[Topic.SHARED_WEIGHTS].startswith("a:latest and b:latest have")


def test_a_finding_names_the_place_where_processes_were_looked_for() -> None:
    seen = look(listing=ProcessListing(readable=False))
    assert "/host/proc" in list_findings(seen, Path("/host/proc"), found_before=False)[Topic.NO_PROCESS_LIST]


def test_children_can_be_here_if_the_url_is_or_if_their_processes_are() -> None:
    mounted = OllamaSettings(runners="auto", procfs=Path("/host/proc"))
    for url, here in (("http://127.0.0.1:11434", True), ("http://[::1]:1", True), ("http://gpu-1:11434", False)):
        target = new_target("o", "ollama", url)
        assert may_have_children_here(target) is here, url
        assert may_have_children_here(replace(target, ollama=mounted)), url
