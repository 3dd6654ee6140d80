"""Notices children that end before their time, and those that come back. Pure.

Ollama keeps a model in /api/ps when its process has crashed, and starts another one for the next request. A model that
is unloaded leaves /api/ps with its process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from phasewatch.backends.ollama.inventory import LoadedModel, ModelKey
from phasewatch.backends.ollama.runner.children import Child
from phasewatch.backends.ollama.runner.findings import RunnerLook

LOOKS_TO_CONFIRM: Final = 2
"""Looks in a row without the process of a model in memory from which it has ended: between the process list and
/api/ps a model may be loaded again.
"""


class Ending(Enum):
    """An event in the life of a model's process."""

    ENDED = auto()
    """It is gone, and the model is still in memory by what Ollama says."""
    REPLACED = auto()
    """It ended during a request, and another one has taken its place."""
    RETURNED = auto()
    """Another one has taken the place of one that was gone."""


@dataclass(frozen=True, slots=True)
class KnownChild:
    """The newest child of a model in memory.

    Attributes:
        child: the child.
        model: entry of the model when it was last seen.
        busy: whether a slot was busy then.
        missed: looks in a row without it.
    """

    child: Child
    model: LoadedModel
    busy: bool
    missed: int = 0


KnownChildren = Mapping[ModelKey, KnownChild]


def follow_children(
    known: KnownChildren, look: RunnerLook
) -> tuple[KnownChildren, tuple[tuple[ModelKey, Ending], ...]]:
    """The children known after a look, and what has happened to them.

    Args:
        known: children known before.
        look: the look.
    """
    running = {child.identity for child in look.listing.children}
    after: dict[ModelKey, KnownChild] = {}
    endings: list[tuple[ModelKey, Ending]] = []
    for model in look.loaded:
        before, child = known.get(model.key), look.matching.children.get(model.key)
        if child is not None:
            after[model.key] = KnownChild(child, model, child.identity in look.busy)
            if before is not None and before.missed >= LOOKS_TO_CONFIRM:
                endings.append((model.key, Ending.RETURNED))
            elif before is not None and _broke_off(before, child, look):
                endings.append((model.key, Ending.REPLACED))
        elif before is not None:
            gone = look.listing.readable and before.child.identity not in running
            after[model.key] = replace(before, missed=before.missed + gone)
            if gone and after[model.key].missed == LOOKS_TO_CONFIRM:
                endings.append((model.key, Ending.ENDED))
    return after, tuple(endings)


def _broke_off(before: KnownChild, child: Child, look: RunnerLook) -> bool:
    """Whether a child ended during a request: Ollama replaces one only to load the model otherwise, or after it has
    expired, and never while it serves a request.
    """
    expires_at = before.model.expires_at
    return (
        child.identity != before.child.identity
        and before.child.identity not in {other.identity for other in look.listing.children}
        and before.busy
        and (child.slots, child.context) == (before.child.slots, before.child.context)
        and expires_at is not None
        and expires_at > look.wall
    )
