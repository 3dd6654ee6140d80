"""Commands and flags, nothing else."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from phasewatch import __version__
from phasewatch.config import Config, Target, load, load_or_default, parse
from phasewatch.errors import BindError, ConfigError, PhaseWatchError, Problem
from phasewatch.flags import address, duration, flag, log_format, log_level, recording_path, replay_format, switch

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 10061

OK: Final = 0
INVALID: Final = 1
CANNOT_BIND: Final = 3
INTERRUPTED: Final = 130

_DESCRIPTION: Final = """\
Tells prefill from decode on self-hosted LLM servers: a Prometheus exporter for vLLM.

Each command explains itself: phasewatch COMMAND --help"""

_EPILOG: Final = """\
exit codes:
  0  success, or ended by SIGTERM
  1  invalid configuration, or a failed check
  2  wrong usage
  3  the listen address cannot be taken

Every flag can also be given in the environment, under the name that its help
shows. A flag beats the environment, which beats the configuration file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: the words after the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left. Python would complain once more while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (PhaseWatchError, OSError) as error:
        return _failed(error)
    return code


def _failed(error: PhaseWatchError | OSError) -> int:
    """Tell what is wrong, and give the exit code for it."""
    if isinstance(error, ConfigError):
        for problem in error.problems:
            _complain(str(problem))
    elif isinstance(error, OSError):
        # Whatever reads and writes files has errors of its own; what is left is standard output.
        _complain(f"cannot write: {error.strerror or error}")
    else:
        _complain(str(error))
    return CANNOT_BIND if isinstance(error, BindError) else INVALID


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="phasewatch",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"phasewatch {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _serve_parser(commands)
    _check_parser(commands)
    _record_parser(commands)
    _replay_parser(commands)
    return parser


def _serve_parser(commands: Any) -> None:
    parser = _command(
        commands,
        "serve",
        _serve,
        "run the exporter",
        "Watches the configured servers and serves their numbers at /metrics until SIGTERM or SIGINT.\n"
        "SIGHUP reads the configuration again; an invalid one is refused and the one before stays.\n"
        "Without a configuration file: one vLLM at http://127.0.0.1:8000, shown once it has answered.",
        "examples:\n  phasewatch serve\n  phasewatch serve --config.file phasewatch.yml --web.listen-address :10061",
    )
    flag(parser, "--config.file", "configuration file", metavar="FILE", type=Path)
    flag(
        parser,
        "--web.listen-address",
        "address to listen on; [::1]:PORT for IPv6, :PORT for all addresses",
        metavar="HOST:PORT",
        type=address,
        default=f"{DEFAULT_HOST}:{DEFAULT_PORT}",
    )
    flag(
        parser,
        "--web.config.file",
        "TLS and basic authentication, in the format of Prometheus' exporters",
        metavar="FILE",
        type=Path,
    )
    switch(parser, "--web.enable-lifecycle", "allow POST /-/reload")
    flag(parser, "--log.level", "debug, info, warning or error", metavar="LEVEL", type=log_level, default="info")
    flag(parser, "--log.format", "logfmt or json", metavar="FORMAT", type=log_format, default="logfmt")


def _check_parser(commands: Any) -> None:
    parser = _command(
        commands,
        "check",
        _check,
        "validate a configuration file",
        "Reads a configuration file and tells every mistake on a line of its own, as `path.to.key: message`.\n"
        "No server is contacted. Exits with 1 if there is a mistake.",
        "example:\n  phasewatch check --config.file phasewatch.yml",
    )
    flag(parser, "--config.file", "configuration file", metavar="FILE", type=Path, required=True)


def _record_parser(commands: Any) -> None:
    parser = _command(
        commands,
        "record",
        _record,
        "keep a server's pages in a file",
        "Reads a server's metrics at a fixed pace and keeps the pages, to study later or attach to a report.\n"
        "A recording holds what the server shows at /metrics, /version and /v1/models, and no credentials.\n"
        "Ctrl-C ends it early and keeps the file. Exits with 1 if not one page could be had, or used.",
        "examples:\n"
        "  phasewatch record --target http://127.0.0.1:8000 --duration 2m --output slow.jsonl.xz\n"
        "  phasewatch record --config.file phasewatch.yml --target chat --output chat.jsonl.gz",
    )
    flag(parser, "--target", "address of a vLLM, or a target's name in the file", metavar="URL|NAME", required=True)
    flag(parser, "--config.file", "configuration file that names the target", metavar="FILE", type=Path)
    flag(parser, "--duration", "how long to record", metavar="DURATION", type=duration, default="5m")
    flag(parser, "--interval", "time between two pages", metavar="DURATION", type=duration, default="1s")
    flag(
        parser,
        "--output",
        "file to write; ends in .jsonl, .jsonl.gz or .jsonl.xz",
        metavar="FILE",
        type=recording_path,
        required=True,
    )


def _replay_parser(commands: Any) -> None:
    parser = _command(
        commands,
        "replay",
        _replay,
        "run a recording through the exporter",
        "Runs what `serve` does over a recording and prints what /metrics would have shown after each scrape.\n"
        "The recording plays the configuration's only target, or the named one; without a file, a vLLM\n"
        "named `recording`. No server is contacted.",
        "examples:\n"
        "  phasewatch replay slow.jsonl.xz --format json | jq -c '.t'\n"
        "  phasewatch replay slow.jsonl.xz --format openmetrics > slow.om\n"
        "  promtool tsdb create-blocks-from openmetrics slow.om data/",
    )
    parser.add_argument("recording", metavar="FILE", type=Path, help="recording: .jsonl, .jsonl.gz or .jsonl.xz")
    flag(parser, "--config.file", "configuration file", metavar="FILE", type=Path)
    flag(parser, "--target", "name of the target that the recording plays", metavar="NAME")
    flag(
        parser,
        "--format",
        "json: a line per scrape; openmetrics: one text with timestamps",
        metavar="FORMAT",
        type=replay_format,
        default="json",
    )


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def _complain(message: str) -> None:
    sys.stderr.write(f"{message}\n")


# The heavy modules are imported by the command that needs them, which keeps --help and check quick.


def _serve(options: argparse.Namespace) -> int:
    from phasewatch import app, log  # noqa: PLC0415
    from phasewatch.web.security import load_web_config  # noqa: PLC0415

    config = load_or_default(options.config_file)
    web = load_web_config(options.web_config_file)
    log.configure(options.log_level, options.log_format)
    host, port = options.web_listen_address
    bound = app.bind(host, port)
    settings = app.Settings(
        config_file=options.config_file,
        host=host,
        port=bound.getsockname()[1],
        enable_lifecycle=options.web_enable_lifecycle,
        web=web,
    )
    asyncio.run(app.serve(settings, config, bound))
    return OK


def _check(options: argparse.Namespace) -> int:
    config = load(options.config_file)
    for note in config.notes:
        _complain(f"note: {note}")
    sys.stdout.write(f"configuration valid: {len(config.targets)} target(s)\n")
    return OK


def _record(options: argparse.Namespace) -> int:
    from phasewatch.record import record  # noqa: PLC0415

    target = _recorded_target(options)
    work = record(target, duration=options.duration, interval=options.interval, output=options.output)
    outcome = asyncio.run(work)
    why = f": {outcome.last_error.reason}: {outcome.last_error.message}" if outcome.last_error else ""
    if outcome.scrapes == outcome.failed:
        _complain(f"not one page could be had from {target.url}, nothing was written{why}")
        return INVALID
    if outcome.good == 0:
        _complain(f"wrote {options.output}, but not one page can be used{why}")
        return INVALID
    _complain(f"wrote {options.output}: {outcome.scrapes} scrapes, {outcome.failed} failed")
    return OK


def _replay(options: argparse.Namespace) -> int:
    from phasewatch import replay  # noqa: PLC0415
    from phasewatch.recording import Reader  # noqa: PLC0415

    target = _played_target(options)
    recording = Reader(options.recording)
    if options.format == "openmetrics":
        sys.stdout.write(replay.as_openmetrics(recording, target))
    else:
        for line in replay.as_json(recording, target):
            sys.stdout.write(f"{line}\n")
    return OK


def _recorded_target(options: argparse.Namespace) -> Target:
    """The target to record: by name from the file, or an address that needs no file.

    Raises:
        ConfigError: there is no such target, or the address is none.
    """
    wanted = options.target
    if "://" not in wanted:
        return _named(load_or_default(options.config_file), wanted, "an address begins with http:// or https://; ")
    text = json.dumps({"targets": [{"name": "recording", "backend": "vllm", "url": wanted}]})
    try:
        return parse(text).targets[0]
    except ConfigError as error:
        raise ConfigError([Problem("--target", problem.message) for problem in error.problems]) from error


def _played_target(options: argparse.Namespace) -> Target:
    """The target that a recording plays.

    Raises:
        ConfigError: the file has no such target, or several and none was named.
    """
    if options.config_file is None:
        return Target(name=options.target or "recording", backend="vllm", url="http://recording.invalid")
    config = load(options.config_file)
    if options.target is not None:
        return _named(config, options.target)
    if len(config.targets) > 1:
        names = ", ".join(target.name for target in config.targets)
        raise ConfigError([Problem("--target", f"the configuration has several targets, name one of them: {names}")])
    return config.targets[0]


def _named(config: Config, name: str, address: str = "") -> Target:
    for target in config.targets:
        if target.name == name:
            return target
    names = ", ".join(target.name for target in config.targets)
    raise ConfigError([Problem("--target", f"no target has this name ({address}the configuration has: {names})")])
