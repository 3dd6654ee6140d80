"""Measure the read bandwidth of this machine's memory.

The data sheet of a processor is of little use: a virtual machine may get a fifteenth of a socket. Decode is nearly all
reads, so only reads are measured: threads search disjoint parts of one large block for a byte that does not occur in
it, with the C library's memchr, which ctypes calls without the GIL. The result is a lower bound of the bandwidth.
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
"""Runs for each number of threads. Load from other virtual machines varies: runs a second apart differ by half."""

PAUSE_BETWEEN_ROUNDS: Final = 0.3
"""Seconds between two rounds of runs, so that they see different load from other virtual machines."""

TIME_BUDGET: Final = 10.0
"""Seconds after which no further run starts."""

_MIB: Final = 2**20
_BLOCK_PER_CACHE: Final = 8
"""Least block size in multiples of the last-level cache: at twice the cache, a third of the reads hit it."""

_MIN_BLOCK: Final = 256 * _MIB
_DEFAULT_BLOCK: Final = 512 * _MIB
_MEMORY_PER_BLOCK: Final = 4
"""Available memory required, in multiples of the block."""

_FILL_BYTE: Final = 1
_SEARCH_BYTE: Final = 0


class MeasurementError(PhaseWatchError):
    """The memory bandwidth cannot be measured, or the measurement cannot be stored."""


@dataclass(frozen=True, slots=True)
class MeasurementRun:
    """One pass over the whole block: number of threads, and bytes per second."""

    threads: int
    memory_bandwidth: float


@dataclass(frozen=True, slots=True)
class MemoryMeasurement:
    """Measured read bandwidth of this machine's memory.

    Attributes:
        memory_bandwidth: read bandwidth of the fastest run, bytes per second.
        threads: number of threads of the fastest run.
        size: size of the block that was read, bytes.
        processor: name of the processor.
        date: time of the measurement, ISO 8601 in UTC.
        runs: all runs in order.
    """

    memory_bandwidth: float
    threads: int
    size: int
    processor: str
    date: str
    runs: tuple[MeasurementRun, ...]


def measure_memory_bandwidth() -> MemoryMeasurement:
    """Read a block of memory repeatedly with 1, 2, 4, ... threads, for a few seconds in total.

    Raises:
        MeasurementError: too little memory is available, or the C library has no memchr.
    """
    processor_count = count_usable_processors()
    size = choose_block_size(read_last_level_cache(), read_available_memory())
    try:
        block = mmap.mmap(-1, size)
    except (OSError, ValueError) as error:
        raise MeasurementError(f"no block of {size / _MIB:.0f} MiB could be had: {error}") from error
    with block, ThreadPoolExecutor(processor_count) as pool:
        runs = _measure_runs(block, pool, processor_count)
    best = max(runs, key=lambda run: run.memory_bandwidth)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return MemoryMeasurement(best.memory_bandwidth, best.threads, size, read_processor_name(), now, tuple(runs))


def _measure_runs(block: mmap.mmap, pool: ThreadPoolExecutor, processor_count: int) -> list[MeasurementRun]:
    search, fill = _load_function("memchr"), _load_function("memset")
    window = ctypes.c_char.from_buffer(block)
    start, size = ctypes.addressof(window), len(block)
    try:
        # Unwritten pages all map to one zero page. Each thread writes a part, so that it lies on its own NUMA node.
        _run_in_parts(pool, processor_count, start, size, lambda address, length: fill(address, _FILL_BYTE, length))
        thread_counts = sorted({*(2**power for power in range(processor_count.bit_length())), processor_count})
        planned, runs = len(thread_counts) * RUNS_PER_THREAD_COUNT, list[MeasurementRun]()
        started = time.monotonic()
        for round_number in range(RUNS_PER_THREAD_COUNT):
            time.sleep(PAUSE_BETWEEN_ROUNDS if round_number else 0)
            for threads in thread_counts:
                if runs and time.monotonic() - started > TIME_BUDGET:
                    return runs
                run_started = time.perf_counter()
                _run_in_parts(pool, threads, start, size, lambda address, length: search(address, _SEARCH_BYTE, length))
                runs.append(MeasurementRun(threads, size / (time.perf_counter() - run_started)))
                _print_progress(runs, planned)
    finally:
        # The mapping cannot be closed while a ctypes object points into it.
        del window
    return runs


def _run_in_parts(
    pool: ThreadPoolExecutor, threads: int, start: int, size: int, work: Callable[[int, int], object]
) -> None:
    """Let each thread process its part of the block, and wait for all."""
    edges = [size * part // threads for part in range(threads + 1)]
    for future in [pool.submit(work, start + low, high - low) for low, high in itertools.pairwise(edges)]:
        future.result()


def _load_function(name: str) -> Callable[[int, int, int], object]:
    """The C library's memchr or memset: both take an address, a byte and a length."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError) as error:
        raise MeasurementError(f"the C library of this system has no {name}; set device.memory_bandwidth") from error
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    function.restype = ctypes.c_void_p
    call: Callable[[int, int, int], object] = function
    return call


def _print_progress(runs: list[MeasurementRun], planned: int) -> None:
    """Overwrite the progress line on a terminal; print nothing elsewhere, as the measurement takes only seconds."""
    if sys.stderr.isatty():
        best = max(run.memory_bandwidth for run in runs)
        line = f"run {len(runs)} of {planned}, {runs[-1].threads} threads, best {best / 1e9:.1f} GB/s"
        sys.stderr.write(f"\r{line}\033[K{chr(10) if len(runs) == planned else ''}")
        sys.stderr.flush()


def choose_block_size(cache: int | None, available: int) -> int:
    """Size of the block to read, in bytes: a multiple of the caches, and at most a quarter of the available memory.

    Args:
        cache: total size of the last-level caches, bytes; None if unknown.
        available: memory that can be allocated without swapping or evicting, bytes.

    Raises:
        MeasurementError: too little memory is available.
    """
    size = _DEFAULT_BLOCK if cache is None else max(_MIN_BLOCK, _BLOCK_PER_CACHE * cache)
    if size * _MEMORY_PER_BLOCK > available:
        raise MeasurementError(
            f"{size * _MEMORY_PER_BLOCK / _MIB:.0f} MiB of memory must be available to measure it without disturbing "
            f"others, and {available / _MIB:.0f} MiB are; set device.memory_bandwidth instead"
        )
    return size


def count_usable_processors() -> int:
    """Number of processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_last_level_cache(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Total size of the machine's third-level caches, bytes; None if the system does not report it."""
    sizes: dict[str, int] = {}
    for index in root.glob("cpu[0-9]*/cache/index3"):
        size = re.fullmatch(r"(\d{1,9})([KMG]?)", _read_line(index / "size"))
        if size:
            sizes[_read_line(index / "shared_cpu_list")] = (
                int(size[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[size[2]]
            )
    return sum(sizes.values()) or None


def read_available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that can be allocated without swapping or evicting, bytes; bounded by the cgroup (v2 or v1), if any."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", _read_text(meminfo), re.MULTILINE)
    available = int(match[1]) * 1024 if match else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit_file, usage_file in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, usage = _read_line(cgroup / limit_file), _read_line(cgroup / usage_file)
        if limit.isdecimal() and usage.isdecimal():
            available = min(available, max(0, int(limit) - int(usage)))
    return available


def read_processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Model name of the processor, or its architecture if the system does not report more."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", _read_text(cpuinfo), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _read_text(path: Path) -> str:
    """Content of a file under /proc or /sys; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read_line(path: Path) -> str:
    return _read_text(path).strip()
