"""The documentation is held against the program, in both directions: nothing is missing, and nothing is made up."""

import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route

from phasewatch import units
from phasewatch.cli import DEFAULT_HOST, DEFAULT_PORT
from phasewatch.config import Target, Thresholds, parse
from phasewatch.engines.names import UPSTREAM, Kind
from phasewatch.errors import ConfigError, Reason
from phasewatch.exposition import SELF_METRICS, TABLE
from phasewatch.flags import environment_name
from phasewatch.recording import Reader
from phasewatch.replay import as_json
from phasewatch.schema import FileSchema
from phasewatch.web.routes import View, create_app
from phasewatch.web.security import _WebSchema, load_web_config
from truth import RECORDINGS

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
COMMANDS = ("serve", "check", "record", "replay")
CHAT = Target("chat", "vllm", "http://127.0.0.1:8000")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str, language: str) -> list[str]:
    return [found[2] for found in FENCE.finditer(text) if found[1] == language]


def tables(text: str, *head: str) -> Iterator[tuple[str, list[str]]]:
    """Every row of the tables whose first heads are these, with the heading above."""
    heading, inside = "", False
    for line in FENCE.sub("", text).splitlines():
        if found := HEADING.match(line):
            heading = found[1]
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif tuple(cells[: len(head)]) == head:
            inside = True
        elif inside and not cells[0].startswith("---"):
            yield heading, cells


def code(cell: str) -> str:
    """What a cell that is nothing but code says."""
    found = re.fullmatch(r"(`+)(.+?)\1", cell)
    assert found, f"{cell!r} is no code"
    return found[2]


def every_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def help_text(command: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHASEWATCH_")}
    words = [sys.executable, "-m", "phasewatch", *([command] if command else []), "--help"]
    environment |= {"COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


FLAG = re.compile(
    r"\((?:(?P<required>required)|default (?P<default>\S+)|none by default|off); "
    r"environment (?P<variable>\w+)(?:=true)?\)"
)


def flags_of(command: str) -> dict[str, tuple[str, str]]:
    """The flags of a command, as its help shows them: environment variable, and default or `required`."""
    text = help_text(command)
    names = re.findall(r"^  (--[\w.-]+)", text, re.MULTILINE)
    told = list(FLAG.finditer(" ".join(text.split())))
    assert [environment_name(name) for name in names] == [found["variable"] for found in told]
    return {
        name: (found["variable"], found["required"] or found["default"] or "")
        for name, found in zip(names, told, strict=True)
    }


# Metrics


ENTRY = re.compile(r"^### `(\w+)`\n\n(\w+) · (?:no labels|labels ([^·]+)) · ([^·\n]+)(?: · (\(w\)))?$", re.MULTILINE)


def test_every_metric_is_documented_and_nothing_else_is() -> None:
    documented = {
        found[1]: (found[2], tuple(every_code(found[3] or ""))) for found in ENTRY.finditer(page("docs/metrics.md"))
    }
    assert documented == {metric.name: (metric.kind, metric.labels) for metric in TABLE}


def test_every_heading_of_a_metric_is_followed_by_its_type_and_labels() -> None:
    text = page("docs/metrics.md")
    assert re.findall(r"^### `(\w+)`$", text, re.MULTILINE) == [found[1] for found in ENTRY.finditer(text)]


def test_metrics_over_the_window_are_marked_and_no_others_are() -> None:
    marked = {found[1] for found in ENTRY.finditer(page("docs/metrics.md")) if found[5]}
    # The bounds belong to a quantile that says it.
    said = {metric.name for metric in TABLE if re.search(r"\bwindow\b", metric.help)}
    assert marked == said | {"llm_inter_token_latency_bound_seconds"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_speaks_of_a_metric_that_does_not_exist(path: Path) -> None:
    said = re.findall(r"\b(?:llm|phasewatch)_\w*[a-z]\b(?!\.)", path.read_text(encoding="utf-8"))
    assert set(said) <= {metric.name for metric in TABLE}


def test_every_name_read_from_vllm_is_documented_with_its_releases_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(page("docs/metrics.md"), "name in vLLM", "releases")]
    documented = {(code(name), releases) for name, releases, _ in rows}
    known = {
        (name, releases)
        for upstream in UPSTREAM
        if upstream.kind is not Kind.CREATED  # told in the row of the counter itself
        for name, releases in upstream.names.items()
    }
    assert documented == known
    assert len(rows) == len(documented)


def test_every_reason_is_documented_and_nothing_else_is() -> None:
    documented = [
        code(cells[0]) for _, cells in tables(page("docs/metrics.md"), "reason", "what happened", "what to do")
    ]
    assert documented == [reason.value for reason in Reason]


def test_the_number_of_series_is_the_one_that_recordings_show() -> None:
    def most(name: str) -> int:
        lines = as_json(Reader(RECORDINGS / f"{name}.jsonl.xz"), CHAT)
        return max(len(json.loads(line)["metrics"]) for line in lines)

    told = re.search(
        r"up to (\d+) series: (\d+) of the target and (\d+) of the engine.+?"
        r"adds up to (\d+)\. The exporter adds (\d+) of its own",
        page("docs/metrics.md"),
        re.DOTALL,
    )
    assert told
    whole, target, engine, further, own = map(int, told.groups())
    assert whole == target + engine == most("batch-ramp")
    assert whole + further == most("data-parallel")
    assert own == len(SELF_METRICS)


def test_the_first_edges_are_those_of_a_real_page() -> None:
    with lzma.open(RECORDINGS / "batch-ramp.jsonl.xz", "rt", encoding="utf-8") as file:
        body = next(line["body"] for line in map(json.loads, file) if line["kind"] == "scrape")

    def first_edge(name: str) -> str:
        edges = re.findall(rf'^vllm:{name}_bucket{{.*\ble="([^"]+)"', body, re.MULTILINE)
        return f"{min(map(float, edges)) * 1000:g} ms"

    told = re.search(
        r"are (\d+ ms) for the time to first token, (\d+ ms) for inter-token latency,\s+"
        r"and (\d+ ms) for queue and prefill time",
        page("docs/metrics.md"),
    )
    assert told
    assert told[1] == first_edge("time_to_first_token_seconds")
    assert told[2] == first_edge("inter_token_latency_seconds")
    assert told[3] == first_edge("request_queue_time_seconds") == first_edge("request_prefill_time_seconds")


# Configuration


def schema_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := schema_of(part))), None)


def keys(schema: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in schema.model_fields.items():
        here = f"{path}.{name}" if path else name
        yield here, field
        below = schema_of(field.annotation)
        if below is not None:
            yield from keys(below, f"{here}[]" if str(field.annotation).startswith("list") else here)


def documented_keys() -> dict[str, list[str]]:
    """The rows of configuration.md by full path; a heading such as `targets[].server` says what is before a key."""
    found: dict[str, list[str]] = {}
    for heading, cells in tables(page("docs/configuration.md"), "key", "type", "default", "example", "meaning"):
        before = every_code(heading)
        path = ".".join([*before, code(cells[0])])
        assert path not in found
        found[path] = cells
    return found


def known_keys() -> dict[str, FieldInfo]:
    return {**dict(keys(FileSchema)), **dict(keys(_WebSchema))}


def test_every_configuration_key_is_documented_and_nothing_else_is() -> None:
    assert documented_keys().keys() == known_keys().keys()


@pytest.mark.parametrize("path", known_keys())
def test_the_default_of_a_key_is_the_documented_one(path: str) -> None:
    field = known_keys()[path]
    told = documented_keys()[path][2]
    if field.is_required():
        assert told == "required"
    elif path.startswith("saturation."):
        default = getattr(Thresholds(), path.removeprefix("saturation."))
        assert code(told) in {f"{default:g}s", f"{default:g}"}
    elif field.default is None:
        assert told in {"none", "as top level"}
    elif field.default_factory is not None:
        assert told == "none"
    elif isinstance(field.default, bool):
        assert code(told) == str(field.default).lower()
    elif isinstance(field.default, float):
        read = units.size if code(told).endswith("B") else units.duration
        assert read(code(told)) == field.default
    else:
        assert code(told) == str(field.default)


def example() -> Any:
    """The example that has every key."""
    _, complete = (text for text in fences(page("docs/configuration.md"), "yaml") if text.count("targets:\n  - name:"))
    return yaml.safe_load(complete)


def paths_in(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, below in value.items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from paths_in(below, here)
    elif isinstance(value, list):
        for item in value:
            yield from paths_in(item, f"{path}[]")


def test_the_example_with_every_key_has_every_key() -> None:
    assert set(paths_in(example())) == dict(keys(FileSchema)).keys()


def test_every_configuration_in_the_documentation_is_valid() -> None:
    texts = [text for path in PAGES for text in fences(path.read_text(encoding="utf-8"), "yaml") if "backend:" in text]
    assert len(texts) > 2
    for text in texts:
        parse(text)


@pytest.mark.parametrize(
    "path", [path for path, cells in documented_keys().items() if cells[3] and path in dict(keys(FileSchema))]
)
def test_the_example_of_a_key_is_valid(path: str) -> None:
    whole = example()
    place = whole
    *before, name = path.replace("[]", "").split(".")
    for step in before:
        place = place[step]
        place = place[0] if isinstance(place, list) else place
    place[name] = yaml.safe_load(code(documented_keys()[path][3]))
    parse(json.dumps(whole))


def mistakes(kind: str) -> list[tuple[str, str]]:
    rows = tables(page("docs/configuration.md"), "written", "message")
    return [(code(written), code(message)) for heading, (written, message) in rows if heading == kind]


@pytest.mark.parametrize(("written", "message"), mistakes("Mistakes"))
def test_a_mistake_is_told_as_documented(written: str, message: str) -> None:
    path, value = written.split(": ", maxsplit=1)
    wrong: dict[str, Any] = {"targets": [{"name": CHAT.name, "backend": CHAT.backend, "url": CHAT.url}]}
    place = wrong["targets"][0] if path.startswith("targets[0].") else wrong
    place[path.removeprefix("targets[0].")] = yaml.safe_load(value)
    with pytest.raises(ConfigError) as raised:
        parse(json.dumps(wrong))
    assert [str(problem) for problem in raised.value.problems] == [message]


@pytest.mark.parametrize(("written", "message"), mistakes("Web configuration file"))
def test_a_mistake_in_the_web_configuration_is_told_as_documented(written: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(written, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_web_config(tmp_path / "web.yml")
    assert [str(problem) for problem in raised.value.problems] == [message]


@pytest.mark.parametrize(
    "text",
    [
        "targets:\n- {name: chat, backend: vllm, url: 'http://a'}\n- {name: chat, backend: vllm, url: 'http://b'}\n",
        "targets:\n- name: chat\n  backend: vllm\n  url: http://a\n  interval: 1s\n  interval: 2s\n",
        "targets: [\n",
    ],
    ids=["name twice", "key twice", "no YAML"],
)
def test_mistakes_of_the_whole_file_are_told_as_documented(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "phasewatch.yml")
    assert f"\n    {raised.value.problems[0]}\n" in page("docs/configuration.md")


def test_the_web_configuration_in_the_documentation_is_understood() -> None:
    (text,) = (text for text in fences(page("docs/configuration.md"), "yaml") if "tls_server_config" in text)
    assert set(paths_in(yaml.safe_load(text))) - {"basic_auth_users.prometheus"} == dict(keys(_WebSchema)).keys()
    _WebSchema.model_validate(yaml.safe_load(text))


# Flags, commands, endpoints


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_the_help_of_a_command_is_the_documented_one(command: str | None) -> None:
    heading = f"\n### phasewatch{f' {command}' if command else ''}\n"
    (text,) = fences(page("docs/configuration.md").split(heading)[1].split("\n### ")[0], "")
    # Releases of Python break lines in different places.
    assert "".join(text.split()) == "".join(help_text(command).split())


def test_every_flag_and_variable_is_documented_and_nothing_else_is() -> None:
    flags = {command: flags_of(command) for command in COMMANDS}
    documented: dict[str, dict[str, str]] = {command: {} for command in COMMANDS}
    for _, cells in tables(page("docs/configuration.md"), "flag", "environment", "commands", "default", "meaning"):
        for command in cells[2].split(", "):
            documented[command][code(cells[0])] = code(cells[1])
            default = flags[command][code(cells[0])][1]
            if default == "required":
                assert re.search(rf"^required$|required by {command}\b", cells[3])
            elif default:
                assert default in every_code(cells[3])
            else:
                assert re.search(r"\b(?:none|off)\b", cells[3])
    assert documented == {
        command: {name: variable for name, (variable, _) in found.items()} for command, found in flags.items()
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_speaks_of_a_variable_that_does_not_exist(path: Path) -> None:
    known = {variable for command in COMMANDS for variable, _ in flags_of(command).values()}
    assert set(re.findall(r"\bPHASEWATCH_\w+", path.read_text(encoding="utf-8"))) <= known


def test_every_endpoint_is_documented_and_nothing_else_is() -> None:
    def unused() -> Any:
        raise NotImplementedError

    routes = create_app(View(metrics=unused, reload=unused, ready=unused), enable_lifecycle=True).routes
    known = {route.path: (route.methods or set()) - {"HEAD"} for route in routes if isinstance(route, Route)}
    rows = tables(page("docs/endpoints.md"), "path", "method", "answer")
    assert {code(cells[0]): {cells[1]} for _, cells in rows} == known


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_port_is_the_same_on_every_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert {int(port) for port in re.findall(r":(1\d{4})\b", text)} <= {DEFAULT_PORT}
    assert set(re.findall(rf"([\w.-]+):{DEFAULT_PORT}", text)) <= {DEFAULT_HOST, "gpu-1.example.org"}


def test_the_recording_in_the_documentation_is_one(tmp_path: Path) -> None:
    text = next(text for text in fences(page("docs/recordings.md"), "json") if '"header"' in text)
    (tmp_path / "example.jsonl").write_text(text, encoding="utf-8")
    first, second = Reader(tmp_path / "example.jsonl").scrapes()
    assert first.answer is not None
    assert second.error is not None
    assert second.error.reason is Reason.TIMEOUT
    written = {name for line in text.splitlines() for name in json.loads(line)}
    assert written == {code(cells[0]) for _, cells in tables(page("docs/recordings.md"), "key", "of", "meaning")}


# Links


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        goal = path.parent / name if name else path
        assert goal.exists(), link
        assert not anchor or anchor in anchors(goal), link
