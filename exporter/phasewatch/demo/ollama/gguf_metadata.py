"""Tensors and metadata of a simulated model, as Ollama reports them from a GGUF file.

Names, order and shapes of the tensors are those of a Llama converted by llama.cpp, as Ollama 0.33 lists them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from phasewatch.models.sources.ggml import TYPE_SIZES

_BILLION: Final = 1_000_000_000
_MILLION: Final = 1_000_000


@dataclass(frozen=True)
class GgufMetadata:
    """The dimensions of a Llama, from which its metadata follow. The defaults are those of the recorded tiny model.

    Attributes:
        layers: number of transformer blocks.
        width: size of the hidden state.
        heads: number of attention heads.
        kv_heads: number of key-value heads.
        feed_forward: width of the feed-forward layers.
        vocabulary: number of tokens in the vocabulary.
        quantization: name of the quantization, as Ollama shows it.
        weight_type: GGML type of all weight matrices. Real `_K_M` files keep some of them at a higher precision.
    """

    layers: int = 12
    width: int = 512
    heads: int = 8
    kv_heads: int = 2
    feed_forward: int = 1536
    vocabulary: int = 261
    quantization: str = "F16"
    weight_type: str = "F16"

    @cached_property
    def parameters(self) -> int:
        """Number of parameters in all tensors."""
        return sum(math.prod(tensor["shape"]) for tensor in self.list_tensors())

    @property
    def weight_bytes(self) -> int:
        """Size of all tensors, bytes."""
        return sum(
            math.prod(tensor["shape"]) // TYPE_SIZES[tensor["type"]][1] * TYPE_SIZES[tensor["type"]][0]
            for tensor in self.list_tensors()
        )

    @property
    def kv_cache_bytes_per_token(self) -> int:
        """Size of one token's keys and values at 16 bits, bytes: 2 x layers x kv_heads x head_dim x 2."""
        return 4 * self.layers * self.kv_heads * (self.width // self.heads)

    def format_parameter_size(self) -> str:
        """The number of parameters as Ollama's `parameter_size` (format/format.go, `HumanNumber`)."""
        if self.parameters >= _BILLION:
            return f"{self.parameters / _BILLION:.1f}B"
        return f"{self.parameters / _MILLION:.2f}M"

    def list_tensors(self) -> list[dict[str, Any]]:
        """The key `tensors` of /api/show."""
        return [
            {"name": f"{name}.weight", "type": self.weight_type if len(shape) > 1 else "F32", "shape": shape}
            for name, shape in self._list_shapes()
        ]

    def build_model_info(self, train_context: int) -> dict[str, Any]:
        """The key `model_info` of /api/show. As in Ollama, the lists of the tokenizer are null.

        Args:
            train_context: context length that the model was trained with, tokens.
        """
        return {
            "general.architecture": "llama",
            "general.file_type": 1,
            "general.parameter_count": self.parameters,
            "general.quantization_version": 2,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-05,
            "llama.block_count": self.layers,
            "llama.context_length": train_context,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.feed_forward,
            "llama.rope.dimension_count": self.width // self.heads,
            "llama.vocab_size": self.vocabulary,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.bos_token_id": 256,
            "tokenizer.ggml.eos_token_id": 257,
            "tokenizer.ggml.merges": None,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.token_type": None,
            "tokenizer.ggml.tokens": None,
        }

    def _list_shapes(self) -> Iterator[tuple[str, list[int]]]:
        kv_width = self.width // self.heads * self.kv_heads
        yield "output", [self.width, self.vocabulary]
        yield "output_norm", [self.width]
        yield "token_embd", [self.width, self.vocabulary]
        for layer in range(self.layers):
            block = f"blk.{layer}"
            yield f"{block}.attn_k", [self.width, kv_width]
            yield f"{block}.attn_norm", [self.width]
            yield f"{block}.attn_output", [self.width, self.width]
            yield f"{block}.attn_q", [self.width, self.width]
            yield f"{block}.attn_v", [self.width, kv_width]
            yield f"{block}.ffn_down", [self.feed_forward, self.width]
            yield f"{block}.ffn_gate", [self.width, self.feed_forward]
            yield f"{block}.ffn_norm", [self.width]
            yield f"{block}.ffn_up", [self.width, self.feed_forward]
