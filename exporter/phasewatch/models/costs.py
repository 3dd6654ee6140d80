"""Costs of one model per engine step and per token, whatever their source."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from phasewatch.hardware.facts import Precision

WEIGHT_TOLERANCE: Final = 0.02
"""Relative difference up to which two weight totals count as equal: small tensors may be missing from one."""


class ModelSource(StrEnum):
    """Where a figure of a model comes from: the `source` label of the model metrics."""

    CONFIG = "config"
    """The configuration."""
    SAFETENSORS = "safetensors"
    """The headers of the weight files: exact for every tensor."""
    INDEX = "index"
    """The index of the weight files: exact in total, without single tensors."""
    CONFIG_JSON = "config_json"
    """Computed from the shapes in the model's config.json."""
    OLLAMA = "ollama"
    """The tensors and shapes in Ollama's /api/show."""
    LLAMACPP = "llamacpp"
    """The size of all tensors in llama-server's /v1/models."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture-of-experts layers of one shape.

    Attributes:
        total: routed experts of a layer.
        per_token: experts that a token is routed to.
        bytes_each: size of one expert, summed over all layers of this shape.
        parameters_each: parameters of one expert, summed over the same layers; None if only the bytes are known.
    """

    total: int
    per_token: int
    bytes_each: float
    parameters_each: float | None


@dataclass(frozen=True, slots=True)
class WeightReads:
    """The weights that a decode step reads.

    Excluded are an input embedding that is not tied to the output head, vision and audio towers, and layers for
    speculative decoding only.

    Attributes:
        dense_bytes: size of the weights that every step reads whatever the routing, including shared experts and the
            output head.
        dense_parameters: number of parameters in them; None if only the bytes are known.
        head_parameters: number of them in the output head, which in prefill only the last token of a prompt passes.
        experts: routed experts.
    """

    dense_bytes: float
    dense_parameters: float | None
    head_parameters: float = 0.0
    experts: tuple[Experts, ...] = ()

    def compute_bytes_per_step(self, tokens: float = 1.0) -> float:
        """Bytes that one step over `tokens` tokens reads; fewer than one token count as one.

        If each token chooses k of E experts independently, n tokens touch E x (1 - (1 - k/E)^n) of them. Real routing
        is less even and touches fewer, so this is an upper estimate for mixtures of experts. With speculative decoding,
        experts touched only by rejected drafts are missing if `tokens` counts accepted tokens.
        """
        return self.dense_bytes + sum(_count_touched(group, tokens) * group.bytes_each for group in self.experts)

    def compute_active_parameters(self) -> float | None:
        """Parameters that one token is multiplied with, including the output head; None if unknown."""
        active = self.dense_parameters
        for group in self.experts:
            if active is None or group.parameters_each is None:
                return None
            active += group.per_token * group.parameters_each
        return active


def _count_touched(group: Experts, tokens: float) -> float:
    return group.total * (1 - math.pow(1 - group.per_token / group.total, max(tokens, 1.0)))


@dataclass(frozen=True, slots=True)
class KvLayers:
    """Layers whose KV cache has one shape.

    Attributes:
        elements_per_token: elements cached per token, summed over these layers.
        span: number of most recent tokens that are cached and read; None for all.
        fixed_bytes_per_token: bytes cached per token in addition, independent of the data type of the cache.
    """

    elements_per_token: float
    span: int | None = None
    fixed_bytes_per_token: float = 0.0


@dataclass(frozen=True, slots=True)
class KvCache:
    """The KV cache: what a model stores for each token and reads in each step.

    Attributes:
        layers: grouped by shape. Recurrent and linear attention layers cache nothing per token and are left out.
        bytes_per_element: 2 for 16 bit, 1 for fp8; None if only the shape is known.
        source: where the shape comes from.
    """

    layers: tuple[KvLayers, ...]
    bytes_per_element: float | None
    source: ModelSource

    def compute_bytes_per_token(self) -> float | None:
        """Bytes that one token takes while it is within every span; None if the data type is unknown."""
        return self.read_bytes(1.0)

    def read_bytes(self, context: float) -> float | None:
        """Bytes that a step reads for one sequence of `context` tokens; None if the data type is unknown."""
        size = self.bytes_per_element
        if size is None:
            return None
        return sum(
            (size * group.elements_per_token + group.fixed_bytes_per_token) * _limit_to_span(context, group.span)
            for group in self.layers
        )


@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """Attention of layers that share a span.

    Attributes:
        operations: floating point operations of one token per token that it attends to (4 x heads x head dimension),
            summed over these layers.
        span: number of most recent tokens that are attended to; None for all.
    """

    operations: float
    span: int | None = None


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Costs of one model; None where unknown.

    Attributes:
        weight_bytes: total weight size, bytes, in the format of the files or of the server's memory.
        weight_source: where the total comes from.
        reads: the weights that a step reads.
        kv_cache: the KV cache that a step reads.
        attention: operations of attention, grouped by span.
        precision: number format in which engines multiply weights of this format; None if that depends on the engine.
        sparse: whether a single stream skips a large part of the weights, even if unknown which: a mixture of experts,
            or a model with an encoder.
    """

    weight_bytes: float | None = None
    weight_source: ModelSource | None = None
    reads: WeightReads | None = None
    kv_cache: KvCache | None = None
    attention: tuple[AttentionCosts, ...] | None = None
    precision: Precision | None = None
    sparse: bool = False

    def compute_attention_operations(self, context: float) -> float | None:
        """Floating point operations of one token's attention to the `context` tokens before it; None if unknown."""
        if self.attention is None:
            return None
        return sum(group.operations * _limit_to_span(context, group.span) for group in self.attention)

    def compute_stream_bytes(self) -> float | None:
        """Total weight size minus the experts that a single stream skips, in bytes; None if unknown.

        At least the bytes that a step reads, which is the best estimate for a sparse model whose experts are unknown.
        """
        if self.weight_bytes is None:
            return None
        experts = self.reads.experts if self.reads else ()
        if not experts and not self.sparse:
            return self.weight_bytes
        if self.reads is None:
            return None
        if not experts:
            return self.reads.compute_bytes_per_step()
        skipped = sum((group.total - group.per_token) * group.bytes_each for group in experts)
        return max(self.weight_bytes - skipped, self.reads.compute_bytes_per_step())


def _limit_to_span(context: float, span: int | None) -> float:
    return context if span is None else min(context, span)
