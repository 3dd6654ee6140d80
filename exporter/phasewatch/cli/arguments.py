"""The argparse tree: commands, flags, help."""

import argparse
from pathlib import Path
from typing import Any, Final

from phasewatch import __version__
from phasewatch.cli.flags import (
    add_flag,
    add_switch,
    create_whole_number_parser,
    parse_address,
    parse_duration,
    parse_log_format,
    parse_log_level,
    parse_recording_path,
    parse_replay_format,
    parse_size,
)

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 10061

MOST_SERVERS: Final = 100
"""Limit on the simulated servers of a demo, each of which takes a few percent of a core."""

_LARGEST_SEED: Final = 2**32 - 1

_DESCRIPTION: Final = """\
Tells prefill from decode on self-hosted LLM servers: a Prometheus exporter for vLLM,
llama.cpp and Ollama.

Each command explains itself: phasewatch COMMAND --help"""

_EPILOG: Final = """\
exit codes:
  0  success, or ended by SIGTERM
  1  invalid configuration, or a failed check
  2  wrong usage
  3  the listen address cannot be taken

Every flag can also be given in the environment, under the name that its help
shows. A flag beats the environment, which beats the configuration file."""


def create_parser() -> argparse.ArgumentParser:
    """Create the parser of the program; it stores the name of the command as `command`."""
    parser = argparse.ArgumentParser(
        prog="phasewatch",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"phasewatch {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_serve_parser(commands)
    _add_check_parser(commands)
    _add_record_parser(commands)
    _add_replay_parser(commands)
    _add_devices_parser(commands)
    _add_demo_parser(commands)
    _add_assets_parser(commands)
    return parser


def _add_serve_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "serve",
        "run the exporter",
        "Watches the configured servers and serves their numbers at /metrics until SIGTERM or SIGINT.\n"
        "SIGHUP reads the configuration again; an invalid one is refused and the one before stays.\n"
        "Without a configuration file: one vLLM at http://127.0.0.1:8000 and one Ollama at\n"
        "http://127.0.0.1:11434, each shown once it has answered.",
        "examples:\n  phasewatch serve\n  phasewatch serve --config.file phasewatch.yml --web.listen-address :10061",
    )
    add_flag(parser, "--config.file", "configuration file", metavar="FILE", type=Path)
    _add_listen_flag(parser)
    add_flag(
        parser,
        "--web.config.file",
        "TLS and basic authentication, in the format of Prometheus' exporters",
        metavar="FILE",
        type=Path,
    )
    add_switch(parser, "--web.enable-lifecycle", "allow POST /-/reload")
    _add_log_flags(parser)


def _add_check_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "check",
        "validate a configuration file",
        "Reads a configuration file and tells every mistake on a line of its own, as `path.to.key: message`.\n"
        "No server is contacted. Exits with 1 if there is a mistake.",
        "example:\n  phasewatch check --config.file phasewatch.yml",
    )
    add_flag(parser, "--config.file", "configuration file", metavar="FILE", type=Path, required=True)


def _add_record_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "record",
        "keep a server's pages in a file",
        "Reads a server's metrics at a fixed pace and keeps them, to study later or attach to a report.\n"
        "A recording holds a vLLM's /metrics, /version and /v1/models; a llama-server's /metrics, /v1/models\n"
        "and the figures from /slots and /props; or an Ollama's models and the figures of its llama-servers.\n"
        "It holds no credentials, prompts or answers. The kind of server at an address is recognised; if it\n"
        "is not, a vLLM is assumed.\n"
        "Ctrl-C ends it early and keeps the file. Exits with 1 if not one page could be had, or used.",
        "examples:\n"
        "  phasewatch record --target http://127.0.0.1:8000 --duration 2m --output slow.jsonl.xz\n"
        "  phasewatch record --config.file phasewatch.yml --target chat --output chat.jsonl.gz",
    )
    add_flag(
        parser, "--target", "address of a server, or a target's name in the file", metavar="URL|NAME", required=True
    )
    add_flag(parser, "--config.file", "configuration file that names the target", metavar="FILE", type=Path)
    add_flag(parser, "--duration", "how long to record", metavar="DURATION", type=parse_duration, default="5m")
    add_flag(parser, "--interval", "time between two pages", metavar="DURATION", type=parse_duration, default="1s")
    add_flag(
        parser,
        "--output",
        "file to write; ends in .jsonl, .jsonl.gz or .jsonl.xz",
        metavar="FILE",
        type=parse_recording_path,
        required=True,
    )


def _add_replay_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "replay",
        "run a recording through the exporter",
        "Runs what `serve` does over a recording and prints what /metrics would have shown after each scrape.\n"
        "The recording plays the configuration's only target, or the named one, which must be of the recorded\n"
        "kind of server; without a file, a target named `recording`. No server is contacted.",
        "examples:\n"
        "  phasewatch replay slow.jsonl.xz --format json | jq -c '.t'\n"
        "  phasewatch replay slow.jsonl.xz --format openmetrics > slow.om\n"
        "  promtool tsdb create-blocks-from openmetrics slow.om data/",
    )
    parser.add_argument("recording", metavar="FILE", type=Path, help="recording: .jsonl, .jsonl.gz or .jsonl.xz")
    add_flag(parser, "--config.file", "configuration file", metavar="FILE", type=Path)
    add_flag(parser, "--target", "name of the target that the recording plays", metavar="NAME")
    add_flag(
        parser,
        "--format",
        "json: a line per scrape; openmetrics: one text with timestamps",
        metavar="FORMAT",
        type=parse_replay_format,
        default="json",
    )


def _add_devices_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "devices",
        "show the table of devices, or what a name means",
        "Without a NAME prints the devices whose memory bandwidth and compute rates are known, and what was\n"
        "measured of this machine. With a NAME, as nvidia-smi or another driver prints it or as you would\n"
        "configure it, tells which device it is and where its figures come from; exits with 1 if it is none, or\n"
        "may be several. Names count as a whole: nothing is guessed from a part of one.\n"
        "--measure reads this machine's memory for a few seconds and keeps the speed, for models that run on\n"
        "its processor. Do that while no server works: both would slow each other down.",
        "examples:\n"
        "  phasewatch devices\n"
        "  phasewatch devices 'NVIDIA H100 80GB HBM3'\n"
        "  phasewatch devices 'NVIDIA GeForce RTX 3080' --memory 12GB\n"
        "  phasewatch devices 'NVIDIA A100-SXM4-80GB MIG 3g.40gb'\n"
        "  phasewatch devices --measure",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of a device")
    add_flag(parser, "--memory", "memory of the device, where several share a name", metavar="SIZE", type=parse_size)
    add_switch(parser, "--measure", "measure how fast this machine reads its memory")


def _add_demo_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "demo",
        "watch simulated servers, without a GPU",
        "Starts a simulated vLLM, a simulated llama-server and a simulated Ollama on free ports of 127.0.0.1, with\n"
        "the exporter that `serve` runs on top, until Ctrl-C or SIGTERM. Nothing else is needed, and nothing is\n"
        "left behind. Within minutes the vLLM goes through every state of saturation that a server can show, and\n"
        "begins anew; the log tells each act as it begins, with what to look at. The llama-server has a shorter\n"
        "script, and the Ollama has users of its own: models are loaded, probed, pushed out and unloaded. The\n"
        "servers speak as real ones do, so that dashboards and rules see what a real one would show; no number was\n"
        "measured on real hardware. --with-prometheus also starts the program `prometheus` from PATH, with the\n"
        "shipped alert rules, at http://127.0.0.1:9090 or on a free port; its data is removed at the end.",
        "examples:\n"
        "  phasewatch demo\n"
        "  phasewatch demo --with-prometheus\n"
        "  phasewatch demo --servers 8 --web.listen-address 127.0.0.1:0",
    )
    _add_listen_flag(parser)
    add_flag(
        parser,
        "--seed",
        "for the randomness of the simulations; the same one gives the same",
        metavar="NUMBER",
        type=create_whole_number_parser(0, _LARGEST_SEED),
        default="1",
    )
    add_flag(
        parser,
        "--servers",
        "how many simulated vLLMs, each at another act",
        metavar="NUMBER",
        type=create_whole_number_parser(1, MOST_SERVERS),
        default="1",
    )
    add_switch(parser, "--with-prometheus", "start Prometheus as well")
    _add_log_flags(parser)


def _add_assets_parser(commands: Any) -> None:
    parser = _add_command(
        commands,
        "assets",
        "write out the dashboards and alert rules",
        "Writes the Grafana dashboards, the rules and configurations for Prometheus and Alertmanager, and what\n"
        "Grafana needs to find the dashboards by itself, into DIR/dashboards and DIR/alerts, and tells what to do\n"
        "with them. DIR is made if need be. Files that are there as shipped are left alone. If one differs,\n"
        "nothing is written and the exit code is 1: you may have edited it. After an upgrade, write them into\n"
        "another folder and compare.",
        "examples:\n  phasewatch assets export phasewatch-assets\n  diff -r phasewatch-assets phasewatch-assets-new",
    )
    parser.add_argument("action", metavar="export", choices=("export",), help="write them out")
    parser.add_argument("directory", metavar="DIR", type=_parse_folder, help="folder to write into")
    add_switch(parser, "--force", "overwrite files that differ from the shipped ones")


def _parse_folder(text: str) -> Path:
    """Parse the path of a folder; an empty one would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a folder")
    return Path(text)


def _add_listen_flag(parser: argparse.ArgumentParser) -> None:
    add_flag(
        parser,
        "--web.listen-address",
        "address to listen on; [::1]:PORT for IPv6, :PORT for all addresses",
        metavar="HOST:PORT",
        type=parse_address,
        default=f"{DEFAULT_HOST}:{DEFAULT_PORT}",
    )


def _add_log_flags(parser: argparse.ArgumentParser) -> None:
    add_flag(
        parser, "--log.level", "debug, info, warning or error", metavar="LEVEL", type=parse_log_level, default="info"
    )
    add_flag(parser, "--log.format", "logfmt or json", metavar="FORMAT", type=parse_log_format, default="logfmt")


def _add_command(commands: Any, name: str, summary: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(command=name)
    return parser
