"""Which model each of an Ollama's children runs. Pure.

A child names its model by the digest of the layer with the weights, /api/ps by that of the manifest; /api/show has
both. Several names can stand for one layer: then the context tells which of them a child runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from phasewatch.backends.ollama.inventory import LoadedModel, ModelKey
from phasewatch.backends.ollama.runner.children import Child


@dataclass(frozen=True, slots=True)
class Matching:
    """The children of one Ollama.

    Attributes:
        children: the child that runs a model, for each model in memory that has one.
        undecided: models in memory that have a layer and a context in common, so that a child may run any of them.
        several_owners: whether children with these layers have different parents: an Ollama has one process, so some
            belong to another one on this machine, and it was not seen whose they are. Then none is taken.
    """

    children: Mapping[ModelKey, Child] = field(default_factory=dict)
    undecided: tuple[ModelKey, ...] = ()
    several_owners: bool = False


def match_children(children: Sequence[Child], loaded: Sequence[LoadedModel], layers: Mapping[str, str]) -> Matching:
    """The children that run the loaded models of an Ollama; those of models that are not in memory are ignored.

    Args:
        children: all children in the process list.
        loaded: models in memory.
        layers: layer of the weights by digest of the model, as far as known.
    """
    sharing: dict[str, list[LoadedModel]] = {}
    for model in loaded:
        if model.digest in layers:
            sharing.setdefault(layers[model.digest], []).append(model)
    ours = [child for child in children if child.layer in sharing]
    if len({child.parent for child in ours}) > 1:
        return Matching(several_owners=True)
    matched: dict[ModelKey, Child] = {}
    undecided: list[ModelKey] = []
    for layer, models in sharing.items():
        candidates = sorted((child for child in ours if child.layer == layer), key=_get_age)
        if len(models) == 1:
            fitting = [child for child in candidates if _has_context(child, models[0])]
            newest = next(iter(fitting or candidates), None)
            matched |= {models[0].key: newest} if newest else {}
        else:
            found = _match_by_context(models, candidates)
            matched |= found
            undecided += [model.key for model in models if candidates and model.key not in found]
    return Matching(matched, tuple(undecided))


def _get_age(child: Child) -> tuple[int, int]:
    """Sorts the newest child first: while a model is loaded again, the older one is on its way out."""
    return -child.started, -child.pid


def _match_by_context(models: Iterable[LoadedModel], candidates: Iterable[Child]) -> dict[ModelKey, Child]:
    """The newest child of each model whose context no other model of the same layer has."""
    matched: dict[ModelKey, Child] = {}
    for child in candidates:
        fitting = [model.key for model in models if _has_context(child, model)]
        if len(fitting) == 1:
            matched.setdefault(fitting[0], child)
    return matched


def _has_context(child: Child, model: LoadedModel) -> bool:
    """Whether a child was started for the context of a model: Ollama gives each slot the whole of it."""
    if child.context is None or child.slots is None or model.context_length is None:
        return False
    return child.context == model.context_length * child.slots
