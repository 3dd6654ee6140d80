"""What each command does with its flags."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from phasewatch.base.errors import BindError, ConfigError, PhaseWatchError, Problem
from phasewatch.cli.arguments import new_parser
from phasewatch.config.resolve import Config, Target, load, load_or_default, parse

OK: Final = 0
INVALID: Final = 1
CANNOT_BIND: Final = 3
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: the words after the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    options = new_parser().parse_args(arguments)
    try:
        code = _COMMANDS[options.command](options)
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


def _complain(message: str) -> None:
    sys.stderr.write(f"{message}\n")


# The heavy modules are imported by the command that needs them, which keeps --help and check quick.


def _serve(options: argparse.Namespace) -> int:
    from phasewatch import app  # noqa: PLC0415
    from phasewatch.base import log  # noqa: PLC0415
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
    from phasewatch.recordings.record import record  # noqa: PLC0415

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
    from phasewatch.recordings import replay  # noqa: PLC0415
    from phasewatch.recordings.format import Reader  # noqa: PLC0415

    target = _played_target(options)
    recording = Reader(options.recording)
    if options.format == "openmetrics":
        sys.stdout.write(replay.as_openmetrics(recording, target))
    else:
        for line in replay.as_json(recording, target):
            sys.stdout.write(f"{line}\n")
    return OK


def _devices(options: argparse.Namespace) -> int:
    from phasewatch.hardware import measure, report, table  # noqa: PLC0415

    if options.name is None and options.memory is not None:
        raise ConfigError([Problem("--memory", "tells devices of one name apart; give the NAME")])
    if options.name is not None and options.measure:
        raise ConfigError([Problem("--measure", "measures this machine; leave the NAME out")])
    if options.name is not None:
        known, text = report.about(options.name, options.memory, measure.stored())
        (sys.stdout if known else sys.stderr).write(f"{text}\n")
        return OK if known else INVALID
    if options.measure:
        measurement = measure.measure()
        text = report.measured(measurement, measure.store(measurement))
    else:
        text = report.table(table.devices(), measure.stored())
    sys.stdout.write(f"{text}\n")
    return OK


def _demo(options: argparse.Namespace) -> int:
    from phasewatch import app  # noqa: PLC0415
    from phasewatch.base import log  # noqa: PLC0415
    from phasewatch.demo import prometheus, run  # noqa: PLC0415

    setup = prometheus.find_prometheus() if options.with_prometheus else None
    log.configure(options.log_level, options.log_format)
    host, port = options.web_listen_address
    bound = app.bind(host, port)
    settings = run.DemoSettings(host, bound.getsockname()[1], options.seed, options.servers, setup)
    asyncio.run(run.run(settings, bound))
    return OK


def _assets(options: argparse.Namespace) -> int:
    from phasewatch import assets  # noqa: PLC0415

    outcome = assets.export(options.directory, force=options.force)
    for line in assets.told(options.directory, outcome):
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
    return _with_pages(config.targets[0])


def _with_pages(target: Target) -> Target:
    """The target, if its server has pages of metrics to record and replay.

    Raises:
        ConfigError: it has none.
    """
    if target.backend != "vllm":
        told = f"{target.name!r} is an {target.backend} target, which has no page of metrics; name a vllm target"
        raise ConfigError([Problem("--target", told)])
    return target


def _named(config: Config, name: str, address: str = "") -> Target:
    for target in config.targets:
        if target.name == name:
            return _with_pages(target)
    names = ", ".join(target.name for target in config.targets)
    raise ConfigError([Problem("--target", f"no target has this name ({address}the configuration has: {names})")])


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "serve": _serve,
    "check": _check,
    "record": _record,
    "replay": _replay,
    "devices": _devices,
    "demo": _demo,
    "assets": _assets,
}
