"""What does not agree among docker-compose.yml, the Dockerfile, the code and every file that is mounted."""

import configparser
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from tests.support.compose_closed import excesses
from tests.support.compose_file import Stack, only

IMAGE: Final = "ghcr.io/phasewatch/phasewatch"
EXPORTERS: Final = ("exporter", "demo")
CLOSED: Final = (*EXPORTERS, "prometheus", "alertmanager", "grafana")
"""Services that get by with a read-only file system and a user of their own."""

_PINNED: Final = re.compile(r":v?\d+\.\d+\.\d+(-[\w.-]+)?$")


def problems(root: Path) -> list[str]:
    """What does not agree among the files below a folder; nothing where all is well."""
    stack = Stack(root)
    checks = (
        _image,
        _exporters,
        _services,
        _mounts,
        _prometheus,
        _alertmanager,
        _grafana,
        _targets,
        _profiles,
        _override,
    )
    complaints = [f"{check.__name__[1:]}: {complaint}" for check in checks for complaint in check(stack)]
    return complaints + list(excesses(stack))


def _differ(what: str, *values: object) -> Iterator[str]:
    if any(value != values[0] for value in values):
        yield f"{what}: {', '.join(map(repr, values))}"


def _image(stack: Stack) -> Iterator[str]:
    bases = [rest.split()[0] for word, rest in stack.docker if word == "FROM"]
    yield from _differ("base images", *bases)
    yield from (f"base image {base} is not pinned" for base in bases if not _PINNED.search(base))
    yield from _differ("EXPOSE", stack.instruction("EXPOSE"), stack.port)
    environment = dict(re.findall(r"(\w+)=(\S+)", stack.instruction("ENV")))
    yield from _differ("listens on", environment["PHASEWATCH_WEB_LISTEN_ADDRESS"], f":{stack.port}")
    version = only(r'image\.version="([^"]+)"', stack.instruction("LABEL"))
    commented = re.findall(rf"{IMAGE}:([\d.]+\d)", stack.text("Dockerfile"))
    yield from _differ("version", version, stack.version, *commented)
    yield from _differ("HOME", environment.get("HOME"), "/tmp")  # noqa: S108  # of a container, where it is a tmpfs or read-only
    (copied,) = (rest.split() for word, rest in stack.docker if word == "COPY" and "--from=build" in rest)
    entry, *_ = json.loads(stack.instruction("ENTRYPOINT"))
    check = json.loads(stack.instruction("HEALTHCHECK").partition("CMD ")[2])[0]
    # A virtual environment knows its own path, so it is copied to where it was made.
    yield from _differ("the environment is at", *copied[1:], *(str(Path(path).parents[1]) for path in (entry, check)))
    installed = only(r'"phasewatch\[([\w,]+)\] @', stack.text("Dockerfile"))
    yield from _differ("extras", installed, "auth,nvidia")
    if not re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", stack.instruction("USER")):
        yield f"USER {stack.instruction('USER')}"
    if f":{stack.port}/-/ready" not in stack.instruction("HEALTHCHECK"):
        yield f"HEALTHCHECK {stack.instruction('HEALTHCHECK')}"


def _exporters(stack: Stack) -> Iterator[str]:
    check = json.loads(stack.instruction("HEALTHCHECK").partition("CMD ")[2])
    times = dict(re.findall(r"--([\w-]+)=(\w+)", stack.instruction("HEALTHCHECK")))
    for name in EXPORTERS:
        facts = stack.services[name]
        yield from _differ(f"{name}: image", facts["image"], f"{IMAGE}:{stack.version}")
        yield from _differ(f"{name}: user", facts["user"], stack.instruction("USER"))
        yield from _differ(f"{name}: ports", *stack.published(name)[1:], stack.port)
        yield from _differ(f"{name}: health check", facts["healthcheck"]["test"], ["CMD", *check])
        for key, value in times.items():
            yield from _differ(f"{name}: {key}", str(facts["healthcheck"][key.replace("-", "_")]), value)


def _services(stack: Stack) -> Iterator[str]:
    for name, facts in stack.services.items():
        wanted = {
            "restart": "unless-stopped",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
        }
        yield from (f"{name}: {key} {facts.get(key)}" for key, value in wanted.items() if facts.get(key) != value)
        if not _PINNED.search(facts["image"]):
            yield f"{name}: image {facts['image']} is not pinned"
        host, _, inside = stack.published(name)
        yield from _differ(f"{name}: published on", host, "127.0.0.1")
        asked = re.findall(r"127\.0\.0\.1:(\d+)", str(facts["healthcheck"]["test"]))
        yield from (f"{name}: health check of port {port}" for port in asked if port != inside)
        if name in CLOSED:
            if facts.get("read_only") is not True:
                yield f"{name}: not read-only"
            if not re.fullmatch(r"[1-9]\d+:\d+", str(facts.get("user"))):
                yield f"{name}: user {facts.get('user')}"
    yield from _differ("users", stack.services["prometheus"]["user"], stack.services["alertmanager"]["user"])


def _mounts(stack: Stack) -> Iterator[str]:
    for name, facts in stack.services.items():
        for mount in stack.mounts(name):
            if not (stack.root / mount.source).exists():
                yield f"{name}: {mount.source} is not there"
            if mount.mode != "ro":
                yield f"{name}: {mount.source} can be written to"
        for word in facts.get("command", ()):
            flag, _, value = word.partition("=")
            if flag == "--config.file" and not stack.root.joinpath(stack.source(name, value) or "-").is_file():
                yield f"{name}: nothing is mounted at {value}"
            if flag in {"--storage.tsdb.path", "--storage.path"}:
                kept = [entry.split(":") for entry in facts["volumes"]]
                if not any(target == [value] and source in stack.compose["volumes"] for source, *target in kept):
                    yield f"{name}: no volume at {value}"
    named = {entry.split(":")[0] for facts in stack.services.values() for entry in facts.get("volumes", ())}
    volumes = {name for name in named if not name.startswith(".")}
    yield from _differ("volumes", volumes, set(stack.compose["volumes"]))


def _prometheus(stack: Stack) -> Iterator[str]:
    prometheus = stack.yaml("alerts/prometheus.yml")
    jobs = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    wanted = {job: _hosts(facts["static_configs"]) for job, facts in jobs.items() if job != "prometheus"}
    wanted["alerts"] = [
        host for one in prometheus["alerting"]["alertmanagers"] for host in _hosts(one["static_configs"])
    ]
    for job, hosts in wanted.items():
        yield from (f"{job}: no service is {host}" for host in hosts if host not in stack.reachable())
    for name in EXPORTERS:
        names = stack.services[name]["networks"]["default"]["aliases"]
        yield from _differ(f"{name} is scraped at", wanted["phasewatch"], [f"{alias}:{stack.port}" for alias in names])
    _, _, own = stack.published("prometheus")
    yield from _differ("itself", _hosts(jobs["prometheus"]["static_configs"]), [f"localhost:{own}"])
    folder = str(Path(_flag(stack, "prometheus", "--config.file")).parent)
    for pattern in prometheus["rule_files"]:
        place = stack.source("prometheus", f"{folder}/{pattern}")
        if place is None or not list(stack.root.glob(place)):
            yield f"no rules at {folder}/{pattern}"
    yield from _external(stack, "prometheus")


def _hosts(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    return [target for config in configs for target in config["targets"]]


def _flag(stack: Stack, service: str, flag: str) -> str:
    return only(rf"^{re.escape(flag)}=(.*)$", "\n".join(stack.services[service]["command"]))


def _external(stack: Stack, service: str) -> Iterator[str]:
    url = _flag(stack, service, "--web.external-url")
    yield from _differ("links lead to", url, f"http://localhost:{stack.published(service)[1]}/")


def _alertmanager(stack: Stack) -> Iterator[str]:
    text = stack.text("alerts/alertmanager.yml")
    folder = str(Path(_flag(stack, "alertmanager", "--config.file")).parent)
    for pattern in yaml.safe_load(text)["templates"]:
        place = stack.source("alertmanager", f"{folder}/{pattern}")
        if place is None or not list(stack.root.glob(place)):
            yield f"no templates at {folder}/{pattern}"
    yield from _external(stack, "alertmanager")
    grafana = only(r'define "phasewatch\.grafana" \}\}(.*)\{\{ end', stack.text("alerts/templates/phasewatch.tmpl"))
    yield from _differ("links to Grafana", grafana, f"http://localhost:{stack.published('grafana')[1]}")
    read = set(re.findall(r"_file: (\S+)", text))
    secrets = {secret["target"] for secret in stack.with_secrets["services"]["alertmanager"]["secrets"]}
    yield from _differ("secrets", read, secrets)


def _grafana(stack: Stack) -> Iterator[str]:
    (source,) = stack.yaml("dashboards/provisioning/datasources/phasewatch.yml")["datasources"]
    if urlsplit(source["url"]).netloc not in stack.reachable():
        yield f"no service is {source['url']}"
    (job,) = (job for job in stack.yaml("alerts/prometheus.yml")["scrape_configs"] if job["job_name"] == "phasewatch")
    yield from _differ("interval", source["jsonData"]["timeInterval"], job["scrape_interval"])
    for kind in ("dashboards", "datasources"):
        place = stack.source("grafana", f"/etc/grafana/provisioning/{kind}/phasewatch.yml")
        yield from _differ("provisioning", place, f"dashboards/provisioning/{kind}/phasewatch.yml")
    (provider,) = stack.yaml("dashboards/provisioning/dashboards/phasewatch.yml")["providers"]
    yield from _differ("boards", stack.source("grafana", provider["options"]["path"]), "dashboards/json")
    yield from _differ("settings", stack.source("grafana", "/etc/grafana/grafana.ini"), "dashboards/grafana.ini")
    settings = configparser.ConfigParser()
    settings.read_string(stack.text("dashboards/grafana.ini"))
    home = settings["dashboards"]["default_home_dashboard_path"]
    yield from _differ("home", stack.source("grafana", home), "dashboards/json/phasewatch-overview.json")


def _targets(stack: Stack) -> Iterator[str]:
    text = stack.text("deploy/compose/phasewatch.yml")
    targets = yaml.safe_load(text)["targets"]
    (outside,) = (entry.partition(":")[0] for entry in stack.services["exporter"]["extra_hosts"])
    ports = {
        "vllm": stack.published("vllm")[2],
        "ollama": stack.published("ollama")[2],
        "llamacpp": "8080",  # on the host alone, at llama-server's own default
    }
    for target in targets:
        yield from _differ(
            target["name"],
            urlsplit(target["url"]).netloc,
            f"{outside if target['name'].startswith('host-') else target['backend']}:{ports[target['backend']]}",
        )
    # The example of objectives in prometheus.yml speaks of the same server under the same name.
    host, name = re.findall(
        r'# +- targets: \["(.+)"\]\n +# +labels: \{target: (\w+)\}', stack.text("alerts/prometheus.yml")
    )[0]
    yield from _differ("objectives", {f"http://{host}": name}, {f"http://{host}": _named(targets, f"http://{host}")})
    given = {f"/run/secrets/{name}" for name in stack.with_secrets["services"]["exporter"]["secrets"]}
    yield from _differ("credentials", set(re.findall(r"credentials_file: ([^\s}]+)", text)), given)
    yield from (
        f"{path} is not the file of the exporter"
        for path in re.findall(r"--config\.file=(\S+)", text)
        if path != _flag(stack, "exporter", "--config.file")
    )
    files = stack.with_secrets["secrets"]
    asked = {name.removeprefix("/run/secrets/") for name in given}
    asked |= {secret["source"] for secret in stack.with_secrets["services"]["alertmanager"]["secrets"]}
    yield from _differ("files of secrets", asked, set(files))


def _named(targets: Sequence[Mapping[str, str]], url: str) -> str | None:
    return next((target["name"] for target in targets if target["url"] == url), None)


def _profiles(stack: Stack) -> Iterator[str]:
    profiles = {name: set(facts.get("profiles", ())) for name, facts in stack.services.items()}
    yield from _differ("both exporters run at once in", profiles["exporter"] & profiles["demo"], set())
    chosen = set(only(r"^COMPOSE_PROFILES=(.+)$", stack.text(".env")).split(","))
    yield from _differ("by default", chosen, chosen & profiles["exporter"])
    for server in ("vllm", "ollama"):
        if not profiles[server] <= profiles["exporter"]:
            yield f"{server} runs without the exporter"
    yield from _differ("profiles", set().union(*profiles.values()), {"exporter", "demo", "vllm", "ollama"})
    for name, facts in stack.services.items():
        for other in facts.get("depends_on", ()):
            if profiles.get(other):
                yield f"{name} waits for {other}, which only runs with a profile"


def _override(stack: Stack) -> Iterator[str]:
    for name, facts in stack.yaml("deploy/compose/override.example.yml")["services"].items():
        shipped = {mount.target: Path(mount.source).name for mount in stack.mounts(name)}
        for volume in facts["volumes"]:
            # Compose puts it in place of the shipped file only where the path inside is the same.
            wanted = f"./deploy/compose/site/{shipped.get(volume['target'])}"
            yield from _differ(f"{name}: own file", volume["source"], wanted)
            if volume["read_only"] is not True or volume["bind"]["create_host_path"] is not False:
                yield f"{name}: {volume['source']} can be written to, or becomes a folder where it is not there"
