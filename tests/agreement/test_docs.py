"""The documentation is held against the program, in both directions: nothing is missing, and nothing is made up."""

import asyncio
import itertools
import json
import lzma
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
import yaml
from prometheus_client.samples import Sample
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo
from starlette.routing import Route

from phasewatch.backends import find_backend
from phasewatch.backends.metric_table import MetricKind
from phasewatch.backends.ollama import snapshot as reading
from phasewatch.backends.ollama.inventory import LoadedModel, OllamaVersion, parse_version
from phasewatch.backends.ollama.probes import request as prompt
from phasewatch.backends.ollama.probes import response as answer
from phasewatch.backends.ollama.probes import result as outcome
from phasewatch.backends.ollama.probes import scheduling as policy
from phasewatch.backends.ollama.probes.response import ProbeError
from phasewatch.backends.ollama.scraper import PROBE_TICK, OllamaScraper
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.base import units
from phasewatch.base.errors import ConfigError, Reason, ScrapeError
from phasewatch.cli.arguments import DEFAULT_HOST, DEFAULT_PORT
from phasewatch.cli.flags import environment_name
from phasewatch.config.schema import FileSchema, TargetSchema
from phasewatch.config.settings import DeviceSettings, Target
from phasewatch.demo.ollama import demo_models as ollama_models
from phasewatch.demo.ollama import users as ollama_users
from phasewatch.demo.ollama.model import Model
from phasewatch.demo.prometheus import DEFAULT_PORT as PROMETHEUS_PORT
from phasewatch.demo.run import OLLAMA_NAME, PROBE_BUDGET, PROBE_INTERVAL, VLLM_INTERVAL, VLLM_NAME
from phasewatch.demo.vllm.roofline import BANDWIDTH_SHARE, COMPUTE_SHARE
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS, METRICS_TO_WATCH
from phasewatch.demo.vllm.simulation import DEVICE, SETTINGS
from phasewatch.hardware import facts
from phasewatch.metrics.collector import TABLE, build_target_families
from phasewatch.metrics.exporter import SELF_METRICS
from phasewatch.models import costs
from phasewatch.models.settings import ModelSettings
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import as_json
from phasewatch.scrape.scraper import Job
from phasewatch.snapshot.models import ModelDetails
from phasewatch.snapshot.probes import DiscardReason, ProbeReason, SkipReason
from phasewatch.web.routes import View, create_app
from phasewatch.web.security import _WebSchema, load_web_config
from tests.support.model_folders import load_config, write_json
from tests.support.paths import RECORDINGS, ROOT
from tests.support.processes import needs
from tests.support.simulated_ollama import URL, OllamaTransport, RecordingOllama, User, Visit
from tests.support.targets import (
    load_config_or_default,
    new_model_probe,
    new_probe_settings,
    new_target,
    parse_config,
)
from tests.support.timeline import Timeline

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
COMMANDS = ("serve", "check", "record", "replay", "devices", "demo", "assets")
CHAT = new_target("chat", "vllm", "http://127.0.0.1:8000")
WORKSTATION = new_target("workstation", "ollama", "http://127.0.0.1:11434")
RANDOM = Random(1)  # noqa: S311  # nothing here is secret

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def words(name: str) -> str:
    """A page whose line breaks do not matter."""
    return " ".join(page(name).split())


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


@cache
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
    said = re.findall(r"\b(?:llm|phasewatch)_\w*[a-z]\b(?![.:])", path.read_text(encoding="utf-8"))
    assert set(said) <= {metric.name for metric in TABLE}


def test_every_name_read_from_vllm_is_documented_with_its_releases_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(page("docs/metrics.md"), "name in vLLM", "releases")]
    documented = {(code(name), releases) for name, releases, _ in rows}
    known = {
        (name, releases)
        for upstream in METRIC_NAMES.metrics
        if upstream.kind is not MetricKind.CREATED  # told in the row of the counter itself
        for name, releases in upstream.names.items()
    }
    assert documented == known
    assert len(rows) == len(documented)


REASONS: list[tuple[str, tuple[str, ...], type[StrEnum]]] = [
    ("docs/metrics.md", ("reason", "what happened", "what to do"), Reason),
    ("docs/metrics.md", ("reason", "the probe failed because"), ProbeReason),
    ("docs/metrics.md", ("reason", "no probe was sent because"), SkipReason),
    ("docs/metrics.md", ("reason", "the answer counts for nothing because"), DiscardReason),
    ("docs/ollama.md", ("reason", "what happened", "what to do"), ProbeReason),
    ("docs/ollama.md", ("reason", "why", "what to do"), SkipReason),
    ("docs/ollama.md", ("reason", "what happened", "what follows"), DiscardReason),
]


@pytest.mark.parametrize(("name", "head", "known"), REASONS)
def test_every_reason_is_documented_and_nothing_else_is(name: str, head: tuple[str, ...], known: type[StrEnum]) -> None:
    assert [code(cells[0]) for _, cells in tables(page(name), *head)] == [*known]


def test_every_source_of_a_fact_is_documented_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(page("docs/metrics.md"), "source", "of", "meaning")]
    assert {code(source) for source, of, _ in rows if "devices" in of} == {*facts.DeviceSource}
    assert {code(source) for source, of, _ in rows if "models" in of} == {*costs.ModelSource}
    assert len(rows) == len({*facts.DeviceSource, *costs.ModelSource})


def test_the_number_of_series_of_a_vllm_is_the_one_that_recordings_show(tmp_path: Path) -> None:
    def most(name: str, target: Target = CHAT) -> int:
        lines = as_json(RecordingReader(RECORDINGS / f"{name}.jsonl.xz"), target)
        return max(len(json.loads(line)["metrics"]) for line in lines)

    told = re.search(
        r"up to (\d+) series: (\d+) of the target, (\d+) of the engine and (\d+) of its ceilings.+?"
        r"adds up to (\d+)\..+?The exporter adds (\d+) of its own",
        words("docs/metrics.md"),
    )
    assert told
    whole, target, engine, ceilings, further, own = map(int, told.groups())
    write_json(tmp_path / "config.json", load_config("llama-3.1-8b"))
    known = replace(CHAT, device=DeviceSettings(name="NVIDIA L40S"), model=ModelSettings(path=tmp_path))
    assert target + engine == most("batch-ramp")
    assert target + 2 * engine == most("data-parallel")
    assert whole == target + engine + ceilings == most("mfu-metrics", known)
    assert further == engine + ceilings
    assert own == len(SELF_METRICS)


async def _over_and_over(job: Job) -> None:
    while True:
        await job.run()
        await asyncio.sleep(job.seconds)


@cache
def probed(*, load: bool) -> tuple[Sample, ...]:
    """What a simulated Ollama with two models shows after a while: one has a user, or may be loaded by probes."""
    timeline = Timeline()
    server = RecordingOllama(Model("a:latest", "a" * 64, vram_bytes=115_941_047), Model("b:latest", "b" * 64))
    transport = OllamaTransport(server, timeline)
    settings = new_probe_settings(models={"a": new_model_probe(load=True)} if load else {})
    target = replace(WORKSTATION, url=URL, probe=settings, device=DeviceSettings(name="NVIDIA L40S"))

    async def a_while() -> tuple[Sample, ...]:
        monitor = OllamaScraper(target, timeline.clock, timeline.wall_clock, transport, RANDOM)
        tasks = [asyncio.create_task(_over_and_over(job)) for job in monitor.list_jobs()]
        if not load:
            user = User("a:latest", [Visit(pause=5, requests=20)])
            tasks.append(asyncio.create_task(user.live(transport)))
        await asyncio.sleep(290 if load else 600)  # what a probe has loaded leaves after five minutes
        shown = monitor.get_snapshot()
        await monitor.close()
        for task in tasks:
            task.cancel()
        return tuple(sample for family in build_target_families([shown]) for sample in family.samples)

    return timeline.run(a_while())


def test_the_number_of_series_of_an_ollama_is_the_one_that_a_simulated_one_shows() -> None:
    told = re.search(
        r"An ollama target has (\d+) of its own, (\d+) for each model on disk, for each in memory "
        r"(\d+) more, up to (\d+) of its speeds and (\d+) of its ceilings, and (\d+) for each",
        words("docs/metrics.md"),
    )
    assert told
    own, on_disk, in_memory, speeds, ceilings, probes = map(int, told.groups())
    loads = 1  # the one metric that only a model has which may be loaded
    assert len(probed(load=True)) == own + 2 * on_disk + in_memory + speeds + ceilings + probes
    assert len(probed(load=False)) == len(probed(load=True)) - loads
    ceiling_names = {
        metric.name for metric in TABLE if re.match(r"llm_(device|weight|kv_cache_bytes|decode_c)", metric.name)
    }
    assert Counter(sample.name in ceiling_names for sample in probed(load=True))[True] == ceilings


def test_the_metrics_of_an_ollama_are_the_listed_ones() -> None:
    listed = [
        name
        for _, cells in tables(page("docs/metrics.md"), "metric", "on an ollama target")
        for name in every_code(cells[0])
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) == {sample.name for load in (False, True) for sample in probed(load=load)}


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


def test_a_key_without_a_row_on_the_page_is_noticed() -> None:
    target = create_model("LongerTarget", __base__=TargetSchema, new_key=(bool, False))
    longer = create_model("LongerFile", __base__=FileSchema, targets=(list[target], ...))  # type: ignore[valid-type]
    assert dict(keys(longer)).keys() - documented_keys().keys() == {"targets[].new_key"}


@pytest.mark.parametrize("path", known_keys())
def test_the_default_of_a_key_is_the_documented_one(path: str) -> None:
    field = known_keys()[path]
    told = documented_keys()[path][2]
    if field.is_required():
        assert told == "required"
    elif told == "as top level":
        assert path.removeprefix("targets[].") in known_keys()
    elif told.startswith("as "):
        assert f"targets[].{code(told.removeprefix('as '))}" in known_keys()
    elif field.default is None or field.default_factory is not None:
        assert told == "none"
    elif isinstance(field.default, bool):
        assert code(told) == str(field.default).lower()
    elif isinstance(field.default, int | float):
        read = (
            units.parse_size
            if code(told).endswith("B")
            else float
            if code(told)[-1].isdigit()
            else units.parse_duration
        )
        assert read(code(told)) == field.default
    else:
        assert code(told) == str(field.default)


def test_a_key_inherits_what_the_page_says() -> None:
    text = json.dumps({"interval": "1s", "targets": [_raw(CHAT), _raw(WORKSTATION)]})
    chat, workstation = parse_config(text).targets
    least = find_backend("ollama").rules.least_interval
    assert (chat.interval, workstation.interval) == (1.0, least)
    told = documented_keys()["targets[].interval"][4]
    assert f"without an interval of its own has at least `{find_backend('ollama').rules.least_interval:g}s`" in told
    probe = {"load": True, "models": [{"name": "a"}, {"name": "b", "load": False}]}
    (target,) = parse_config(json.dumps({"targets": [{**_raw(WORKSTATION), "probe": probe}]})).targets
    assert [target.probe.models[name].load for name in ("a", "b")] == [True, False]


def test_the_built_in_configuration_is_the_documented_one() -> None:
    told = re.search(
        r"watches one vLLM at `(\S+)`, named `(\w+)`, and one Ollama at `(\S+)`, named `(\w+)`\. Both are optional",
        words("docs/configuration.md"),
    )
    assert told
    known = [(target.backend, target.url, target.name) for target in load_config_or_default().targets]
    assert known == [("vllm", told[1], told[2]), ("ollama", told[3], told[4])]
    assert all(target.optional for target in load_config_or_default().targets)


def _raw(target: Target) -> dict[str, Any]:
    return {"name": target.name, "backend": target.backend, "url": target.url}


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


def test_the_example_with_every_key_has_no_key_without_use() -> None:
    notes = parse_config(json.dumps(example())).notes
    assert [note for note in notes if not note.message.startswith("cannot be read now")] == []


def test_every_configuration_in_the_documentation_is_valid() -> None:
    texts = [text for path in PAGES for text in fences(path.read_text(encoding="utf-8"), "yaml") if "backend:" in text]
    assert len(texts) > 2
    for text in texts:
        parse_config(text)


@pytest.mark.parametrize(
    "path", [path for path, cells in documented_keys().items() if cells[3] and path in dict(keys(FileSchema))]
)
def test_the_example_of_a_key_is_valid(path: str) -> None:
    whole = example()
    *before, name = path.replace("[]", "").split(".")
    place = place_of(whole, before, name)
    assert place
    place[name] = yaml.safe_load(code(documented_keys()[path][3]))
    parse_config(json.dumps(whole))


def place_of(value: Any, before: list[str], name: str) -> Any:
    """The mapping that has a key; of the entries of a list the first in which there is one."""
    if isinstance(value, list):
        return next((place for entry in value if (place := place_of(entry, before, name))), None)
    if before:
        return place_of(value[before[0]], before[1:], name) if before[0] in value else None
    return value if name in value else None


def mistakes(kind: str, told: str = "message") -> list[tuple[str, str]]:
    rows = tables(page("docs/configuration.md"), "written", told)
    return [(code(written), code(message)) for heading, (written, message) in rows if heading == kind]


def with_change(written: str) -> str:
    """A configuration of both kinds of targets in which one key is as written."""
    path, value = written.split(": ", maxsplit=1)
    changed: dict[str, Any] = {"targets": [_raw(CHAT), _raw(WORKSTATION)]}
    target = re.match(r"targets\[(\d)\]\.", path)
    place = changed["targets"][int(target[1])] if target else changed
    place[path[target.end() if target else 0 :]] = yaml.safe_load(value)
    return json.dumps(changed)


@pytest.mark.parametrize(("written", "message"), mistakes("Mistakes"))
def test_a_mistake_is_told_as_documented(written: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(with_change(written))
    assert [str(problem) for problem in raised.value.problems] == [message]


@pytest.mark.parametrize(("written", "note"), mistakes("Notes", "note"))
def test_a_note_is_told_as_documented(written: str, note: str) -> None:
    assert [str(problem) for problem in parse_config(with_change(written)).notes] == [note]


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
        parse_config(text, "phasewatch.yml")
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
    servers = {target.url.rpartition(":")[2] for target in load_config_or_default().targets}
    assert set(re.findall(r":(1\d{4})\b", text)) <= {str(DEFAULT_PORT), *servers}
    assert set(re.findall(rf"([\w.-]+):{DEFAULT_PORT}", text)) <= {DEFAULT_HOST, "gpu-1.example.org"}


def test_the_recording_in_the_documentation_is_one(tmp_path: Path) -> None:
    text = next(text for text in fences(page("docs/recordings.md"), "json") if '"header"' in text)
    (tmp_path / "example.jsonl").write_text(text, encoding="utf-8")
    first, second = RecordingReader(tmp_path / "example.jsonl").scrapes()
    assert first.response is not None
    assert isinstance(second.outcome, ScrapeError)
    assert second.outcome.reason is Reason.TIMEOUT
    written = {name for line in text.splitlines() for name in json.loads(line)}
    assert written == {code(cells[0]) for _, cells in tables(page("docs/recordings.md"), "key", "of", "meaning")}


# Ollama


OLLAMA = page("docs/ollama.md")
OLLAMA_WORDS = words("docs/ollama.md")


def test_the_request_in_the_documentation_is_the_one_that_is_sent() -> None:
    (text,) = fences(OLLAMA, "json")
    told = json.loads(text)
    model = LoadedModel(told["model"], "a" * 64, None, None, told["options"]["num_ctx"], None, ModelDetails())
    words = prompt.choose_prompt_words(prompt.RequestKind.SHORT, told["options"]["num_ctx"], None)
    assert words
    sent = prompt.build_probe_request(prompt.RequestKind.SHORT, model, words, {}, Random(7)).body  # noqa: S311  # the prompt on the page
    assert sent == {**told, "prompt": sent["prompt"]}
    assert str(sent["prompt"]).startswith(told["prompt"].removesuffix("..."))


def test_every_field_of_the_request_is_explained_and_nothing_else_is() -> None:
    (text,) = fences(OLLAMA, "json")
    told = [code(cells[0]) for _, cells in tables(OLLAMA, "field", "why it is there")]
    assert told == [path for path in paths_in(json.loads(text)) if path != "options"]


def test_what_is_never_sent_is_in_no_request() -> None:
    never = {name for _, cells in tables(OLLAMA, "field", "what it would do") for name in every_code(cells[0])}
    model = LoadedModel("a:latest", "a" * 64, None, None, 8192, None, ModelDetails())
    for kind in (prompt.RequestKind.SHORT, prompt.RequestKind.LONG):
        body = prompt.build_probe_request(kind, model, 10, {}, RANDOM).body
        assert not never & {path.removeprefix("options.") for path in paths_in(body)}
        assert f"num_predict: {prompt.OUTPUT_TOKENS}" not in never
    assert not never & {*prompt.build_load_request("a:latest", "a" * 64, {}).body}


def test_the_figures_of_probes_are_those_of_the_program() -> None:
    told = {cells[0]: " ".join(cells[1:]) for _, cells in tables(OLLAMA, "what", "how much", "why")}
    settings = new_probe_settings()
    firsts = [policy.draw_pace(settings, RANDOM).first_delay for _ in range(2000)]
    quiet = policy.compute_quiet_seconds(settings.interval)
    bounds = rf"{min(firsts):.0f} to {max(firsts):.0f} s after it was first seen"
    known = {
        "first probe of a model": bounds,
        "short probe": rf"every `interval`, {settings.interval / 60:g} minutes, .*; {prompt.SHORT_TOKENS} tokens",
        "long probe": rf"every `long_interval`, {settings.long_interval / 3600:g} hour,.*; {prompt.LONG_TOKENS} tokens",
        "longest long probe": rf"{policy.LONGEST_LONG_PROBE:g} s,",
        "after a user's request": rf"{quiet:g} s of quiet, .* half an interval",
        "again, after an answer that says nothing": rf"{policy.SOON_SECONDS:g} s",
        "time left to the model": rf"{policy.EXPIRY_MARGIN:g} s and twice its longest probe",
        "share of the time": rf"`budget`, {settings.budget * 100:g} %: .* {1 / settings.budget - 1:g} s",
        "at once": "1,",
        "patience": rf"`timeout`, {settings.timeout:g} s;",
    }
    assert told.keys() == known.keys()
    for what, pattern in known.items():
        assert re.match(pattern, told[what]), what
    assert policy.LEAST_INTERVALS == 1 / 2
    assert PROBE_TICK == 0.25
    assert "Four times a second PhaseWatch looks" in OLLAMA
    assert f"that had to queue (more than {outcome.QUEUED_SECONDS * 1000:g} ms)" in OLLAMA_WORDS
    assert f"more than {outcome.LOAD_DETECTION_SECONDS * 1000:g} ms and ten times the usual" in OLLAMA_WORDS
    assert outcome.LOAD_DETECTION_FACTOR == 10
    assert f"before {answer.FEWEST_TOKENS} tokens" in OLLAMA_WORDS
    assert f"and {prompt.OUTPUT_TOKENS} tokens; below 144 tokens" in OLLAMA_WORDS
    assert [prompt.choose_prompt_words(prompt.RequestKind.SHORT, length, None) for length in (143, 144)] == [None, 1]


def final(**changes: int) -> dict[str, Any]:
    """An answer of 200 prompt tokens in 100 ms and 48 tokens in 470 ms, with some changes."""
    whole = {
        "done": True,
        "total_duration": 600_000_000,
        "load_duration": 1_000_000,
        "prompt_eval_count": 200,
        "prompt_eval_duration": 100_000_000,
        "eval_count": 48,
        "eval_duration": 470_000_000,
    }
    return {**whole, **changes}


def test_the_worked_example_is_the_recorded_answer() -> None:
    recorded = json.loads((RECORDINGS / "ollama-0.33" / "unique_prefix.json").read_text(encoding="utf-8"))["body"]
    for key in (
        "total_duration",
        "load_duration",
        "prompt_eval_count",
        "prompt_eval_duration",
        "eval_count",
        "eval_duration",
    ):
        assert f"`{key}` {recorded[key]:,}" in OLLAMA_WORDS
    found = answer.extract_timings(recorded, version=None, model_format="gguf")
    assert found
    assert found.prefill_tokens_per_second
    naive = recorded["eval_count"] / found.decode_seconds
    assert f"That is {found.decode_tokens_per_second:.1f} tokens per second of decode (not {naive:.1f})" in OLLAMA_WORDS
    assert f"{found.prefill_tokens_per_second:.0f} of prefill" in OLLAMA_WORDS
    assert f"first token after {found.first_token_seconds * 1000:.1f} ms" in OLLAMA_WORDS


def releases(told: str) -> tuple[OllamaVersion, OllamaVersion]:
    """First and last release of a cell such as `0.12.5 to 0.12.6` or `before 0.10.0`."""
    found = [version for text in re.findall(r"\d+\.\d+\.\d+", told) if (version := parse_version(text))]
    if len(found) == 1:
        major, minor, patch = found[0]
        return (0, 0, 1), (major, minor, patch - 1) if patch else (major, minor - 1, 99)
    first, last = found
    return first, last


TRAPS = [(told, *releases(told)) for told, *_ in (cells for _, cells in tables(OLLAMA, "releases", "absent", "why"))]


def after(version: OllamaVersion) -> OllamaVersion:
    major, minor, patch = version
    return (major, minor + 1, 0) if patch == 99 else (major, minor, patch + 1)


def tells(told: str, version: OllamaVersion) -> bool:
    """Whether a release tells what the page says to be absent on those of one row."""
    if "partly on the device" in told:
        loaded = LoadedModel("a:latest", "a" * 64, 2e9, 1e9, 4096, None, ModelDetails())
        return reading.compute_gpu_ratio(loaded, version) is not None
    if "MLX" in told:
        found = answer.extract_timings(final(), version=version, model_format="safetensors")
    elif told.startswith("0.12.5"):
        found = answer.extract_timings(final(prompt_eval_count=513), version=version, model_format="gguf")
    else:
        try:
            found = answer.extract_timings(final(eval_duration=49_000_000), version=version, model_format="gguf")
        except ProbeError:
            return False
    assert found
    return found.prefill_tokens_per_second is not None


@pytest.mark.parametrize(
    ("told", "first", "last"), [trap for trap in TRAPS if "MLX" in trap[0] or not trap[0].startswith("before")]
)
def test_a_release_does_not_tell_what_the_page_says(told: str, first: OllamaVersion, last: OllamaVersion) -> None:
    assert not tells(told, first)
    assert not tells(told, last)
    assert tells(told, after(last))
    major, minor, patch = first
    assert told.startswith("before") or tells(told, (major, minor, patch - 1) if patch else (major, minor - 1, 99))


def test_every_trap_of_the_program_is_on_the_page() -> None:
    bounds = [(first, last) for _, first, last in TRAPS]
    traps = (answer._MILLISECONDS_ONLY, answer._LAST_BATCH_ONLY, reading._COUNTED_TWICE)  # noqa: SLF001  # no one else needs them
    assert [trap in bounds for trap in traps] == [True, True, True]
    assert answer._MLX_PREFILL_SINCE in [after(last) for _, last in bounds]  # noqa: SLF001  # same
    decode, prefill = answer._DECODE_BAND, answer._PREFILL_BAND  # noqa: SLF001  # same
    assert f"decode outside of {decode[0]:g} to {decode[1]:,.0f} tokens per second" in OLLAMA_WORDS
    assert f"prefill outside of {prefill[0]:g} to {prefill[1]:,.0f}" in OLLAMA_WORDS


def test_the_estimates_of_what_probes_cost_follow_from_their_figures() -> None:
    lengths = (prompt.SHORT_TOKENS, prompt.LONG_TOKENS)
    short, long = (131_072 * (length + prompt.OUTPUT_TOKENS) / 1e6 for length in lengths)
    assert f"{short:.0f} MB of a short probe and {long:.0f} MB of a long one" in OLLAMA_WORDS
    settings, steps = new_probe_settings(), prompt.OUTPUT_TOKENS - 1
    prefill, decode = 60 * prompt.SHORT_TOKENS / prompt.LONG_TOKENS, steps * 4.6 / 90
    assert f"so {prompt.SHORT_TOKENS} take {prefill:g} s" in OLLAMA_WORDS
    assert f"{steps} steps that each read 4.6 GB take {decode:.1f} s" in OLLAMA_WORDS
    pause = (prefill + decode) / settings.budget / 60
    assert f"about {prefill + decode:.1f} s | {settings.budget:.0%}, the budget".replace("%", " %") in OLLAMA_WORDS
    assert f"{prefill + decode:.1f} s at a budget of 1 % is one probe in {pause:.0f} minutes" in OLLAMA_WORDS
    rest = settings.timeout * (1 / settings.budget - 1) / 60
    assert f"after {settings.timeout:g} s is followed by {rest:.0f} minutes without one" in OLLAMA_WORDS


@needs("promtool")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_query_is_valid(path: Path, tmp_path: Path) -> None:
    texts = fences(path.read_text(encoding="utf-8"), "promql")
    queries = [line for text in texts for line in text.splitlines()]
    names = itertools.count()
    rules = [{"record": f"query:{next(names)}", "expr": query} for query in queries]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": path.stem, "rules": rules}]}), encoding="utf-8")
    checked = subprocess.run(
        ["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


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


# The demo


def test_every_act_of_the_demo_is_documented_and_nothing_else_is() -> None:
    rows = [cells for _, cells in tables(page("docs/demo.md"), "act", "seconds", "state", "what happens")]
    assert [
        [name, seconds, code(state), about, tuple(every_code(look))] for name, seconds, state, about, look in rows
    ] == [[act.name, f"{act.seconds:g}", act.state.value, act.about, METRICS_TO_WATCH[act.state]] for act in CYCLE]


def test_the_figures_of_the_demo_are_those_of_the_program() -> None:
    text = words("docs/demo.md")
    assert f"which take {units.format_duration(CYCLE_SECONDS)} together" in text
    assert (ollama_users.CYCLE_SECONDS, ollama_users.KEEP_ALIVE_SECONDS) == (300, 60)
    assert "in five minutes and then anew" in text
    assert "`OLLAMA_KEEP_ALIVE=1m`" in text
    interval, probe_interval = (told.replace("s", " s") for told in (VLLM_INTERVAL, PROBE_INTERVAL))
    assert f"an `interval` of {interval}" in text
    assert f"probes every {probe_interval} with a budget of {PROBE_BUDGET * 100:.0f} %" in text
    large = ollama_models.LARGE
    assert f"only {large.vram_bytes / large.resident_bytes:.1f} fit" in text
    assert (
        f"reaches {BANDWIDTH_SHARE * 100:.0f} % of its bandwidth and {COMPUTE_SHARE * 100:.0f} % of its compute" in text
    )
    assert f"{SETTINGS.max_num_seqs} slots and a KV cache of {SETTINGS.kv_cache_size_tokens:,} tokens" in text
    assert f"decode reaches {ollama_models.EFFICIENCY * 100:.0f} %" in text
    assert f"{DEVICE} that reaches" in text
    assert ollama_models.DEVICE in text
    for name in (VLLM_NAME, OLLAMA_NAME, *(model.name for model in ollama_models.MODELS)):
        assert f"`{name}`" in text
    assert f"port {PROMETHEUS_PORT} of" in text


def test_every_flag_of_the_demo_is_on_its_page_and_nothing_else_is() -> None:
    listed = {
        flag for _, cells in tables(page("docs/demo.md"), "flag", "what it is for") for flag in every_code(cells[0])
    }
    assert listed == flags_of("demo").keys()
