"""What a step reads of a model, tensor by tensor: the same for safetensors headers and for the tensors of a GGUF.

A tensor's name says what becomes of it. Not read are the input table (one row of it per token) unless it serves as the
output head, parts for pictures and sound, layers that only speculation uses, and the experts that no token is sent to.
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
        name: as the file calls it.
        shape: as it lies in the file, packed or not.
        size: in bytes.
        parameters: behind it; 0 for scales and the like, None where several are packed in one element.
    """

    name: str
    shape: tuple[int, ...]
    size: float
    parameters: int | None


@dataclass(frozen=True, slots=True)
class ModelStructure:
    """What must be known of a model to tell its tensors apart.

    Attributes:
        layers: those of the model itself; any further ones are for speculation.
        experts: in a layer, 0 for a dense model.
        per_token: experts that a token is sent to.
        tied: the input table is the output head; None if that is not told.
    """

    layers: int
    experts: int = 0
    per_token: int = 0
    tied: bool | None = None


class _Role(Enum):
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
"""Tables of which a step reads single rows, and which are never a head."""
_TABLE: Final = re.compile(
    r"(?:^|\.)(?:embed_tokens|token_embd|tok_embeddings|word_embeddings|wte|embed_in|embeddings)\.\w+$"
)
_HEAD: Final = re.compile(r"(?:^|\.)(?:lm_head|embed_out)\.|^output\.")
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|blk|h|blocks)\.(\d{1,9})\.")
_TEXT: Final = re.compile(r"(?:^|\.)language_model\.")
_EXPERT: Final = re.compile(r"(?:\.experts|\.ffn_(?:gate|up|down))\.(\d{1,9})\.")
_FUSED: Final = re.compile(r"\.experts\.|_exps\.|_exps$")


def has_experts(tensors: Iterable[Tensor]) -> bool:
    """Whether any tensor is named as an expert, or as all experts of a layer."""
    return any(_EXPERT.search(tensor.name) or _FUSED.search(tensor.name) for tensor in tensors)


def sum_bytes(tensors: Iterable[Tensor]) -> float:
    """Bytes of all tensors together."""
    return fsum(tensor.size for tensor in tensors)


def compute_reads(tensors: Iterable[Tensor], layout: ModelStructure) -> WeightReads:
    """What a step reads of the tensors.

    Raises:
        ModelError: the tensors are not those of such a model.
    """
    parts: dict[_Role, list[Tensor]] = defaultdict(list)
    for tensor, role in _with_roles([tensor for tensor in tensors if tensor.size], layout):
        parts[role].append(tensor)
    if parts[_Role.HEAD]:
        head = parts[_Role.HEAD]
    elif layout.tied is False:
        raise ModelError(
            "the tensors have no output head, though config.json says that the input table is not the head"
        )
    else:
        head = parts[_Role.TABLE]
    if not head:
        raise ModelError("no tensor is named as an input table or an output head, so what a step reads is not known")
    if bool(layout.experts) != bool(parts[_Role.EXPERTS]):
        known, missing = ("shapes", "tensors") if layout.experts else ("tensors", "shapes")
        raise ModelError(f"the {known} tell of experts, the {missing} do not, so what a step reads is not known")
    dense = [*parts[_Role.DENSE], *head]
    return WeightReads(
        dense_bytes=sum_bytes(dense),
        dense_parameters=_parameters(dense),
        head_parameters=_parameters(head) or 0.0,
        experts=_experts(parts[_Role.EXPERTS], layout) if layout.experts else (),
    )


def _with_roles(tensors: list[Tensor], layout: ModelStructure) -> Iterable[tuple[Tensor, _Role]]:
    part_of_whole = any(_TEXT.search(tensor.name) for tensor in tensors)
    for tensor in tensors:
        if part_of_whole and not _TEXT.search(tensor.name) and not _HEAD.search(tensor.name):
            yield tensor, _Role.UNREAD
        else:
            yield tensor, _role(tensor, layout)


def _role(tensor: Tensor, layout: ModelStructure) -> _Role:
    name = tensor.name
    layer = _LAYER.search(name)
    beyond = layer is not None and int(layer[1]) >= layout.layers
    if beyond or _TOWER.search(name) or _SPECULATIVE.search(name) or _ROWS.search(name):
        return _Role.UNREAD
    if _HEAD.search(name):
        return _Role.HEAD
    if layer is None and _TABLE.search(name):
        return _Role.TABLE
    expert = _EXPERT.search(name)
    if expert is None:
        return _fused(tensor, layout) if _FUSED.search(name) else _Role.DENSE
    if layout.experts and int(expert[1]) >= layout.experts:
        raise ModelError(f"{shorten(name)}: there are only {layout.experts} experts")
    return _Role.EXPERTS


def _fused(tensor: Tensor, layout: ModelStructure) -> _Role:
    """The role of a tensor that holds all experts of a layer along its first dimension, or its last in a GGUF."""
    if tensor.parameters in (0, 1) and len(tensor.shape) <= 1:  # one scale for all
        return _Role.DENSE
    if layout.experts and layout.experts not in (tensor.shape[:1] + tensor.shape[-1:]):
        raise ModelError(f"{shorten(tensor.name)}: expected a dimension of {layout.experts} experts in {tensor.shape}")
    return _Role.EXPERTS


def _experts(tensors: list[Tensor], layout: ModelStructure) -> tuple[Experts, ...]:
    parameters = _parameters(tensors)
    return (
        Experts(
            total=layout.experts,
            per_token=layout.per_token,
            bytes_each=sum_bytes(tensors) / layout.experts,
            parameters_each=None if parameters is None else parameters / layout.experts,
        ),
    )


def _parameters(tensors: list[Tensor]) -> float | None:
    total = 0
    for tensor in tensors:
        if tensor.parameters is None:
            return None
        total += tensor.parameters
    return float(total)
