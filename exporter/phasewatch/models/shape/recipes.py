"""How to count the parameters of each supported architecture: its biases, norms, experts and their placement.

Every entry was verified against the parameter count of transformers 5.19 for such a config.json. Architectures that are
not in the table are not counted.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Bias(StrEnum):
    """Projections of attention that have a bias."""

    NONE = "none"
    INPUTS = "inputs"
    """Queries, keys and values."""
    ALL = "all"
    """Queries, keys, values and the output."""


class Norm(StrEnum):
    """Normalisation of queries and keys."""

    NONE = "none"
    HEAD = "head"
    """Per head, with one weight per element of a head."""
    WIDTH = "width"
    """Across all heads, with one weight per element."""


class Placement(StrEnum):
    """Placement of the layers with experts."""

    EVERY = "every"
    STEP = "step"
    """Every `decoder_sparse_step`-th layer, except `mlp_only_layers`."""
    AFTER_FIRST = "after_first"
    """From layer `first_k_dense_replace` on, every `moe_layer_freq`-th."""
    INTERLEAVED = "interleaved"
    """The layers in `moe_layers`, or every `interleave_moe_layer_step`-th."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Keys and structure of an architecture's experts.

    Attributes:
        width: key of the inner size of a routed expert.
        placement: the layers with experts.
        shared_width: key of the inner size of the shared experts; None without shared experts.
        shared_count: key of the number of shared experts; None for one.
        router_bias: whether the router has a bias.
        expert_bias: whether the projections of an expert have biases.
        shared_gate: whether the shared experts have a gate.
        dense_width: key of the inner size of layers without experts.
    """

    width: str
    placement: Placement = Placement.EVERY
    shared_width: str | None = None
    shared_count: str | None = None
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    dense_width: str = "intermediate_size"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to count the parameters of an architecture.

    Attributes:
        bias: biases of attention, if `attention_bias` is set.
        always_biased: whether they exist regardless of `attention_bias`.
        norm: normalisation of queries and keys.
        norm_by_key: whether it exists only if `use_qk_norm` is set.
        layer_norms: number of norms of the hidden size in a layer.
        sinks: whether attention has a sink parameter per head.
        mixture: its experts; None for a dense model.
    """

    bias: Bias = Bias.NONE
    always_biased: bool = False
    norm: Norm = Norm.NONE
    norm_by_key: bool = False
    layer_norms: int = 2
    sinks: bool = False
    mixture: Mixture | None = None


_LLAMA: Final = Recipe(bias=Bias.ALL)
_QWEN2: Final = Recipe(bias=Bias.INPUTS, always_biased=True)
_QWEN3: Final = Recipe(bias=Bias.ALL, norm=Norm.HEAD)
_OLMO: Final = Recipe(bias=Bias.ALL, norm=Norm.WIDTH)
_QWEN_EXPERTS: Final = Mixture("moe_intermediate_size", Placement.STEP)
_QWEN3_MOE: Final = dataclasses.replace(_QWEN3, mixture=_QWEN_EXPERTS)
_MIXTRAL_EXPERTS: Final = Mixture("intermediate_size")
_DEEPSEEK_EXPERTS: Final = Mixture(
    "moe_intermediate_size",
    Placement.AFTER_FIRST,
    shared_width="moe_intermediate_size",
    shared_count="n_shared_experts",
)
_DEEPSEEK: Final = Recipe(mixture=dataclasses.replace(_DEEPSEEK_EXPERTS, router_bias=True))

RECIPES: Final[Mapping[str, Recipe]] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "smollm3": _LLAMA,
    "mistral": Recipe(),
    "phi3": Recipe(),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "gemma": _LLAMA,
    "gemma2": Recipe(bias=Bias.ALL, layer_norms=4),
    "gemma3_text": Recipe(bias=Bias.ALL, layer_norms=4, norm=Norm.HEAD),
    "olmo2": _OLMO,
    "olmo3": _OLMO,
    "mixtral": Recipe(mixture=_MIXTRAL_EXPERTS),
    "minimax_m2": Recipe(norm=Norm.WIDTH, mixture=dataclasses.replace(_MIXTRAL_EXPERTS, router_bias=True)),
    "gpt_oss": Recipe(
        bias=Bias.ALL,
        sinks=True,
        mixture=dataclasses.replace(_MIXTRAL_EXPERTS, router_bias=True, expert_bias=True),
    ),
    "qwen2_moe": dataclasses.replace(
        _QWEN2,
        mixture=dataclasses.replace(_QWEN_EXPERTS, shared_width="shared_expert_intermediate_size", shared_gate=True),
    ),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "deepseek_v2": Recipe(mixture=_DEEPSEEK_EXPERTS),
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": Recipe(
        bias=Bias.INPUTS,
        norm=Norm.HEAD,
        norm_by_key=True,
        mixture=dataclasses.replace(_DEEPSEEK_EXPERTS, router_bias=True),
    ),
    "llama4_text": Recipe(
        bias=Bias.ALL,
        mixture=Mixture(
            "intermediate_size",
            Placement.INTERLEAVED,
            shared_width="intermediate_size",
            dense_width="intermediate_size_mlp",
        ),
    ),
}
"""Supported architectures, by `model_type`."""
