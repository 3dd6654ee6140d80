"""What one model costs per step and per token, wherever that is known from."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from phasewatch.hardware.facts import Precision

WEIGHT_TOLERANCE: Final = 0.02
"""Two totals of the weights of one model may differ by this share: small tensors are not worth a disagreement."""


class ModelSource(StrEnum):
    """Where a figure comes from: the `source` label of the model metrics."""

    CONFIG = "config"
    """The operator's own configuration."""
    SAFETENSORS = "safetensors"
    """The headers of the weight files: exact for every tensor."""
    INDEX = "index"
    """The index of the weight files: exact as a whole, not tensor by tensor."""
    CONFIG_JSON = "config_json"
    """Computed from the shapes in the model's config.json."""
    OLLAMA = "ollama"
    """The tensors and shapes that Ollama tells."""


@dataclass(frozen=True, slots=True)
class Experts:
    """One kind of expert layers: `total` experts of which a token uses `per_token`.

    Attributes:
        total: routed experts of a layer.
        per_token: those that a token is sent to.
        bytes_each: bytes of one expert, summed over all layers of this kind.
        parameters_each: parameters of one expert, summed likewise; None if only the bytes are known.
    """

    total: int
    per_token: int
    bytes_each: float
    parameters_each: float | None


@dataclass(frozen=True, slots=True)
class WeightReads:
    """What a decode step reads of the weights. An input table that is not the output head as well, vision and audio
    towers and layers that only speculation uses are not in it.

    Attributes:
        dense_bytes: read by every step whatever is routed where, shared experts and output head included.
        dense_parameters: the parameters behind them; None if only the bytes are known.
        head_parameters: of those, the output head: in prefill only the last token of a prompt passes through it.
        experts: routed expert layers.
    """

    dense_bytes: float
    dense_parameters: float | None
    head_parameters: float = 0.0
    experts: tuple[Experts, ...] = ()

    def bytes_per_step(self, tokens: float = 1.0) -> float:
        """Bytes that one step reads when it takes in `tokens` tokens, at least one.

        Of E experts, tokens that each choose k independently touch E x (1 - (1 - k/E)^tokens). Real routing is less
        even and touches fewer, so for mixtures this is an estimate from above. Experts that only drafts in vain touch
        are not in it, where only tokens that were accepted are counted.
        """
        return self.dense_bytes + sum(_touched(group, tokens) * group.bytes_each for group in self.experts)

    def active_parameters(self) -> float | None:
        """Parameters that one token is multiplied with, the output head included; None if they are not known."""
        active = self.dense_parameters
        for group in self.experts:
            if active is None or group.parameters_each is None:
                return None
            active += group.per_token * group.parameters_each
        return active


def _touched(group: Experts, tokens: float) -> float:
    return group.total * (1 - math.pow(1 - group.per_token / group.total, max(tokens, 1.0)))


@dataclass(frozen=True, slots=True)
class KvLayers:
    """Layers that keep keys and values alike.

    Attributes:
        elements_per_token: numbers kept of a token, over all layers of this kind together.
        span: how many of the newest tokens are kept and read; None for all.
        fixed_bytes_per_token: bytes kept of a token besides, whatever the data type of the cache.
    """

    elements_per_token: float
    span: int | None = None
    fixed_bytes_per_token: float = 0.0


@dataclass(frozen=True, slots=True)
class KvCache:
    """What a model keeps of each token, and reads again at each step.

    Attributes:
        layers: by kind; recurrent and linear layers keep nothing per token and are not in it.
        bytes_per_element: 2 for 16 bit, 1 for fp8; None if the shape is known and the data type is not.
        source: where this comes from.
    """

    layers: tuple[KvLayers, ...]
    bytes_per_element: float | None
    source: ModelSource

    def bytes_per_token(self) -> float | None:
        """Bytes that one more token takes while it is within every span; None if the data type is not known."""
        return self.read_bytes(1.0)

    def read_bytes(self, context: float) -> float | None:
        """Bytes that a step reads for one sequence of `context` tokens; None if the data type is not known."""
        size = self.bytes_per_element
        if size is None:
            return None
        return sum(
            (size * kind.elements_per_token + kind.fixed_bytes_per_token) * _within(context, kind.span)
            for kind in self.layers
        )


@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """Layers that attend alike.

    Attributes:
        operations: floating point operations that one token takes per token that it attends to (4 x heads x head
            dimension), over all layers of this kind together.
        span: how many of the newest tokens are attended to; None for all.
    """

    operations: float
    span: int | None = None


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """All that is known of a model; None where it is not known.

    Attributes:
        weight_bytes: of all weights, as they lie in memory or in the files.
        weight_source: where that comes from.
        reads: what a step reads of them.
        kv_cache: what it reads of the past.
        attention: by kind of layers, what attending to it takes.
        precision: in which the engine multiplies weights of this format, if it is known to.
        sparse: a stream leaves a good part of the weights alone, even where it is not known which part: a mixture of
            experts, or a model with an encoder.
    """

    weight_bytes: float | None = None
    weight_source: ModelSource | None = None
    reads: WeightReads | None = None
    kv_cache: KvCache | None = None
    attention: tuple[AttentionCosts, ...] | None = None
    precision: Precision | None = None
    sparse: bool = False

    def attention_operations(self, context: float) -> float | None:
        """Floating point operations that one token takes to attend to the `context` tokens before it."""
        if self.attention is None:
            return None
        return sum(kind.operations * _within(context, kind.span) for kind in self.attention)

    def stream_bytes(self) -> float | None:
        """Bytes of all weights, less what a single stream leaves alone: a mixture is no slower for many experts.

        It is never less than what a step reads. Of a sparse model whose experts are not told apart, that is all that
        is known of it.
        """
        if self.weight_bytes is None:
            return None
        experts = self.reads.experts if self.reads else ()
        if not experts and not self.sparse:
            return self.weight_bytes
        if self.reads is None:
            return None
        if not experts:
            return self.reads.bytes_per_step()
        left_alone = sum((group.total - group.per_token) * group.bytes_each for group in experts)
        return max(self.weight_bytes - left_alone, self.reads.bytes_per_step())


def _within(context: float, span: int | None) -> float:
    return context if span is None else min(context, span)
