"""Which device of the table a reported name means: exactly one, one of several, or none. Never by similarity.

Names are compared whole, with case, (R), (TM), spaces, hyphens and underscores folded and the vendor optional. A part
of a name never decides: `NVIDIA L4` is no `L40S`, and `NVIDIA H100 80GB HBM3` has no `SXM` in it.
"""

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from phasewatch.hardware.facts import ComputeRates
from phasewatch.hardware.partition import MIG_PROFILE, compute_partition_share, scale_rates
from phasewatch.hardware.table import GIB, Device, load_devices

MAX_NAME_LENGTH: Final = 128
"""Characters; NVML's own limit is 96."""

_SHORTFALL: Final = 0.12
_EXCESS: Final = 0.03
"""How far the memory that a driver reports may be below a nominal size (B300: 7 %; a size that people write in decimal
gigabytes: 7 %), and above. Sizes of one name are further apart than that (10 and 12), or several fit."""

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
"""Words that people leave out of a device's name. Not Quadro: there are three different RTX 6000."""

_SPACES: Final = re.compile("[\t\u00a0\u2000-\u200a\u202f]")
"""What people copy from tables and web pages for a space."""

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
    """The name means this device, or a part of it.

    Attributes:
        name: as reported.
        device: the row of the table, of the whole device.
        memory_bandwidth: bytes per second of what the name means; None if the table does not tell.
        compute: of what the name means.
        profile: of a part, such as `3g.40gb`; None for a whole device.
        shared: whether it is a virtual GPU, which takes turns with others: figures are those of its turns.
    """

    name: str
    device: Device
    memory_bandwidth: float | None
    compute: ComputeRates
    profile: str | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class AmbiguousDevice:
    """The name means one of several devices.

    Attributes:
        name: as reported.
        candidates: the devices.
        decided_by: what would tell them apart, in words.
    """

    name: str
    candidates: tuple[Device, ...]
    decided_by: str


@dataclass(frozen=True, slots=True)
class UnknownDevice:
    """The table has no such device.

    Attributes:
        name: as reported.
        why: what is wrong with it, in words.
        similar: names of the table that look like it. To show to people, never to use.
        processor: whether it looks like a processor, whose memory is measured and not looked up.
    """

    name: str
    why: str
    similar: tuple[str, ...] = ()
    processor: bool = False


def resolve_device(
    name: str, memory: float | None = None, profile: str | None = None
) -> ResolvedDevice | AmbiguousDevice | UnknownDevice:
    """Find what a name means.

    Args:
        name: as a driver reports it or the table has it, also of a MIG instance (`NVIDIA A30 MIG 1g.6gb`) or a virtual
            GPU (`NVIDIA A10-24Q`).
        memory: bytes of the whole device; decides between devices of one name, and tells that it is none of them. For
            parts and virtual GPUs, whose drivers report their own memory, it is not looked at.
        profile: of the part that is meant, if the name does not tell: `3g.40gb` (MIG), `CPX` (AMD).
    """
    plain = _SPACES.sub(" ", name[: MAX_NAME_LENGTH + 1]).strip()
    unmarked = _MARKS.sub("", plain)
    if not plain or len(plain) > MAX_NAME_LENGTH or not (unmarked.isascii() and unmarked.isprintable()):
        return UnknownDevice(name, "this is no name of a device")
    if part := _MIG_NAME.fullmatch(plain):
        plain, profile = part[1], profile or part[2]
    if profile is not None:
        return _part(name, plain, profile)
    candidates = _candidates(plain)
    if not candidates and (virtual := _VIRTUAL.fullmatch(plain)):
        return _virtual(name, virtual[1], float(virtual[2]) * GIB)
    return _decide(name, candidates, memory)


def _part(name: str, whole: str, profile: str) -> ResolvedDevice | AmbiguousDevice | UnknownDevice:
    found = _decide(name, _candidates(whole), None)
    if not isinstance(found, ResolvedDevice):
        return found
    gets = compute_partition_share(found.device, profile)
    if gets is None:
        return UnknownDevice(name, f"{found.device.name} has no part {profile[:MAX_NAME_LENGTH]!r}")
    bandwidth = found.memory_bandwidth
    return ResolvedDevice(
        name,
        found.device,
        None if bandwidth is None else bandwidth * gets.memory_bandwidth,
        scale_rates(found.compute, gets.compute),
        profile=profile,
    )


def _virtual(name: str, whole: str, memory: float) -> ResolvedDevice | AmbiguousDevice | UnknownDevice:
    found = _decide(name, _candidates(whole), None)
    if not isinstance(found, ResolvedDevice):
        return found
    device = found.device
    if device.vendor != "NVIDIA" or not 0 < memory <= max((high for _, high in device.memory), default=0):
        return UnknownDevice(name, f"{device.name} has no virtual GPU of that size")
    return ResolvedDevice(name, device, found.memory_bandwidth, found.compute, shared=True)


def _decide(
    name: str, candidates: Sequence[Device], memory: float | None
) -> ResolvedDevice | AmbiguousDevice | UnknownDevice:
    if not candidates:
        return _unknown(name)
    fitting = [device for device in candidates if memory is None or _fits(device, memory)]
    if not fitting:
        had = "; ".join(f"{device.name} has {format_memory(device)}" for device in candidates)
        return UnknownDevice(name, f"{had}, not {(memory or 0) / GIB:.3g} GiB")
    if len(fitting) > 1:
        return AmbiguousDevice(name, tuple(fitting), _decided_by(fitting, memory))
    return ResolvedDevice(name, fitting[0], fitting[0].memory_bandwidth, fitting[0].compute)


def _candidates(name: str) -> tuple[Device, ...]:
    vendor, key = _folded(name)
    return tuple(device for device in _index().get(key, ()) if vendor in {None, device.vendor})


@functools.cache
def _index() -> Mapping[str, tuple[Device, ...]]:
    """Every folded name and alias, with and without its product line, and what it may mean."""
    index: defaultdict[str, dict[str, Device]] = defaultdict(dict)
    for device in load_devices():
        for alias in (device.name, *device.aliases):
            bare = _VENDOR.sub("", _MARKS.sub("", alias), count=1)
            for form in (alias, _PRODUCT_LINE.sub("", bare, count=1)):
                index[_folded(form)[1]][device.name] = device
    return {key: tuple(meant.values()) for key, meant in index.items()}


def _folded(name: str) -> tuple[str | None, str]:
    """The vendor that a name begins with, if any, and the rest in the form that is compared.

    A separator between two digits stays one: `A100 80GB` is something, `A10080GB` and `A10 080GB` are nothing.
    """
    plain = _MARKS.sub("", name).strip()
    vendor = _VENDOR.match(plain)
    rest = plain[vendor.end() :] if vendor else plain
    key = _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("\0", rest)).lower()
    return (_VENDORS[vendor[1].lower()] if vendor else None), key


def _fits(device: Device, memory: float) -> bool:
    """Whether a device can be what reports this memory."""
    # What an integrated GPU calls its own is set in the firmware.
    if not device.memory or device.kind == "apu":
        return True
    return any(low * (1 - _SHORTFALL) <= memory <= high * (1 + _EXCESS) for low, high in device.memory)


def _decided_by(candidates: Sequence[Device], memory: float | None) -> str:
    if any("-core GPU" in device.name for device in candidates):
        return "the number of GPU cores"
    differ = len({device.memory for device in candidates}) == len(candidates)
    return "the memory size" if memory is None and differ else "the exact model"


def _unknown(name: str) -> UnknownDevice:
    plain = _MARKS.sub("", name)
    if _PROCESSOR.search(plain):
        return UnknownDevice(
            name, "a processor does not tell how fast its memory is, which is measured", processor=True
        )
    known = _index()
    keys = difflib.get_close_matches(_folded(name)[1], known, n=2 * _SIMILAR_NAMES, cutoff=_SIMILARITY)
    similar = dict.fromkeys(device.name for key in keys for device in known[key])
    return UnknownDevice(name, "the table has no such device", tuple(similar)[:_SIMILAR_NAMES])


def format_memory(device: Device) -> str:
    """The memory that a device is sold with, for people: `10 GB`, `16 or 32 GB`, `8 to 16 GB`; empty if unknown."""
    sizes = [f"{low / GIB:g} to {high / GIB:g}" if low < high else f"{low / GIB:g}" for low, high in device.memory]
    return f"{' or '.join(sizes)} GB" if sizes else ""
