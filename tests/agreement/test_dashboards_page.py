"""What the page about the dashboards says is what the files in dashboards/ do, in both directions."""

import re
from typing import Final

import yaml

from dashboards.states import STATES
from phasewatch.analysis.saturation import SaturationState
from tests.support.dashboard_lint import boards
from tests.support.markdown import code, every_code, page, tables
from tests.support.paths import DASHBOARDS, ROOT

PAGE: Final = page("docs/dashboards.md")


def rows(*head: str) -> list[list[str]]:
    found = [cells for _, cells in tables(PAGE, *head)]
    assert found, head
    return found


def test_every_board_is_listed_with_its_address_and_nothing_else_is() -> None:
    listed = {code(uid): f"PhaseWatch / {title}" for title, uid, _ in rows("board", "uid", "answers")}
    assert listed == {uid: board["title"] for uid, board in boards().items()}


def test_every_state_is_listed_as_it_is_shown_and_in_the_order_of_urgency() -> None:
    listed = [(code(state), shown.partition(",")[0]) for state, shown in rows("state", "shown as")]
    states = [state for state in STATES if state in {known.value for known in SaturationState}]
    assert listed == [(state, STATES[state].text) for state in states]


def test_every_choice_is_listed_and_nothing_else_is() -> None:
    labels = {variable["label"] for board in boards().values() for variable in board["templating"]["list"]}
    assert {label for told, _ in rows("choice", "of") for label in told.split(", ")} == labels


def test_the_files_to_mount_exist_and_their_places_are_those_of_the_provisioning() -> None:
    places = {code(source): every_code(target)[0] for source, target in rows("from", "to")}
    (provider,) = yaml.safe_load((DASHBOARDS / "provisioning/dashboards/phasewatch.yml").read_text())["providers"]
    assert places["dashboards/"] == provider["options"]["path"]
    for source, target in places.items():
        assert (ROOT / source).exists(), source
        told = (
            re.findall(r"Meant to be\s*(?:# )?(/\S+?)\.\s", (ROOT / source).read_text())
            if source[-1] != "/"
            else [target]
        )
        assert told == [target], source


def test_the_home_of_grafana_is_told_as_grafana_ini_has_it() -> None:
    (home,) = re.findall(r"GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH=([^`]+)`", PAGE)
    assert f"default_home_dashboard_path = {home}\n" in (DASHBOARDS / "grafana.ini").read_text()
