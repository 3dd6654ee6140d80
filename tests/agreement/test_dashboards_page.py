"""docs/dashboards.md lists what the files in dashboards/ have, and nothing else."""

import re
from typing import Final

import yaml

from dashboards.generate.states import STATES
from phasewatch.analysis.saturation import SaturationState
from tests.support.dashboard_lint import load_dashboards
from tests.support.markdown import code, every_code, page, tables
from tests.support.paths import DASHBOARDS, ROOT

PAGE: Final = page("docs/dashboards.md")


def rows(*head: str) -> list[list[str]]:
    matching = [cells for _, cells in tables(PAGE, *head)]
    assert matching, head
    return matching


def test_exactly_the_dashboards_are_listed_with_their_uids() -> None:
    listed = {code(uid): f"PhaseWatch / {title}" for title, uid, _ in rows("board", "uid", "answers")}
    assert listed == {uid: board["title"] for uid, board in load_dashboards().items()}


def test_every_state_is_listed_with_its_text_in_the_order_of_urgency() -> None:
    listed = [(code(state), text.partition(",")[0]) for state, text in rows("state", "shown as")]
    states = [state for state in STATES if state in {member.value for member in SaturationState}]
    assert listed == [(state, STATES[state].text) for state in states]


def test_exactly_the_variables_are_listed_as_choices() -> None:
    labels = {variable["label"] for board in load_dashboards().values() for variable in board["templating"]["list"]}
    assert {label for choice, _ in rows("choice", "of") for label in choice.split(", ")} == labels


def test_files_to_mount_exist_and_go_where_the_provisioning_expects_them() -> None:
    places = {code(source): every_code(target)[0] for source, target in rows("from", "to")}
    (provider,) = yaml.safe_load((DASHBOARDS / "provisioning/dashboards/phasewatch.yml").read_text())["providers"]
    assert places["dashboards/json/"] == provider["options"]["path"]
    for source, target in places.items():
        assert (ROOT / source).exists(), source
        meant = (
            re.findall(r"Meant to be\s*(?:# )?(/\S+?)\.\s", (ROOT / source).read_text())
            if source[-1] != "/"
            else [target]
        )
        assert meant == [target], source


def test_the_home_dashboard_is_that_of_grafana_ini() -> None:
    (home,) = re.findall(r"GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH=([^`]+)`", PAGE)
    assert f"default_home_dashboard_path = {home}\n" in (DASHBOARDS / "grafana.ini").read_text()
