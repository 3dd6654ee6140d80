"""The service in deploy/systemd is one that systemd takes, confined, agreed with the program, and as the page says."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from phasewatch.cli.arguments import DEFAULT_PORT, create_parser
from phasewatch.cli.flags import name_environment_variable
from phasewatch.cli.main import main
from phasewatch.hardware.wording import CPU
from tests.support.alert_stack import uncommented
from tests.support.command_line import flags_of
from tests.support.markdown import code, every_code, fences, page, tables
from tests.support.paths import ROOT
from tests.support.processes import needs
from tests.support.targets import parse_config

SYSTEMD: Final = ROOT / "deploy" / "systemd"
SERVICE: Final = SYSTEMD / "phasewatch.service"
DROP_INS: Final = ("credentials.conf", "gpu.conf")
PROGRAM: Final = "/opt/phasewatch/bin/phasewatch"
PAGE: Final = page("docs/systemd.md")

WORST: Final = {(): 1.5, DROP_INS: 2.0}
"""The exposure that is promised for the service with these drop-ins; systemd's scale ends at 10."""


def settings(text: str) -> list[tuple[str, str]]:
    """The keys of a unit with their values; a key may be there several times."""
    lines = (line for line in text.splitlines() if line and line[0] not in "#[")
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def values(text: str, key: str) -> list[str]:
    return [value for name, value in settings(text) if name == key]


def installed(folder: Path, drop_ins: tuple[str, ...] = (), *, change: tuple[str, str] = ("", "")) -> Path:
    """The service as it would be installed, but for the place of the program."""
    text = SERVICE.read_text(encoding="utf-8")
    assert change[0] in text
    unit = folder / SERVICE.name
    program = shutil.which("phasewatch", path=str(Path(sys.executable).parent))
    assert program
    unit.write_text(text.replace(PROGRAM, program).replace(*change, 1), encoding="utf-8")
    (folder / f"{SERVICE.name}.d").mkdir()
    for name in drop_ins:
        shutil.copy(SYSTEMD / name, folder / f"{SERVICE.name}.d")
    return unit


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def complaints(unit: Path) -> str:
    """What systemd has against a unit. It complains of an unknown key and goes on, so its exit code tells little."""
    done = analyze("verify", "--man=no", unit)
    return "".join(line for line in done.stderr.splitlines(keepends=True) if unit.name in line) + "failed" * (
        done.returncode != 0
    )


@needs("systemd-analyze")
@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in DROP_INS), DROP_INS])
def test_systemd_finds_no_mistake_in_the_service(drop_ins: tuple[str, ...], tmp_path: Path) -> None:
    assert complaints(installed(tmp_path, drop_ins)) == ""


@needs("systemd-analyze")
@pytest.mark.parametrize(
    "change",
    [
        ("ProtectSystem=", "ProtectSytem="),
        ("Type=exec", "Type=program"),
        ("MemoryMax=256M", "MemoryMax=much"),
        ("SystemCallFilter=@system-service", "SystemCallFilter=@system-services"),
        ("ExecStart=", "ExecStart=/nowhere"),
    ],
)
def test_systemd_finds_every_mistake_that_is_made_in_the_service(change: tuple[str, str], tmp_path: Path) -> None:
    assert complaints(installed(tmp_path, change=change)) != ""


@needs("systemd-analyze")
@pytest.mark.parametrize(("drop_ins", "worst"), WORST.items())
def test_the_service_is_confined(drop_ins: tuple[str, ...], worst: float, tmp_path: Path) -> None:
    done = analyze(
        "security", "--offline=true", f"--threshold={worst * 10:.0f}", "--no-pager", installed(tmp_path, drop_ins)
    )
    assert done.returncode == 0, done.stdout


@needs("systemd-analyze")
def test_a_service_that_is_less_confined_is_found(tmp_path: Path) -> None:
    unit = installed(tmp_path, change=("CapabilityBoundingSet=\n", "\n"))
    assert analyze("security", "--offline=true", f"--threshold={WORST[()] * 10:.0f}", unit).returncode != 0


def test_keys_that_the_score_of_systemd_leaves_out_are_as_they_must_be() -> None:
    for file, key, value in (
        # A user of its own: what runs as root may read every secret of the machine.
        (SERVICE.name, "DynamicUser", "yes"),
        # It is restarted, also at the start of the machine, when names can be looked up.
        (SERVICE.name, "Restart", "on-failure"),
        (SERVICE.name, "Wants", "network-online.target"),
        (SERVICE.name, "After", "network-online.target"),
        (SERVICE.name, "WantedBy", "multi-user.target"),
        # NVIDIA's library opens the devices, with its own user, for reading and writing, and no other device.
        ("gpu.conf", "PrivateDevices", "no"),
        ("gpu.conf", "PrivateUsers", "no"),
        ("gpu.conf", "DevicePolicy", "closed"),
        ("gpu.conf", "DeviceAllow", "char-nvidia* rw"),
    ):
        assert values((SYSTEMD / file).read_text(encoding="utf-8"), key) == [value], (file, key)


def test_the_page_promises_what_is_tested() -> None:
    promised = re.search(r"hold this one below ([\d.]+), and below ([\d.]+) with both drop-ins", " ".join(PAGE.split()))
    assert promised
    assert [float(number) for number in promised.groups()] == list(WORST.values())


# Agreed


def test_the_service_starts_the_program_and_reloads_it_by_a_signal() -> None:
    text = SERVICE.read_text(encoding="utf-8")
    (start,) = values(text, "ExecStart")
    first, second = values(text, "ExecReload")
    for line in (start, first):
        program, *words = shlex.split(line)
        assert program == PROGRAM
        # The file comes from the environment, without which `check` would end with an error of usage.
        environment = dict(value.split("=", 1) for value in values(text, "Environment"))
        file = environment[name_environment_variable("--config.file")]
        options = create_parser().parse_args([*words, "--config.file", file])
        assert str(options.config_file) == places()["phasewatch.yml"]
    assert shlex.split(second) == ["/bin/kill", "-HUP", "$MAINPID"]


def places() -> dict[str, str]:
    """Where each file goes, by what it says itself."""
    return {
        path.name: re.sub(r"\s*\n# ", " ", path.read_text(encoding="utf-8"))
        .partition("Meant to be ")[2]
        .split()[0]
        .rstrip(".,;")
        for path in SYSTEMD.iterdir()
    }


def test_every_file_is_listed_with_its_place_and_nothing_else_is() -> None:
    listed = {code(file): code(place) for _, (file, place, _) in tables(PAGE, "file", "goes to", "what is in it")}
    assert listed == {f"deploy/systemd/{name}": place for name, place in places().items()}


def test_the_commands_of_the_page_put_every_file_where_it_goes() -> None:
    done = dict(re.findall(r"^install (?:-D )?-m 644 deploy/systemd/(\S+) (\S+)$", PAGE, re.MULTILINE))
    assert done == places()


def test_the_files_that_the_service_reads_are_those_that_are_installed() -> None:
    text = SERVICE.read_text(encoding="utf-8")
    assert values(text, "EnvironmentFile") == [f"-{places()['phasewatch.env']}"]
    # Its user is not the one who installs, and must be able to read the program.
    assert f"```\numask 022\npython3 -m venv {Path(PROGRAM).parents[1]}\n" in PAGE


def test_the_remedy_of_the_page_makes_an_unreadable_program_readable(tmp_path: Path) -> None:
    program = tmp_path / "phasewatch" / "bin" / "phasewatch"
    program.parent.mkdir(parents=True)
    program.touch()
    for path, mode in ((program.parents[1], 0o700), (program.parent, 0o700), (program, 0o700)):
        path.chmod(mode)
    (remedy,) = re.findall(r"`(chmod -R \S+) /opt/phasewatch`", PAGE)
    subprocess.run([*shlex.split(remedy), program.parents[1]], check=True)
    assert all(path.stat().st_mode & 0o055 == 0o055 for path in (program.parents[1], program.parent, program))


def test_a_secret_is_where_the_configuration_looks_for_it() -> None:
    ((name, _, source),) = (
        value.partition(":") for value in values((SYSTEMD / "credentials.conf").read_text(), "LoadCredential")
    )
    expected = f"/run/credentials/{SERVICE.name}/{name}"
    (example,) = (text for text in fences(PAGE, "yaml") if "credentials_file" in text)
    for text in (uncommented((SYSTEMD / "phasewatch.yml").read_text(encoding="utf-8")), example):
        authorizations = [target.authorization for target in parse_config(text).targets if target.authorization]
        assert [str(authorization.credentials_file) for authorization in authorizations] == [expected]
    assert expected in (SYSTEMD / "credentials.conf").read_text(encoding="utf-8")
    assert f"install -m 600 key.txt {source}\n" in PAGE


def test_the_configuration_is_valid_as_it_is_and_with_its_comments_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SYSTEMD / "phasewatch.yml").read_text(encoding="utf-8")
    for form, number in ((text, 0), (uncommented(text), 1)):
        (tmp_path / "phasewatch.yml").write_text(form, encoding="utf-8")
        assert main(["check", "--config.file", str(tmp_path / "phasewatch.yml")]) == 0
        notes = [line for line in capsys.readouterr().err.splitlines() if "note: " in line]
        assert len(notes) == number, notes


def test_the_variables_are_flags_of_serve_and_their_values_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (SYSTEMD / "phasewatch.env").read_text(encoding="utf-8")
    variables = dict(re.findall(r"^# (PHASEWATCH_\w+)=(.*)$", text, re.MULTILINE))
    assert variables
    assert variables.keys() <= {variable for variable, _ in flags_of("serve").values()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = create_parser().parse_args(["serve"])
    assert options.web_listen_address[1] == DEFAULT_PORT


def test_the_measured_bandwidth_is_kept_where_the_service_may_write() -> None:
    text = SERVICE.read_text(encoding="utf-8")
    (folder,) = values(text, "StateDirectory")
    assert "XDG_STATE_HOME=/var/lib" in values(text, "Environment")
    assert folder == "phasewatch"
    # Root makes the file, and the user of the service must be able to read it, whatever the umask of root.
    assert "```\numask 022\nXDG_STATE_HOME=/var/lib /opt/phasewatch/bin/phasewatch devices --measure\n" in PAGE


def test_the_example_with_a_measured_bandwidth_is_a_vllm_on_the_cpu() -> None:
    (text,) = (text for text in fences(PAGE, "yaml") if "device:" in text)
    (target,) = parse_config(text).targets
    assert target.backend == "vllm"
    assert target.device.name == CPU


@needs("systemd-analyze")
def test_the_drop_ins_of_the_page_are_valid(tmp_path: Path) -> None:
    unit = installed(tmp_path)
    texts = fences(PAGE, "ini")
    for number, text in enumerate(texts):
        (tmp_path / f"{SERVICE.name}.d" / f"{number}.conf").write_text(
            text.replace("/srv/phasewatch/bin/phasewatch", "/bin/true"), encoding="utf-8"
        )
    assert complaints(unit) == ""
    assert len(texts) > 2


def test_what_the_page_removes_is_what_was_installed() -> None:
    (line,) = re.findall(r"\*\*Remove\*\*:.*?(?=\n\n)", PAGE, re.DOTALL)
    removed = every_code(line)
    assert all(any(place.startswith(folder) for folder in removed) for place in [*places().values(), PROGRAM])
