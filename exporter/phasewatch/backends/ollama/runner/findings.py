"""What looking for an Ollama's children has found, and what stands in the way, as sentences for the operator. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

from phasewatch.backends.equipment import is_local
from phasewatch.backends.ollama.inventory import LoadedModel, OllamaVersion
from phasewatch.backends.ollama.runner.children import ChildIdentity, ProcessListing
from phasewatch.backends.ollama.runner.matching import Matching
from phasewatch.config.settings import Target

FIRST_RELEASE: Final[OllamaVersion] = (0, 30, 0)
"""First release that runs a model in a llama-server of its own."""

REMOTE: Final = (
    "its url is not on this machine, so users' requests are not seen and models are measured by probes alone: run the "
    "exporter beside the server, or set ollama.procfs where its process list and loopback network are shared"
)
"""Why no child of a server elsewhere is looked for."""

_OWN_PROCESS_LIST: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class RunnerLook:
    """One look at an Ollama's models and the processes that run them.

    Attributes:
        wall: Unix time of it by the server's clock.
        version: version of the server; None stands for the newest.
        loaded: models in memory.
        layers: layer of the weights by digest of the model, as far as known.
        listing: the process list, read before `loaded`.
        matching: which child runs which model.
        metrics: whether the /metrics of a child answers, for those that were asked.
        busy: children with a busy slot.
    """

    wall: float
    version: OllamaVersion | None
    loaded: tuple[LoadedModel, ...]
    layers: Mapping[str, str]
    listing: ProcessListing
    matching: Matching
    metrics: Mapping[ChildIdentity, bool] = field(default_factory=dict)
    busy: frozenset[ChildIdentity] = frozenset()


class Topic(Enum):
    """What a finding is about; each is said once."""

    REMOTE = auto()
    EXACT = auto()
    ESTIMATED = auto()
    TOO_OLD = auto()
    MLX = auto()
    SEVERAL_OLLAMAS = auto()
    SHARED_WEIGHTS = auto()
    NO_PROCESS_LIST = auto()
    HIDDEN = auto()
    ELSEWHERE = auto()


def may_have_children_here(target: Target) -> bool:
    """Whether a target's children can be on this machine: its url is, or the operator says where its processes are."""
    return is_local(target.url) or target.ollama.procfs != _OWN_PROCESS_LIST


def list_findings(look: RunnerLook, procfs: Path, *, found_before: bool) -> dict[Topic, str]:
    """What one look has found and what it lacks.

    Args:
        look: the look.
        procfs: where the process list was looked for.
        found_before: whether an earlier look has found a child: then nothing hides them all.
    """
    return {
        **_describe_found(look),
        **_describe_unseen_models(look),
        **_describe_doubts(look.matching),
        **({} if found_before else _describe_missing(look, procfs)),
    }


def _describe_found(look: RunnerLook) -> dict[Topic, str]:
    answers = [look.metrics.get(child.identity) for child in look.matching.children.values()]
    findings: dict[Topic, str] = {}
    if True in answers:
        findings[Topic.EXACT] = (
            f"found {_count_processes(answers.count(True))} with /metrics: users' requests are measured exactly"
        )
    if False in answers:
        findings[Topic.ESTIMATED] = (
            f"found {_count_processes(answers.count(False))} without /metrics: users' requests are measured by /slots, "
            "throughput to 4 % for chats and 7 % for answers of 0.2 s; LLAMA_ARG_ENDPOINT_METRICS=1 in Ollama's "
            "environment makes it exact"
        )
    return findings


def _count_processes(number: int) -> str:
    return "1 llama-server process" if number == 1 else f"{number} llama-server processes"


def _describe_unseen_models(look: RunnerLook) -> dict[Topic, str]:
    """Models that no llama-server runs."""
    if look.loaded and not _has_children(look.version):
        return {Topic.TOO_OLD: "Ollama before 0.30 runs models in processes that show nothing: probes measure them"}
    mlx = next((model.name for model in look.loaded if model.details.format == "safetensors"), None)
    if mlx is None:
        return {}
    return {Topic.MLX: f"{mlx} is in the format safetensors, which no llama-server runs: probes measure it"}


def _has_children(version: OllamaVersion | None) -> bool:
    return version is None or version >= FIRST_RELEASE


def _describe_doubts(matching: Matching) -> dict[Topic, str]:
    findings: dict[Topic, str] = {}
    if matching.several_owners:
        findings[Topic.SEVERAL_OLLAMAS] = (
            "several Ollamas on this machine run models that this one has in memory: whose process is whose cannot be "
            "told, so none is read"
        )
    if matching.undecided:
        names = " and ".join(sorted(name for name, _ in matching.undecided))
        findings[Topic.SHARED_WEIGHTS] = (
            f"{names} have the same weights and context: which of them a process runs cannot be told"
        )
    return findings


def _describe_missing(look: RunnerLook, procfs: Path) -> dict[Topic, str]:
    """Why none of the models that a llama-server runs has a process here."""
    expected = [model for model in look.loaded if model.digest in look.layers and model.details.format != "safetensors"]
    doubtful = look.matching.several_owners or look.matching.undecided
    if not expected or not _has_children(look.version) or look.matching.children or doubtful:
        return {}
    if not look.listing.readable:
        return {Topic.NO_PROCESS_LIST: f"there is no process list at {procfs}: probes measure the models"}
    if look.listing.hidden:
        return {
            Topic.HIDDEN: f"{procfs} hides processes of other users (hidepid, or ProtectProc=invisible of a systemd "
            "unit), and no llama-server is among those that it shows: probes measure the models"
        }
    return {
        Topic.ELSEWHERE: f"models are in memory, but {procfs} shows no llama-server that runs them, as where Ollama is "
        "in another container: share its process list (ollama.procfs) and loopback network; until then probes measure "
        "the models"
    }
