"""What a simulated model is made of: its tensors and sizes, told as Ollama tells them of a GGUF file.

Names, order and shapes of the tensors are those of a Llama as llama.cpp converts it, and as Ollama 0.33 lists them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.models.sources.ggml import TYPE_SIZES

_BILLION: Final = 1_000_000_000
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The dimensions of a Llama; by default those of a tiny one that a real Ollama was recorded with.

    Attributes:
        layers: transformer blocks.
        width: of the hidden state.
        heads: of attention.
        kv_heads: of them, those with keys and values of their own.
        feed_forward: width of the feed-forward layers.
        vocabulary: tokens that it knows.
        quantization: name of its quantization, as Ollama shows it.
        weight_type: type of its weight matrices. Real files of a `_K_M` keep some of them in more bits.
    """

    layers: int = 12
    width: int = 512
    heads: int = 8
    kv_heads: int = 2
    feed_forward: int = 1536
    vocabulary: int = 261
    quantization: str = "F16"
    weight_type: str = "F16"

    @property
    def parameters(self) -> int:
        """How many numbers all tensors hold."""
        return sum(math.prod(tensor["shape"]) for tensor in self.tensors())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(
            math.prod(tensor["shape"]) // TYPE_SIZES[tensor["type"]][1] * TYPE_SIZES[tensor["type"]][0]
            for tensor in self.tensors()
        )

    @property
    def kv_cache_bytes_per_token(self) -> int:
        """Bytes of the keys and values of a token at 16 bits: 2 x layers x kv_heads x head_dim x 2."""
        return 4 * self.layers * self.kv_heads * (self.width // self.heads)

    def parameter_size(self) -> str:
        """The parameters in the words of Ollama's `parameter_size` (format/format.go, `HumanNumber`)."""
        if self.parameters >= _BILLION:
            return f"{self.parameters / _BILLION:.1f}B"
        return f"{self.parameters / _MILLION:.2f}M"

    def tensors(self) -> list[dict[str, Any]]:
        """The tensors, as /api/show lists them."""
        return [
            {"name": f"{name}.weight", "type": self.weight_type if len(shape) > 1 else "F32", "shape": shape}
            for name, shape in self._shapes()
        ]

    def model_info(self, train_context: int) -> dict[str, Any]:
        """The keys of the GGUF file, as /api/show tells them; the tokenizer's lists are left out there, too."""
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

    def _shapes(self) -> Iterator[tuple[str, list[int]]]:
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
