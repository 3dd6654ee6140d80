"""What advice is made of: remedies, the conditions that decide between them, and the words that readers get.

A remedy says what it does to which flag, so that two remedies that pull one flag in opposite directions are found, and
whether it needs a restart. Where the server's version is known, only flags that it has are offered; elsewhere the words
name the release.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Condition(StrEnum):
    """A condition on which a remedy depends, in the words that readers get. `OPPOSITES` has the pairs."""

    TOKENS_FAST = "inter-token latency is within its objective"
    TOKENS_SLOW = "inter-token latency is beyond its objective"
    CACHE_FREE = "the KV cache has room"
    CACHE_SHORT = "the KV cache is short"
    SLOTS_FREE = "slots are free"
    SLOTS_TAKEN = "all slots are taken"
    MODEL_ON_DEVICE = "the model stays wholly on the device"
    MODEL_PARTLY_ON_CPU = "the model is partly on the CPU"


_PAIRS: Final = (
    (Condition.TOKENS_FAST, Condition.TOKENS_SLOW),
    (Condition.CACHE_FREE, Condition.CACHE_SHORT),
    (Condition.SLOTS_FREE, Condition.SLOTS_TAKEN),
    (Condition.MODEL_ON_DEVICE, Condition.MODEL_PARTLY_ON_CPU),
)
OPPOSITES: Final[Mapping[Condition, Condition]] = {
    **dict(_PAIRS),
    **{second: first for first, second in _PAIRS},
}


class Cause(StrEnum):
    """The cause of slow tokens or of a slow first token, in the words that readers get."""

    QUEUE = "Queue"
    PREFILL = "Prefill"
    SHARED_STEPS = "Prompts in the same steps"
    MANY_STREAMS = "Many streams"
    LONG_CONTEXTS = "Long contexts"
    FEW_STREAMS = "Few streams with short contexts"
    PREEMPTIONS = "Preemptions"


CACHE_MEMORY: Final = "memory of the KV cache"
CACHE_QUANTISATION: Final = "quantisation of the KV cache"
WEIGHT_QUANTISATION: Final = "quantisation of the weights"
PREFIX_SHARING: Final = "tokens that prompts share at their beginning"
PREFILL_COMPUTE: Final = "compute for prefill"
AIMS: Final = frozenset({CACHE_MEMORY, CACHE_QUANTISATION, WEIGHT_QUANTISATION, PREFIX_SHARING, PREFILL_COMPUTE})
"""What remedies raise or lower by several flags, or by none: settings in a wider sense."""

_FLAG: Final = re.compile(r"--[a-z][a-z-]+[a-z]")
_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, eq=False)
class Releases:
    """Which releases of a kind of server have which flags.

    Attributes:
        server: name of the server, as words have it.
        oldest: oldest supported release, major and minor number.
        first: first release in which a flag has its effect, for flags that some supported releases lack.
    """

    server: str
    oldest: tuple[int, int]
    first: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something to change, or to leave alone.

    Attributes:
        text: what to do, as sentences; the first word is lower case if other words come before it.
        at_once: whether it helps at once; the words say so.
        restart: whether the server has to be restarted for it; the words say so.
        raises: flags, settings and `AIMS` that go up.
        lowers: flags, settings and `AIMS` that go down.
        conditions: what has to hold; the words name them.
        cause: the cause that it is about; None if it helps with any.
        releases: which releases have the flags that it names; None if all supported ones have them.
    """

    text: str
    at_once: bool = False
    restart: bool = False
    raises: frozenset[str] = frozenset()
    lowers: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    cause: Cause | None = None
    releases: Releases | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on one state or complaint.

    Attributes:
        title: the condition in a few words.
        meaning: what is going on.
        change: remedies; the first helps at once, without a restart.
        avoid: what looks like a remedy but is not.
        holds: conditions that are known to hold where the advice is given.
    """

    title: str
    meaning: str
    change: tuple[Remedy, ...] = ()
    avoid: tuple[Remedy, ...] = ()
    holds: frozenset[Condition] = frozenset()


@dataclass(frozen=True, slots=True)
class Known:
    """What is known where words are shown; nothing of it in static text such as alerts and pages.

    Attributes:
        version: version of the server, as it reports it; None if unknown.
        conditions: conditions that hold.
    """

    version: str | None = None
    conditions: frozenset[Condition] = frozenset()


NOTHING_KNOWN: Final = Known()


def pull_alike(one: Remedy, other: Remedy) -> bool:
    """Whether two remedies move something in the same direction."""
    return bool(one.raises & other.raises or one.lowers & other.lowers)


def list_applicable(remedies: tuple[Remedy, ...], known: Known) -> tuple[Remedy, ...]:
    """The remedies that apply: their conditions do not fail, and the server has their flags."""
    return tuple(remedy for remedy in remedies if _applies(remedy, known))


def list_words(remedies: tuple[Remedy, ...], known: Known = NOTHING_KNOWN) -> tuple[str, ...]:
    """The words of each remedy that applies."""
    return tuple(_phrase(remedy, known) for remedy in list_applicable(remedies, known))


def find_flags(text: str) -> frozenset[str]:
    """The command-line flags that a text names."""
    return frozenset(_FLAG.findall(text))


def _applies(remedy: Remedy, known: Known) -> bool:
    release = _parse_release(known.version, remedy.releases)
    if remedy.releases is not None and release is not None:
        first = remedy.releases.first
        if any(first.get(flag, release) > release for flag in find_flags(remedy.text)):
            return False
    return not any(OPPOSITES[condition] in known.conditions for condition in remedy.conditions)


def _phrase(remedy: Remedy, known: Known) -> str:
    """The words of a remedy: its cause and the conditions that are not known to hold, what to do, and what it takes."""
    conditions = [condition.value for condition in remedy.conditions if condition not in known.conditions]
    parts = [
        *(["At once"] if remedy.at_once else []),
        *([remedy.cause.value] if remedy.cause is not None else []),
        *([f"while {' and '.join(conditions)}"] if conditions else []),
    ]
    text = remedy.text
    if remedy.releases is not None and _parse_release(known.version, remedy.releases) is None:
        text = _name_releases(text, remedy.releases)
    separator = ": " if remedy.at_once or remedy.cause is not None else ", "
    words = f"{', '.join(parts)}{separator}{text}" if parts else text
    words = words[0].upper() + words[1:]
    return f"{words} Needs a restart." if remedy.restart and "restart" not in words.lower() else words


def _name_releases(text: str, releases: Releases) -> str:
    """The text with the first mention of each flag followed by the release that it needs, if some releases lack it."""
    for flag in dict.fromkeys(_FLAG.findall(text)):
        if flag in releases.first:
            major, minor = releases.first[flag]
            since = f"{flag} ({releases.server} {major}.{minor} and newer)"
            text = re.sub(rf"{flag}(?![a-z-])", since, text, count=1)
    return text


def _parse_release(version: str | None, releases: Releases | None) -> tuple[int, int] | None:
    """Major and minor number of a version such as `0.32.0+cpu`.

    None if it is not one of a supported release: builds without tags call themselves 0.1.dev, whatever they contain.
    """
    match = _RELEASE.match(version or "")
    if match is None or releases is None:
        return None
    release = (int(match[1]), int(match[2]))
    return None if release < releases.oldest else release
