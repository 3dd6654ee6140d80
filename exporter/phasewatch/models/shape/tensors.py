"""The weights that a step reads, from the tensors of a model: safetensors headers or a GGUF.

The name of a tensor determines its role. A step does not read the input embedding (but for one row per token) unless it
is also the output head, vision and audio parts, layers for speculative decoding, and experts without a token.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import fsum
from typing import Final

from phasewatch.models.costs import Experts, WeightReads
from phasewatch.models.errors import ModelError, shorten


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor.

    Attributes:
        name: name of the tensor in the file.
        shape: size of each dimension in the file, where the elements may be packed.
        size: bytes.
        parameters: number of parameters; 0 for scales and the like, None if several are packed into one element.
    """

    name: str
    shape: tuple[int, ...]
    size: float
    parameters: int | None


@dataclass(frozen=True, slots=True)
class ModelStructure:
    """Structure of a model that determines the roles of its tensors.

    Attributes:
        layers: layers of the model itself; further ones are for speculative decoding.
        experts: routed experts of a layer; 0 for a dense model.
        per_token: experts that a token is routed to.
        tied: whether the input embedding is the output head; None if unknown.
    """

    layers: int
    experts: int = 0
    per_token: int = 0
    tied: bool | None = None


class _TensorRole(Enum):
    TABLE = "table"
    HEAD = "head"
    EXPERTS = "experts"
    DENSE = "dense"
    UNREAD = "unread"


_TOWER: Final = re.compile(
    r"^(?:v|mm|a)\."
    r"|(?:^|\.)(?:vision\w*|visual|vit|vpm|resampler|audio\w*|sound_\w+|speech_\w+|multi_modal_projector|mm_projector"
    r"|mlp1|patch_merger|embed_vision|embed_audio|embed_tokens_extend|image_newline|connector|talker|token2wav"
    r"|code2wav)(?:\.|$)"
    r"|\.lora_[AB]\.(?:vision|speech)(?:\.|$)"
)
_SPECULATIVE: Final = re.compile(r"(?:^|\.)(?:mtp\w*|nextn|eh_proj)(?:\.|$)")
_ROWS: Final = re.compile(
    r"(?:^|\.)(?:embed_tokens_per_layer|per_layer_token_embd|wpe|embed_positions|position_embd)\."
)
"""Embeddings of which a step reads single rows, and which are never an output head."""
_TABLE: Final = re.compile(
    r"(?:^|\.)(?:embed_tokens|token_embd|tok_embeddings|word_embeddings|wte|embed_in|embeddings)\.\w+$"
)
_HEAD: Final = re.compile(r"(?:^|\.)(?:lm_head|embed_out)\.|^output\.")
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|blk|h|blocks)\.(\d{1,9})\.")
_TEXT: Final = re.compile(r"(?:^|\.)language_model\.")
_EXPERT: Final = re.compile(r"(?:\.experts|\.ffn_(?:gate|up|down))\.(\d{1,9})\.")
_FUSED: Final = re.compile(r"\.experts\.|_exps\.|_exps$")


def has_experts(tensors: Iterable[Tensor]) -> bool:
    """Whether any tensor is named as an expert, or as the experts of a layer."""
    return any(_EXPERT.search(tensor.name) or _FUSED.search(tensor.name) for tensor in tensors)


def sum_bytes(tensors: Iterable[Tensor]) -> float:
    """Total size of the tensors, bytes."""
    return fsum(tensor.size for tensor in tensors)


def compute_reads(tensors: Iterable[Tensor], structure: ModelStructure) -> WeightReads:
    """The weights that a step reads.

    Raises:
        ModelError: the tensors contradict the structure, or none of them is an embedding or output head.
    """
    by_role: dict[_TensorRole, list[Tensor]] = defaultdict(list)
    for tensor, role in _assign_roles([tensor for tensor in tensors if tensor.size], structure):
        by_role[role].append(tensor)
    if by_role[_TensorRole.HEAD]:
        head = by_role[_TensorRole.HEAD]
    elif structure.tied is False:
        raise ModelError(
            "the tensors have no output head, though config.json says that the input table is not the head"
        )
    else:
        head = by_role[_TensorRole.TABLE]
    if not head:
        raise ModelError("no tensor is named as an input table or an output head, so what a step reads is not known")
    if bool(structure.experts) != bool(by_role[_TensorRole.EXPERTS]):
        present, missing = ("shapes", "tensors") if structure.experts else ("tensors", "shapes")
        raise ModelError(f"the {present} tell of experts, the {missing} do not, so what a step reads is not known")
    dense = [*by_role[_TensorRole.DENSE], *head]
    return WeightReads(
        dense_bytes=sum_bytes(dense),
        dense_parameters=_sum_parameters(dense),
        head_parameters=_sum_parameters(head) or 0.0,
        experts=_build_experts(by_role[_TensorRole.EXPERTS], structure) if structure.experts else (),
    )


def _assign_roles(tensors: list[Tensor], structure: ModelStructure) -> Iterable[tuple[Tensor, _TensorRole]]:
    has_language_model = any(_TEXT.search(tensor.name) for tensor in tensors)
    for tensor in tensors:
        if has_language_model and not _TEXT.search(tensor.name) and not _HEAD.search(tensor.name):
            yield tensor, _TensorRole.UNREAD
        else:
            yield tensor, _determine_role(tensor, structure)


def _determine_role(tensor: Tensor, structure: ModelStructure) -> _TensorRole:
    name = tensor.name
    layer = _LAYER.search(name)
    beyond = layer is not None and int(layer[1]) >= structure.layers
    if beyond or _TOWER.search(name) or _SPECULATIVE.search(name) or _ROWS.search(name):
        return _TensorRole.UNREAD
    if _HEAD.search(name):
        return _TensorRole.HEAD
    if layer is None and _TABLE.search(name):
        return _TensorRole.TABLE
    expert = _EXPERT.search(name)
    if expert is None:
        return _determine_fused_role(tensor, structure) if _FUSED.search(name) else _TensorRole.DENSE
    if structure.experts and int(expert[1]) >= structure.experts:
        raise ModelError(f"{shorten(name)}: there are only {structure.experts} experts")
    return _TensorRole.EXPERTS


def _determine_fused_role(tensor: Tensor, structure: ModelStructure) -> _TensorRole:
    """The role of a tensor with all experts of a layer along its first dimension, or along its last in a GGUF."""
    if tensor.parameters in (0, 1) and len(tensor.shape) <= 1:  # one scale for all experts
        return _TensorRole.DENSE
    if structure.experts and structure.experts not in (tensor.shape[:1] + tensor.shape[-1:]):
        raise ModelError(
            f"{shorten(tensor.name)}: expected a dimension of {structure.experts} experts in {tensor.shape}"
        )
    return _TensorRole.EXPERTS


def _build_experts(tensors: list[Tensor], structure: ModelStructure) -> tuple[Experts, ...]:
    parameters = _sum_parameters(tensors)
    return (
        Experts(
            total=structure.experts,
            per_token=structure.per_token,
            bytes_each=sum_bytes(tensors) / structure.experts,
            parameters_each=None if parameters is None else parameters / structure.experts,
        ),
    )


def _sum_parameters(tensors: list[Tensor]) -> float | None:
    total = 0
    for tensor in tensors:
        if tensor.parameters is None:
            return None
        total += tensor.parameters
    return float(total)
