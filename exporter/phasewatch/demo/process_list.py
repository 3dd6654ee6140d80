"""The folder of a process list as Linux mounts it at /proc, for the processes of simulated servers."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = 100
_STAT_ZEROS_BEFORE_START: Final = 17
"""Fields of /proc/PID/stat between the parent's process and the start time (proc_pid_stat(5))."""

_STAT_ZEROS_AFTER_START: Final = 30


@dataclass(frozen=True, slots=True)
class SimulatedProcess:
    """A process.

    Attributes:
        arguments: its command line.
        parent: process number of its parent.
        started: when it was started, seconds since boot.
    """

    arguments: Sequence[str]
    parent: int
    started: float


def write_process_list(folder: Path, processes: Mapping[int, SimulatedProcess]) -> None:
    """Make the folder list these processes, by number, and no others. A process appears with all its files at once.

    Args:
        folder: the folder, which is created if it does not exist.
        processes: the processes by number.
    """
    folder.mkdir(exist_ok=True)
    listed = {int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()}
    for number in listed - processes.keys():
        shutil.rmtree(folder / str(number))
    for number in processes.keys() - listed:
        unfinished = folder / f"new-{number}"
        unfinished.mkdir()
        process = processes[number]
        (unfinished / "cmdline").write_bytes(b"".join(f"{one}\0".encode() for one in process.arguments))
        (unfinished / "stat").write_text(_render_stat(number, process), encoding="ascii")
        unfinished.rename(folder / str(number))


def _render_stat(number: int, process: SimulatedProcess) -> str:
    name = process.arguments[0].rpartition("/")[2][:15]
    before, after = "0 " * _STAT_ZEROS_BEFORE_START, " 0" * _STAT_ZEROS_AFTER_START
    return f"{number} ({name}) S {process.parent} {before}{round(process.started * _TICKS_PER_SECOND)}{after}\n"
