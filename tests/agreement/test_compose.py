"""docker-compose.yml agrees with the code, the Dockerfile and all that it mounts, and a change in one place shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from phasewatch import assets
from phasewatch.cli.arguments import DEFAULT_PORT, create_parser
from tests.support.compose_changes import COMPOSE, CONFIG, MUTATIONS, OVERRIDE, TEMPLATE
from tests.support.compose_checks import EXPORTERS, problems
from tests.support.compose_closed import mebibytes
from tests.support.compose_file import FILES, Stack, interpolated, only, uncommented_secrets
from tests.support.markdown import code, fences, page, tables
from tests.support.paths import DASHBOARDS_JSON, ROOT
from tests.support.processes import needs
from tests.support.targets import parse_config

SITE: Final = ("alerts/rules/site.yml", "alerts/templates/site.tmpl", "deploy/compose/site/")
"""Where an operator puts what is meant for nobody else."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that is compared."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "alerts" / "rules").symlink_to(ROOT / "alerts" / "rules")
    (folder / "dashboards" / "json").symlink_to(DASHBOARDS_JSON)
    return folder


def test_the_compose_file_agrees_with_everything_it_mounts(copied: Path) -> None:
    assert problems(ROOT) == []
    assert problems(copied) == []


def test_every_change_in_one_place_alone_is_noticed(copied: Path) -> None:
    for name, old, new in MUTATIONS:
        text = (copied / name).read_text()
        assert text.count(old) == 1, (name, old)
        (copied / name).write_text(text.replace(old, new))
        try:
            assert noticed(copied), (name, old, new)
        finally:
            (copied / name).write_text(text)


def noticed(folder: Path) -> bool:
    """Whether the comparison fails, in its own words or because what it looks for has gone altogether."""
    try:
        return problems(folder) != []
    except (AssertionError, KeyError, ValueError):
        return True


def test_the_compose_file_is_valid_with_and_without_its_secrets(tmp_path: Path) -> None:
    for text in (page(COMPOSE), uncommented_secrets(page(COMPOSE))):
        (tmp_path / COMPOSE).write_text(text)
        checked = schema_check(tmp_path / COMPOSE)
        assert checked.returncode == 0, checked.stdout
        (tmp_path / COMPOSE).write_text(text.replace("retries:", "retrys:"))
        assert schema_check(tmp_path / COMPOSE).returncode == 1


def schema_check(path: Path) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_program_understands_its_commands() -> None:
    for name in EXPORTERS:
        command = Stack(ROOT).services[name]["command"]
        options = create_parser().parse_args(command)
        assert options.command == command[0], name
        if name == "exporter":
            assert options.config_file == Path(Stack(ROOT).mounts(name)[0].target)


def test_the_configuration_of_the_exporter_is_valid_and_shows_no_server_that_is_not_there() -> None:
    config = parse_config(page(CONFIG))
    assert config.notes == ()
    assert all(target.optional for target in config.targets)


def test_the_examples_in_the_configuration_are_valid() -> None:
    text = re.sub(r"^( *)# ((?:device|model|authorization): )", r"\1\2", page(CONFIG), flags=re.MULTILINE)
    notes = [note for note in parse_config(text).notes if not note.message.startswith("cannot be read now")]
    assert notes == []
    assert len(yaml.safe_load(text)["targets"][0]) == len(yaml.safe_load(page(CONFIG))["targets"][0]) + 2


def compose_program() -> str | None:
    """The program `docker-compose`, if there is one newer than 1.x; it needs no engine to say what it would run."""
    path = shutil.which("docker-compose")
    if path is None:
        return None
    version = subprocess.run([path, "version", "--short"], capture_output=True, text=True, check=False).stdout
    return None if version.startswith("1.") else path


COMPOSE_PROGRAM: Final = compose_program()

ALWAYS: Final = {"prometheus", "alertmanager", "grafana"}


@pytest.mark.skipif(COMPOSE_PROGRAM is None, reason="docker-compose, 2.28 or newer, is not on PATH")
@pytest.mark.parametrize("read", [str, uncommented_secrets], ids=["as it is", "with secrets"])
@pytest.mark.parametrize(
    ("chosen", "more"),
    [
        ([], {"exporter"}),
        (["--profile", "vllm"], {"exporter", "vllm"}),
        (["--profile", "ollama"], {"exporter", "ollama"}),
        (["--profile", "demo"], {"demo"}),
        (["--profile", "*"], {"exporter", "demo", "vllm", "ollama"}),
    ],
)
def test_compose_runs_the_services_of_a_profile(copied: Path, chosen: list[str], more: set[str], read: type) -> None:
    assert COMPOSE_PROGRAM
    text = page(COMPOSE)
    (copied / COMPOSE).write_text(read(text))
    environment = {"PATH": os.environ["PATH"], "HOME": str(copied)}
    words = [COMPOSE_PROGRAM, *chosen, "config", "--services"]
    try:
        done = subprocess.run(words, cwd=copied, env=environment, capture_output=True, text=True, check=False)
    finally:
        (copied / COMPOSE).write_text(text)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == ALWAYS | more


def test_every_variable_is_documented_with_its_default_and_nothing_else_is() -> None:
    listed = {code(cells[0]): code(cells[1]) for _, cells in tables(page("docs/compose.md"), "variable", "default")}
    assert listed == dict(re.findall(r"\$\{(\w+):-([^}]*)\}", page(COMPOSE)))
    assert "${" not in interpolated(page(COMPOSE))


def test_metrics_are_kept_as_long_as_documented() -> None:
    days = only(r"`prometheus-data` \((\d+) days of metrics\)", page("docs/compose.md"))
    assert f"--storage.tsdb.retention.time={days}d" in Stack(ROOT).services["prometheus"]["command"]


def test_the_documented_memory_is_enough_for_the_limits_of_what_always_runs() -> None:
    gigabytes = only(r"(\d+) GB of memory", page("docs/compose.md"))
    services = Stack(ROOT).services
    assert sum(mebibytes(services[name]["mem_limit"]) for name in (*ALWAYS, "exporter")) <= int(gigabytes) * 1024


def test_links_name_the_published_port_even_if_a_variable_changes_it() -> None:
    for service in ("prometheus", "alertmanager"):
        variable = f"${{PORT_OF_{service.upper()}:-{Stack(ROOT).published(service)[1]}}}"
        assert f"--web.external-url=http://localhost:{variable}/" in page(COMPOSE)
        assert f'"127.0.0.1:{variable}:' in page(COMPOSE)


def test_an_override_of_the_example_is_valid_and_the_files_that_it_names_stay_with_the_operator(tmp_path: Path) -> None:
    (tmp_path / COMPOSE).write_text(page(OVERRIDE))
    checked = schema_check(tmp_path / COMPOSE)
    assert checked.returncode == 0, checked.stdout
    ignored = page(".gitignore").splitlines()
    sources = {
        volume["source"] for facts in Stack(ROOT).yaml(OVERRIDE)["services"].values() for volume in facts["volumes"]
    }
    assert {str(Path(source).parent) for source in sources} == {"deploy/compose/site"}
    assert {f"/{name}" for name in (*SITE, "deploy/compose/secrets/", "docker-compose.override.yml")} <= set(ignored)
    assert {*SITE, *sources} & set(map(str, assets.list_paths())) == set()


def test_the_documentation_lets_operators_copy_what_is_packed_before_they_edit_it() -> None:
    """A webhook's address is a password: `docker compose up --build` would put it into the image."""
    text = page("docs/compose.md")
    for source in ("alerts/alertmanager.yml", "alerts/prometheus.yml"):
        assert re.search(rf"install -m 644 .*\b{source}\b.* deploy/compose/site/", text)
        assert f"`deploy/compose/site/{Path(source).name}`" in text
    assert "cp deploy/compose/override.example.yml docker-compose.override.yml" in text


@needs("amtool")
def test_a_template_of_a_site_sets_the_address_of_grafana(tmp_path: Path) -> None:
    shutil.copy(ROOT / TEMPLATE, tmp_path)
    (line,) = fences(page("docs/compose.md"), "gotemplate")
    words = ("amtool", "template", "render", f"--template.glob={tmp_path}/*.tmpl", "--template.text")
    command = (*words, '{{ template "phasewatch.grafana" . }}')
    shipped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (tmp_path / "site.tmpl").write_text(line)
    changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (shipped, changed) == ("http://localhost:3000", only(r"}}(.+){{", line))


def test_every_deployment_has_the_same_image_of_vllm() -> None:
    named = re.compile(r"vllm/vllm-openai:[\w.-]+")
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yaml", ".yml"}]
    images = {path.name: set(named.findall(path.read_text())) for path in [ROOT / COMPOSE, *files]}
    assert set().union(*images.values()) == {Stack(ROOT).services["vllm"]["image"]}, images
    assert not Stack(ROOT).services["vllm"]["command"][0].startswith("-")


def test_every_mounted_file_and_every_volume_is_documented() -> None:
    stack, text = Stack(ROOT), page("docs/compose.md")
    for service in stack.services:
        assert [mount.source for mount in stack.mounts(service) if f"`{mount.source}" not in text] == []
    assert [volume for volume in stack.compose["volumes"] if f"`{volume}`" not in text] == []


def test_every_page_of_the_stack_is_documented() -> None:
    stack, text = Stack(ROOT), page("docs/compose.md")
    for service in ("exporter", "prometheus", "alertmanager", "grafana"):
        assert f"<http://127.0.0.1:{stack.published(service)[1]}" in text
    assert stack.published("exporter")[1] == str(DEFAULT_PORT)


def test_the_versions_in_the_documentation_are_those_that_run() -> None:
    listed = {code(cells[0]): code(cells[1]) for _, cells in tables(page("docs/compose.md"), "service", "image")}
    assert listed == {name: facts["image"] for name, facts in Stack(ROOT).services.items()}
