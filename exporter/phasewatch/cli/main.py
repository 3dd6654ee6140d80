"""The commands: each a function of its parsed flags."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from phasewatch import backends
from phasewatch.backends.backend import Backend
from phasewatch.base.errors import BindError, ConfigError, PhaseWatchError, Problem
from phasewatch.cli.arguments import create_parser
from phasewatch.config.resolve import load_config, load_config_or_default, resolve_target
from phasewatch.config.settings import Config, Target

OK: Final = 0
INVALID: Final = 1
CANNOT_BIND: Final = 3
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: command-line arguments without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    options = create_parser().parse_args(arguments)
    try:
        code = _COMMANDS[options.command](options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output is gone. Python would report that again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (PhaseWatchError, OSError) as error:
        return _report_error(error)
    return code


def _report_error(error: PhaseWatchError | OSError) -> int:
    """Print an error and return its exit code."""
    if isinstance(error, ConfigError):
        for problem in error.problems:
            _print_to_stderr(str(problem))
    elif isinstance(error, OSError):
        # Reading and writing of files raises PhaseWatchError, so this is standard output.
        _print_to_stderr(f"cannot write: {error.strerror or error}")
    else:
        _print_to_stderr(str(error))
    return CANNOT_BIND if isinstance(error, BindError) else INVALID


def _print_to_stderr(message: str) -> None:
    sys.stderr.write(f"{message}\n")


# Each command imports the heavy modules that it needs, which keeps --help and check fast.


def _serve(options: argparse.Namespace) -> int:
    from phasewatch import app  # noqa: PLC0415
    from phasewatch.base import log  # noqa: PLC0415
    from phasewatch.web.security import load_web_config  # noqa: PLC0415
    from phasewatch.web.server import bind  # noqa: PLC0415

    config = load_config_or_default(options.config_file, backends.list_rules())
    web = load_web_config(options.web_config_file)
    log.configure(options.log_level, options.log_format)
    host, port = options.web_listen_address
    bound = bind(host, port)
    settings = app.ServeSettings(
        config_file=options.config_file,
        host=host,
        port=bound.getsockname()[1],
        enable_lifecycle=options.web_enable_lifecycle,
        web=web,
    )
    asyncio.run(app.serve(settings, config, bound))
    return OK


def _check(options: argparse.Namespace) -> int:
    config = load_config(options.config_file, backends.list_rules())
    for note in config.notes:
        _print_to_stderr(f"note: {note}")
    sys.stdout.write(f"configuration valid: {len(config.targets)} target(s)\n")
    return OK


def _record(options: argparse.Namespace) -> int:
    from phasewatch.recordings.record import record  # noqa: PLC0415

    target = _choose_recorded_target(options)
    recording = record(target, duration=options.duration, interval=options.interval, output=options.output)
    outcome = asyncio.run(recording)
    reason = f": {outcome.last_error.reason}: {outcome.last_error.message}" if outcome.last_error else ""
    if outcome.scrapes == outcome.failed:
        _print_to_stderr(f"not one page could be had from {target.url}, nothing was written{reason}")
        return INVALID
    if outcome.usable == 0:
        _print_to_stderr(f"wrote {options.output}, but not one page can be used{reason}")
        return INVALID
    _print_to_stderr(f"wrote {options.output}: {outcome.scrapes} scrapes, {outcome.failed} failed")
    return OK


def _replay(options: argparse.Namespace) -> int:
    from phasewatch.recordings import replay  # noqa: PLC0415
    from phasewatch.recordings.format import RecordingReader  # noqa: PLC0415

    configured = None if options.config_file is None else _choose_played_target(options)
    recording = RecordingReader(options.recording)
    target = configured or replay.create_target(recording, options.target or "recording")
    if options.format == "openmetrics":
        sys.stdout.write(replay.format_openmetrics(recording, target))
    else:
        for line in replay.format_json(recording, target):
            sys.stdout.write(f"{line}\n")
    return OK


def _show_devices(options: argparse.Namespace) -> int:
    from phasewatch.hardware import measure, measurement_file, report, table  # noqa: PLC0415

    if options.name is None and options.memory is not None:
        raise ConfigError([Problem("--memory", "tells devices of one name apart; give the NAME")])
    if options.name is not None and options.measure:
        raise ConfigError([Problem("--measure", "measures this machine; leave the NAME out")])
    if options.name is not None:
        is_known, text = report.describe_name(options.name, options.memory, measurement_file.load_stored_measurement())
        (sys.stdout if is_known else sys.stderr).write(f"{text}\n")
        return OK if is_known else INVALID
    if options.measure:
        measurement = measure.measure_memory_bandwidth()
        text = report.format_measurement(measurement, measurement_file.store_measurement(measurement))
    else:
        text = report.format_table(table.load_devices(), measurement_file.load_stored_measurement())
    sys.stdout.write(f"{text}\n")
    return OK


def _run_demo(options: argparse.Namespace) -> int:
    from phasewatch.base import log  # noqa: PLC0415
    from phasewatch.demo import prometheus, run  # noqa: PLC0415
    from phasewatch.web.server import bind  # noqa: PLC0415

    prometheus_setup = prometheus.find_prometheus() if options.with_prometheus else None
    log.configure(options.log_level, options.log_format)
    host, port = options.web_listen_address
    bound = bind(host, port)
    settings = run.DemoSettings(host, bound.getsockname()[1], options.seed, options.servers, prometheus_setup)
    asyncio.run(run.run(settings, bound))
    return OK


def _export_assets(options: argparse.Namespace) -> int:
    from phasewatch import assets  # noqa: PLC0415

    outcome = assets.export(options.directory, force=options.force)
    for line in assets.describe_export(options.directory, outcome):
        sys.stdout.write(f"{line}\n")
    return OK


def _choose_recorded_target(options: argparse.Namespace) -> Target:
    """Choose the target to record: by name from the file, or by address without a file.

    Raises:
        ConfigError: there is no such target, or the address is not valid.
    """
    name_or_url = options.target
    recordable = [backend for backend in backends.BACKENDS if backend.create_recorder is not None]
    if "://" not in name_or_url:
        config = load_config_or_default(options.config_file, backends.list_rules())
        hint = "an address begins with http:// or https://; "
        return _require_kind(_find_named(config, name_or_url, hint), recordable)
    usual = _create_recorded_target(name_or_url, recordable[0])
    recognised = _recognise_backend(usual, recordable)
    return usual if recognised is None else _create_recorded_target(name_or_url, recognised)


def _create_recorded_target(url: str, backend: Backend) -> Target:
    """Create a target with default settings for an address.

    Raises:
        ConfigError: the address is not valid.
    """
    try:
        return resolve_target({"name": "recording", "backend": backend.name, "url": url}, backends.list_rules())
    except ConfigError as error:
        problems = [Problem("--target", _name_file(problem.message)) for problem in error.problems]
        raise ConfigError(problems) from error


def _recognise_backend(target: Target, candidates: Sequence[Backend]) -> Backend | None:
    """Ask the server at a target's address of which kind it is; None if it is not recognised."""
    from phasewatch.backends.client import ServerClient  # noqa: PLC0415
    from phasewatch.backends.recognition import recognise_backend  # noqa: PLC0415

    return asyncio.run(recognise_backend(ServerClient(target), candidates))


def _name_file(message: str) -> str:
    """Add to a message that names a key of a target, which has no flag, where the key can be set."""
    return f"{message}: in a file, with --config.file FILE --target NAME" if "metrics_path" in message else message


def _choose_played_target(options: argparse.Namespace) -> Target:
    """Choose the target of the configuration that a recording plays.

    Raises:
        ConfigError: the file has no such target, or it has several and none was named.
    """
    config = load_config(options.config_file, backends.list_rules())
    if options.target is None and len(config.targets) > 1:
        names = ", ".join(target.name for target in config.targets)
        raise ConfigError([Problem("--target", f"the configuration has several targets, name one of them: {names}")])
    target = config.targets[0] if options.target is None else _find_named(config, options.target)
    return _require_kind(target, [backend for backend in backends.BACKENDS if backend.create_player is not None])


def _require_kind(target: Target, allowed: Sequence[Backend]) -> Target:
    """Return the target if its server is of a kind that can be recorded or replayed.

    Raises:
        ConfigError: it is not.
    """
    names = [backend.name for backend in allowed]
    if target.backend not in names:
        listed = " or ".join(names)
        problem = f"{target.name!r} is an {target.backend} target, which has no page of metrics; name a {listed} target"
        raise ConfigError([Problem("--target", problem)])
    return target


def _find_named(config: Config, name: str, address: str = "") -> Target:
    for target in config.targets:
        if target.name == name:
            return target
    names = ", ".join(target.name for target in config.targets)
    raise ConfigError([Problem("--target", f"no target has this name ({address}the configuration has: {names})")])


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "serve": _serve,
    "check": _check,
    "record": _record,
    "replay": _replay,
    "devices": _show_devices,
    "demo": _run_demo,
    "assets": _export_assets,
}
