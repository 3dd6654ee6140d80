"""What holds on every page of the documentation: names, ports, queries, configurations and links exist."""

import json
import re
from pathlib import Path
from typing import Any

from starlette.routing import Route

from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.cli.arguments import DEFAULT_HOST, DEFAULT_PORT
from phasewatch.metrics.collector import TABLE
from phasewatch.recordings.format import RecordingReader
from phasewatch.scrape.http import Response
from phasewatch.scrape.recorded import parse_answer
from phasewatch.web.routes import View, create_app
from tests.support.command_line import COMMANDS, flags_of
from tests.support.markdown import PAGES, code, fences, leads_nowhere, links, page, tables
from tests.support.paths import ROOT
from tests.support.processes import needs
from tests.support.rule_files import promtool
from tests.support.targets import load_config_or_default, parse_config

TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}


def test_every_metric_that_a_page_names_exists() -> None:
    metrics = {metric.name for metric in TABLE}
    for name, text in TEXTS.items():
        assert set(re.findall(r"\b(?:llm|phasewatch)_\w*[a-z]\b(?![.:])", text)) <= metrics, name


def test_every_environment_variable_that_a_page_names_exists() -> None:
    variables = {variable for command in COMMANDS for variable, _ in flags_of(command).values()}
    for name, text in TEXTS.items():
        assert set(re.findall(r"\bPHASEWATCH_\w+", text)) <= variables, name


def test_every_page_has_the_same_port() -> None:
    servers = {target.url.rpartition(":")[2] for target in load_config_or_default().targets}
    for name, text in TEXTS.items():
        assert set(re.findall(r":(1\d{4})\b", text)) <= {str(DEFAULT_PORT), *servers}, name
        assert set(re.findall(rf"([\w.-]+):{DEFAULT_PORT}", text)) <= {DEFAULT_HOST, "gpu-1.example.org"}, name


def test_every_configuration_on_a_page_is_valid() -> None:
    texts = [text for whole in TEXTS.values() for text in fences(whole, "yaml") if "backend:" in text]
    assert len(texts) > 2
    for text in texts:
        parse_config(text)


@needs("promtool")
def test_every_query_on_a_page_is_valid(tmp_path: Path) -> None:
    groups = [
        {
            "name": name,
            "rules": [
                {"record": f"query:{number}", "expr": query}
                for number, query in enumerate(line for text in fences(whole, "promql") for line in text.splitlines())
            ],
        }
        for name, whole in TEXTS.items()
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": groups}), encoding="utf-8")
    promtool("check", "rules", tmp_path / "rules.yml")


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    dead = [
        (str(path.relative_to(ROOT)), link)
        for path in PAGES
        for link in links(path)
        if not link.startswith(("http://", "https://")) and leads_nowhere(path, link)
    ]
    assert dead == []


def test_every_endpoint_is_documented_and_nothing_else_is() -> None:
    def unused() -> Any:
        raise NotImplementedError

    routes = create_app(View(collect_snapshots=unused, reload=unused, is_ready=unused), enable_lifecycle=True).routes
    methods = {route.path: (route.methods or set()) - {"HEAD"} for route in routes if isinstance(route, Route)}
    rows = tables(page("docs/endpoints.md"), "path", "method", "answer")
    assert {code(cells[0]): {cells[1]} for _, cells in rows} == methods


def test_the_recordings_on_their_page_can_be_read(tmp_path: Path) -> None:
    texts = [text for text in fences(page("docs/recordings.md"), "json") if '"header"' in text]
    scrapes = []
    for text in texts:
        (tmp_path / "example.jsonl").write_text(text, encoding="utf-8")
        scrapes.append(list(RecordingReader(tmp_path / "example.jsonl").read_scrapes(frozenset({"scrape", "props"}))))
    (first, *failed), (answered, hung, asleep), (inventory,) = scrapes
    assert first.response is not None
    errors = [scrape.outcome for scrape in (*failed, hung) if isinstance(scrape.outcome, ScrapeError)]
    assert [(error.reason, error.refused) for error in errors] == [
        (Reason.TIMEOUT, False),
        (Reason.CONNECT, True),
        (Reason.TIMEOUT, False),
    ]
    (child,) = inventory.keys["children"]
    parts = [parse_answer(answered.keys["slots"]), parse_answer(hung.keys["health"])]
    parts += [parse_answer(inventory.keys["ps"]), parse_answer(child["metrics"]), parse_answer(child["slots"])]
    assert all(isinstance(part, Response) and part.status == 200 for part in parts)
    assert (asleep.kind, asleep.response) == ("props", Response(200, "", b"true"))
    keys = {name for text in texts for line in text.splitlines() for name in json.loads(line)}
    assert keys == {code(cells[0]) for _, cells in tables(page("docs/recordings.md"), "key", "of", "meaning")}
