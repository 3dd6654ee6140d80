"""Objectives: what a file of them may say, and the rules that they become."""

import re
from pathlib import Path
from typing import Final

import pytest

from alerts.generate.slo import BOUNDS, OBJECTIVES, Objective, read_objectives, render_rules
from phasewatch.base.errors import ConfigError


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(5.0, ("5", "5.0")), (2.5, ("2.5",)), (0.2, ("0.2",)), (10.0, ("10", "10.0"))],
)
def test_a_bound_is_matched_however_it_is_written(seconds: float, written: tuple[str, ...]) -> None:
    objective = Objective(
        name="x", title="x", histograms=["time_to_first_token_seconds"], seconds=seconds, objective=0.95, minimum=1
    )
    (pattern,) = set(re.findall(r'le=~"([^"]+)"', render_rules([objective])))
    tried = ("5", "5.0", "2.5", "0.2", "10", "10.0", "50", "5.05", "25", "2x5", "100")
    assert tuple(text for text in tried if re.fullmatch(pattern, text)) == written


GOOD: Final = (
    "{name: first_token, title: x, histograms: [time_to_first_token_seconds], seconds: 5, objective: 0.95, minimum: 9}"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "no valid YAML"),
        ("objectives: []", "objectives: expected at least one entry"),
        (f"objectives: [{GOOD}, {GOOD}]", "objectives[1].name: first_token is there twice; give each its own name"),
        (f"objectives: [{GOOD.replace('seconds: 5', 'seconds: 3')}]", "objectives[0].seconds: expected an edge of"),
        (f"objectives: [{GOOD.replace('0.95', '0.9')}]", "objectives[0].objective: expected 0.94 or more, found 0.9"),
        (f"objectives: [{GOOD.replace('0.95', '1.0')}]", "objectives[0].objective: expected 0.9999 or less"),
        (f"objectives: [{GOOD.replace('0.95', 'most')}]", "objectives[0].objective: expected a number"),
        (
            f"objectives: [{GOOD.replace('first_token,', 'First token,')}]",
            "objectives[0].name: expected lower-case words",
        ),
        (f"objectives: [{GOOD.replace('title: x', 'title: 2x')}]", "objectives[0].title: expected lower-case words"),
        (
            f"objectives: [{GOOD.replace('[time', '[vllm:time')}]",
            "objectives[0].histograms[0]: expected a name without",
        ),
        (f"objectives: [{GOOD.replace('title', 'titel')}]", "objectives[0].titel: unknown key; did you mean title?"),
        (f"objectives: [{GOOD.replace('minimum: 9', 'minimum: 0')}]", "objectives[0].minimum: expected 1 or more"),
        (
            f"objectives: [{GOOD.replace('time_to_first_token_s', 'e2e_s')}]",
            "objectives[0].histograms: expected one of",
        ),
        (f"objectives: [{GOOD}]\nobjectives: [{GOOD}]", "objectives: given twice"),
    ],
)
def test_a_wrong_objective_is_reported_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "objectives.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_objectives(path)
    assert problem in str(caught.value)


def test_a_server_with_buckets_of_its_own_may_have_any_edge(tmp_path: Path) -> None:
    path = tmp_path / "objectives.yml"
    path.write_text(f"objectives: [{GOOD.replace('seconds: 5', 'seconds: 3, custom_edges: true')}]")
    (objective,) = read_objectives(path)
    assert objective.seconds == 3


def test_the_edges_that_the_file_lists_are_those_of_vllm() -> None:
    comment = " ".join(OBJECTIVES.read_text(encoding="utf-8").replace("\n#", "").split())
    listing = re.search(r"for the time to first token, (.*?); for inter-token latency (.*?)[.] A server", comment)
    assert listing
    bounds = [tuple(float(number) for number in re.findall(r"\d+(?:[.]\d+)?", text)) for text in listing.groups()]
    assert bounds == [BOUNDS["time_to_first_token_seconds"], BOUNDS["inter_token_latency_seconds"]]
