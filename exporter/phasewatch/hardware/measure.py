"""How fast this machine reads its memory: measured, kept in a file, and read back.

What a data sheet says of a processor is of little use: of a socket a virtual machine may get a fifteenth. Decode is
nearly all reads, so this measures reads: threads search disjoint parts of one large block for a byte that is not in
it, with the C library's memchr, which Python calls without holding its global lock. The figure is a lower bound of
what the machine can do.
"""

import ctypes
import itertools
import mmap
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from phasewatch.base.errors import PhaseWatchError

RUNS_PER_THREAD_COUNT: Final = 5
"""For each number of threads. Other machines on the same host come and go: runs a second apart differ by half."""

PAUSE_BETWEEN_ROUNDS: Final = 0.3
"""Seconds between two rounds of runs, for the same reason."""

TIME_BUDGET: Final = 10.0
"""Seconds after which no other run begins."""

_MIB: Final = 2**20
_CACHES: Final = 8
"""The block is at least this many times the last level of cache: at twice, a third of the reads never leave it."""

_SMALLEST: Final = 256 * _MIB
_USUAL: Final = 512 * _MIB
_SHARE_OF_MEMORY: Final = 4
_FILLING: Final = 1
_SEARCHED: Final = 0


class MeasurementError(PhaseWatchError):
    """The bandwidth of the memory cannot be measured, or the figure cannot be kept."""


@dataclass(frozen=True, slots=True)
class MeasurementRun:
    """One reading of the whole block: threads, and bytes per second."""

    threads: int
    memory_bandwidth: float


@dataclass(frozen=True, slots=True)
class MemoryMeasurement:
    """How fast this machine reads its memory.

    Attributes:
        memory_bandwidth: bytes per second: that of the fastest run.
        threads: of the fastest run.
        size: bytes of the block that was read.
        processor: brand of the processor.
        date: when, as ISO 8601 in UTC.
        runs: all of them.
    """

    memory_bandwidth: float
    threads: int
    size: int
    processor: str
    date: str
    runs: tuple[MeasurementRun, ...]


def measure_memory_bandwidth() -> MemoryMeasurement:
    """Read a block of memory a few times with 1, 2, 4 and so on threads, some seconds in all.

    Raises:
        MeasurementError: there is too little memory, or no memchr.
    """
    processors = count_usable_processors()
    size = choose_block_size(read_last_level_cache(), read_available_memory())
    try:
        block = mmap.mmap(-1, size)
    except (OSError, ValueError) as error:
        raise MeasurementError(f"no block of {size / _MIB:.0f} MiB could be had: {error}") from error
    with block, ThreadPoolExecutor(processors) as pool:
        runs = _runs(block, pool, processors)
    best = max(runs, key=lambda run: run.memory_bandwidth)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return MemoryMeasurement(best.memory_bandwidth, best.threads, size, read_processor_name(), now, tuple(runs))


def _runs(block: mmap.mmap, pool: ThreadPoolExecutor, processors: int) -> list[MeasurementRun]:
    read, fill = _function("memchr"), _function("memset")
    window = ctypes.c_char.from_buffer(block)
    start, size = ctypes.addressof(window), len(block)
    try:
        # Pages that were never written are all the same one. Whoever reads a part also writes it, on its own NUMA node.
        _in_parts(pool, processors, start, size, lambda address, length: fill(address, _FILLING, length))
        counts = sorted({*(2**power for power in range(processors.bit_length())), processors})
        planned, runs = len(counts) * RUNS_PER_THREAD_COUNT, list[MeasurementRun]()
        began = time.monotonic()
        for turn in range(RUNS_PER_THREAD_COUNT):
            time.sleep(PAUSE_BETWEEN_ROUNDS if turn else 0)
            for threads in counts:
                if runs and time.monotonic() - began > TIME_BUDGET:
                    return runs
                sent = time.perf_counter()
                _in_parts(pool, threads, start, size, lambda address, length: read(address, _SEARCHED, length))
                runs.append(MeasurementRun(threads, size / (time.perf_counter() - sent)))
                _progress(runs, planned)
    finally:
        # The block cannot be given back while something points into it.
        del window
    return runs


def _in_parts(
    pool: ThreadPoolExecutor, threads: int, start: int, size: int, work: Callable[[int, int], object]
) -> None:
    """Let each thread work on its part of the block."""
    edges = [size * part // threads for part in range(threads + 1)]
    for done in [pool.submit(work, start + low, high - low) for low, high in itertools.pairwise(edges)]:
        done.result()


def _function(name: str) -> Callable[[int, int, int], object]:
    """A function of the C library, memchr or memset: both take an address, a byte and a length."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError) as error:
        raise MeasurementError(f"the C library of this system has no {name}; set device.memory_bandwidth") from error
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    function.restype = ctypes.c_void_p
    call: Callable[[int, int, int], object] = function
    return call


def _progress(runs: list[MeasurementRun], planned: int) -> None:
    """A line that is rewritten on a terminal; elsewhere there is none, as it takes a few seconds."""
    if sys.stderr.isatty():
        best = max(run.memory_bandwidth for run in runs)
        line = f"run {len(runs)} of {planned}, {runs[-1].threads} threads, best {best / 1e9:.1f} GB/s"
        sys.stderr.write(f"\r{line}\033[K{chr(10) if len(runs) == planned else ''}")
        sys.stderr.flush()


def choose_block_size(cache: int | None, available: int) -> int:
    """Bytes to read: several times what the caches hold, and no more than a quarter of the memory available.

    Args:
        cache: bytes of the last level of cache that this program can use, all of them together; None if unknown.
        available: bytes of memory that can be taken without pushing others out.

    Raises:
        MeasurementError: there is too little memory.
    """
    size = _USUAL if cache is None else max(_SMALLEST, _CACHES * cache)
    if size * _SHARE_OF_MEMORY > available:
        raise MeasurementError(
            f"{size * _SHARE_OF_MEMORY / _MIB:.0f} MiB of memory must be available to measure it without disturbing "
            f"others, and {available / _MIB:.0f} MiB are; set device.memory_bandwidth instead"
        )
    return size


def count_usable_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_last_level_cache(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Bytes of all third-level caches of the machine together; None if the system does not tell."""
    sizes: dict[str, int] = {}
    for index in root.glob("cpu[0-9]*/cache/index3"):
        size = re.fullmatch(r"(\d{1,9})([KMG]?)", _line(index / "size"))
        if size:
            sizes[_line(index / "shared_cpu_list")] = (
                int(size[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[size[2]]
            )
    return sum(sizes.values()) or None


def read_available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be taken without pushing others out, also of the limit of a container."""
    told = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(meminfo), re.MULTILINE)
    free = int(told[1]) * 1024 if told else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most, taken = _line(cgroup / limit), _line(cgroup / used)
        if most.isdecimal() and taken.isdecimal():
            free = min(free, max(0, int(most) - int(taken)))
    return free


def read_processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Brand of the processor; only its architecture where the system does not tell more."""
    told = re.search(r"^model name\s*:\s*(\S.*)$", _text(cpuinfo), re.MULTILINE)
    return told[1].strip() if told else platform.processor() or platform.machine()


def _text(path: Path) -> str:
    """What a file of the system says; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _line(path: Path) -> str:
    return _text(path).strip()
