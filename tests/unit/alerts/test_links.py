"""Links of alerts are made from their names and from short hints."""

import pytest

from alerts.generate.links import BOARDS, build_dashboard_path, build_runbook_url, find_missing_runbooks
from tests.support.paths import ROOT


def test_a_runbook_is_found_by_the_name_of_its_alert() -> None:
    assert build_runbook_url("LLMOne") == "https://github.com/phasewatch/phasewatch/blob/main/docs/runbooks/LLMOne.md"


def test_a_board_is_given_the_labels_of_the_alert() -> None:
    for hint, path in {
        "exporter": "/d/phasewatch-exporter",
        "overview": "/d/phasewatch-overview?var-target={{ $labels.target | urlquery }}",
        "exporter (target)": "/d/phasewatch-exporter?var-target={{ $labels.target | urlquery }}",
        "ollama": (
            "/d/phasewatch-ollama?var-target={{ $labels.target | urlquery }}"
            "&var-model_name={{ $labels.model_name | urlquery }}"
        ),
        "phases (target, engine?)": (
            "/d/phasewatch-phases?var-target={{ $labels.target | urlquery }}"
            "{{ with $labels.engine }}&var-engine={{ . | urlquery }}{{ end }}"
        ),
    }.items():
        assert build_dashboard_path(hint) == path


@pytest.mark.parametrize("hint", ["phase", "", "phases(target)", "phases ()x", "/d/phasewatch-phases"])
def test_a_board_that_does_not_exist_is_refused_with_those_that_do(hint: str) -> None:
    with pytest.raises(ValueError, match=f"expected one of {', '.join(BOARDS)}") as caught:
        build_dashboard_path(hint)
    assert str(caught.value).endswith(f"found {hint!r}")


def test_an_alert_without_a_runbook_is_found() -> None:
    rules = [{"alert": "LLMWatchdog"}, {"alert": "LLMNone"}, {"record": "one"}]
    (problem,) = find_missing_runbooks(rules, ROOT / "docs" / "runbooks")
    assert problem.path == "LLMNone"
    assert problem.message.endswith("docs/runbooks/LLMNone.md")
