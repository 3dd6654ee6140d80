"""Resolve a reported or configured name to the devices of the table: exactly one, several, or none.

Names are compared as a whole, ignoring case, (R), (TM), spaces, hyphens and underscores; the vendor is optional. Names
are never matched by a part or by similarity: `NVIDIA L4` is not `L40S`, and `NVIDIA H100 80GB HBM3` does not contain
the `SXM` of its name in the table.
"""

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from phasewatch.hardware.facts import ComputeRates
from phasewatch.hardware.partition import MIG_PROFILE, compute_partition_share, scale_rates
from phasewatch.hardware.table import GIB, Device, load_devices

MAX_NAME_LENGTH: Final = 128
"""Characters of a name; NVML's limit is 96."""

_SHORTFALL: Final = 0.12
_EXCESS: Final = 0.03
"""How far reported memory may be below a nominal size (B300: 7 %; a size written in decimal gigabytes: 7 %), and above
it, as a share of it. Sizes of devices that share a name are further apart (10 and 12 GB), or several fit."""

_SIMILAR_NAMES: Final = 3
_SIMILARITY: Final = 0.75

_MARKS: Final = re.compile(r"\((?:R|TM)\)|[®™]", re.IGNORECASE)
_VENDORS: Final[Mapping[str, str]] = {
    "nvidia": "NVIDIA",
    "amd": "AMD",
    "intel": "Intel",
    "apple": "Apple",
    "google": "Google",
    "aws": "AWS",
    "cpu": "CPU",
}
_VENDOR: Final = re.compile(rf"({'|'.join(_VENDORS)})[ _-]+(?=.)", re.IGNORECASE)
_PRODUCT_LINE: Final = re.compile(r"(?:geforce|tesla|instinct|radeon(?=[ _-]+rx))[ _-]+(?=.)", re.IGNORECASE)
"""Product lines that are often left out of a name. Not Quadro: there are three different RTX 6000."""

_SPACES: Final = re.compile("[\t\u00a0\u2000-\u200a\u202f]")
"""Characters that stand for a space in text copied from tables and web pages."""

_SEPARATORS: Final = re.compile(r"[ _-]+")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=\d)[ _-]+(?=\d)")
_MIG_NAME: Final = re.compile(rf"(.+?)[ _-]+MIG[ _-]+({MIG_PROFILE})", re.IGNORECASE)
_VIRTUAL: Final = re.compile(r"(?:GRID )?(.+)-(\d{1,3})[ABCQ]")
_PROCESSOR: Final = re.compile(
    r"\b(?:EPYC|Xeon|Ryzen|Threadripper|Core (?:i\d|Ultra)|Pentium|Processor|CPU|Neoverse|Cortex|Graviton|Altra)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ResolvedDevice:
    """A name that means one device, or one partition of it.

    Attributes:
        name: device name as given.
        device: row of the table, for the whole device.
        memory_bandwidth: memory bandwidth of the device or partition, bytes per second; None if the table has none.
        compute: compute rates of the device or partition.
        profile: profile of the partition, such as `3g.40gb`; None for a whole device.
        shared: whether it is a virtual GPU, time-sliced with others: the figures hold during its time slices.
    """

    name: str
    device: Device
    memory_bandwidth: float | None
    compute: ComputeRates
    profile: str | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class AmbiguousDevice:
    """A name that several devices share.

    Attributes:
        name: device name as given.
        candidates: the devices.
        decided_by: what distinguishes them, in words.
    """

    name: str
    candidates: tuple[Device, ...]
    decided_by: str


@dataclass(frozen=True, slots=True)
class UnknownDevice:
    """A name that means no device of the table.

    Attributes:
        name: device name as given.
        why: what is wrong with it, in words.
        similar: similar names of the table, for messages only.
        processor: whether it looks like a processor, whose memory bandwidth is measured instead of looked up.
    """

    name: str
    why: str
    similar: tuple[str, ...] = ()
    processor: bool = False


UnresolvedDevice: TypeAlias = AmbiguousDevice | UnknownDevice
Resolution: TypeAlias = ResolvedDevice | UnresolvedDevice


def resolve_device(name: str, memory: float | None = None, profile: str | None = None) -> Resolution:
    """Resolve a name to a device of the table.

    Args:
        name: device name as a driver reports it or as in the table; also the name of a MIG instance
            (`NVIDIA A30 MIG 1g.6gb`) or a virtual GPU (`NVIDIA A10-24Q`).
        memory: memory of the whole device, bytes; selects among devices that share the name and rejects those that do
            not have it. Ignored for partitions and virtual GPUs, whose drivers report their own memory.
        profile: profile of the partition, if the name does not include it: `3g.40gb` (MIG), `CPX` (AMD).
    """
    plain = _SPACES.sub(" ", name[: MAX_NAME_LENGTH + 1]).strip()
    unmarked = _MARKS.sub("", plain)
    if not plain or len(plain) > MAX_NAME_LENGTH or not (unmarked.isascii() and unmarked.isprintable()):
        return UnknownDevice(name, "this is no name of a device")
    if mig := _MIG_NAME.fullmatch(plain):
        plain, profile = mig[1], profile or mig[2]
    if profile is not None:
        return _resolve_partition(name, plain, profile)
    candidates = _find_candidates(plain)
    if not candidates and (virtual := _VIRTUAL.fullmatch(plain)):
        return _resolve_virtual_gpu(name, virtual[1], float(virtual[2]) * GIB)
    return _select(name, candidates, memory)


def _resolve_partition(name: str, whole: str, profile: str) -> Resolution:
    resolved = _select(name, _find_candidates(whole), None)
    if not isinstance(resolved, ResolvedDevice):
        return resolved
    share = compute_partition_share(resolved.device, profile)
    if share is None:
        return UnknownDevice(name, f"{resolved.device.name} has no part {profile[:MAX_NAME_LENGTH]!r}")
    bandwidth = resolved.memory_bandwidth
    return ResolvedDevice(
        name,
        resolved.device,
        None if bandwidth is None else bandwidth * share.memory_bandwidth,
        scale_rates(resolved.compute, share.compute),
        profile=profile,
    )


def _resolve_virtual_gpu(name: str, whole: str, memory: float) -> Resolution:
    resolved = _select(name, _find_candidates(whole), None)
    if not isinstance(resolved, ResolvedDevice):
        return resolved
    device = resolved.device
    if device.vendor != "NVIDIA" or not 0 < memory <= max((high for _, high in device.memory), default=0):
        return UnknownDevice(name, f"{device.name} has no virtual GPU of that size")
    return ResolvedDevice(name, device, resolved.memory_bandwidth, resolved.compute, shared=True)


def _select(name: str, candidates: Sequence[Device], memory: float | None) -> Resolution:
    if not candidates:
        return _describe_unknown(name)
    fitting = [device for device in candidates if memory is None or _fits(device, memory)]
    if not fitting:
        sizes = "; ".join(f"{device.name} has {format_memory(device)}" for device in candidates)
        return UnknownDevice(name, f"{sizes}, not {(memory or 0) / GIB:.3g} GiB")
    if len(fitting) > 1:
        return AmbiguousDevice(name, tuple(fitting), _describe_difference(fitting, memory))
    return ResolvedDevice(name, fitting[0], fitting[0].memory_bandwidth, fitting[0].compute)


def _find_candidates(name: str) -> tuple[Device, ...]:
    vendor, key = _fold(name)
    return tuple(device for device in _index_by_folded_name().get(key, ()) if vendor in {None, device.vendor})


@functools.cache
def _index_by_folded_name() -> Mapping[str, tuple[Device, ...]]:
    """The devices that each folded name and alias may mean, with and without its product line."""
    index: defaultdict[str, dict[str, Device]] = defaultdict(dict)
    for device in load_devices():
        for alias in (device.name, *device.aliases):
            bare = _VENDOR.sub("", _MARKS.sub("", alias), count=1)
            for form in (alias, _PRODUCT_LINE.sub("", bare, count=1)):
                index[_fold(form)[1]][device.name] = device
    return {key: tuple(named.values()) for key, named in index.items()}


def _fold(name: str) -> tuple[str | None, str]:
    """The vendor at the beginning of a name, if any, and the rest in normalised form for comparison.

    A separator between two digits is kept: `A100 80GB` differs from `A10080GB` and `A10 080GB`.
    """
    plain = _MARKS.sub("", name).strip()
    vendor = _VENDOR.match(plain)
    rest = plain[vendor.end() :] if vendor else plain
    key = _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("\0", rest)).lower()
    return (_VENDORS[vendor[1].lower()] if vendor else None), key


def _fits(device: Device, memory: float) -> bool:
    """Whether a device may report this memory, in bytes."""
    # The memory of an integrated GPU is a setting of the firmware.
    if not device.memory or device.kind == "apu":
        return True
    return any(low * (1 - _SHORTFALL) <= memory <= high * (1 + _EXCESS) for low, high in device.memory)


def _describe_difference(candidates: Sequence[Device], memory: float | None) -> str:
    if any("-core GPU" in device.name for device in candidates):
        return "the number of GPU cores"
    differ = len({device.memory for device in candidates}) == len(candidates)
    return "the memory size" if memory is None and differ else "the exact model"


def _describe_unknown(name: str) -> UnknownDevice:
    plain = _MARKS.sub("", name)
    if _PROCESSOR.search(plain):
        return UnknownDevice(
            name, "a processor does not tell how fast its memory is, which is measured", processor=True
        )
    index = _index_by_folded_name()
    keys = difflib.get_close_matches(_fold(name)[1], index, n=2 * _SIMILAR_NAMES, cutoff=_SIMILARITY)
    similar = dict.fromkeys(device.name for key in keys for device in index[key])
    return UnknownDevice(name, "the table has no such device", tuple(similar)[:_SIMILAR_NAMES])


def format_memory(device: Device) -> str:
    """The memory sizes of a device as text: `10 GB`, `16 or 32 GB`, `8 to 16 GB`; empty if unknown."""
    sizes = [f"{low / GIB:g} to {high / GIB:g}" if low < high else f"{low / GIB:g}" for low, high in device.memory]
    return f"{' or '.join(sizes)} GB" if sizes else ""
