"""The part of a Hugging Face config.json that describes the language model, and what it says by saying nothing.

A multimodal model nests the language model in `text_config` (Qwen-omni: `thinker_config.text_config`). Nested parts
leave out whatever equals the default of their class, so a key that is missing there has a meaning, which is taken from
the table below or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.models.errors import ModelError, shorten
from phasewatch.models.fields import JsonFields

_NESTED: Final = ("thinker_config", "text_config")

_TOWERS: Final = ("vision_config", "audio_config", "visual", "talker_config")

_MODEL_BYTES: Final = frozenset({"bfloat16", "float16", "half"})

_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gemma": {"head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 256, "tie_word_embeddings": True, "sliding_window_pattern": 2},
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
    "smollm3": {"tie_word_embeddings": True},
    "cohere2": {"sliding_window_pattern": 4},
    "gpt_oss": {"head_dim": 64, "attention_bias": True, "sliding_window_pattern": 2},
    "qwen3": {"head_dim": 128},
    "qwen3_vl_text": {"head_dim": 128},
    "qwen3_next": {"head_dim": 256, "full_attention_interval": 4},
    "qwen3_5_text": {"head_dim": 256, "full_attention_interval": 4},
    "qwen3_5_moe_text": {"head_dim": 256, "full_attention_interval": 4},
    "glm4": {"head_dim": 128},
    "llama4_text": {
        "head_dim": 128,
        "intermediate_size_mlp": 16_384,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
        "interleave_moe_layer_step": 1,
    },
    "minimax_m2": {"head_dim": 128},
    "jamba": {"attn_layer_period": 8, "attn_layer_offset": 4},
}
"""What a class of transformers 4.40 to 5.19 takes for a key that a published config.json may leave out."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The language model of a config.json.

    Attributes:
        model_type: as the file calls it.
        fields: its keys.
        whole: the keys of the whole file, for what is told once for all parts.
        nested: it is a part of the file, so keys that equal a default are left out.
        towers: the model has parts for pictures or sound as well, which are not counted here.
    """

    model_type: str
    fields: JsonFields
    whole: JsonFields
    nested: bool
    towers: bool

    def read_tied_embeddings(self) -> frozenset[bool]:
        """What the file says of `tie_word_embeddings`: nothing, one thing, or two where its parts contradict.

        Raises:
            ModelError: it is neither true nor false.
        """
        parts = [JsonFields(part.values, part.place) for part in (self.fields, self.whole)]
        key = "tie_word_embeddings"
        return frozenset(part.get_bool(key, default=False) for part in parts if part.get(key) is not None)

    def read_quantisation_config(self) -> JsonFields | None:
        """What the file says of how the weights are stored; None if nothing. Older files of compressed-tensors, and
        those of MLX, say it under keys of their own.

        Raises:
            ModelError: it is no object.
        """
        for part in (self.whole, self.fields):
            for key in ("quantization_config", "compression_config", "quantization"):
                section = part.get_section(key)
                if section is not None:
                    return section
        return None

    def get_text(self, key: str) -> str | None:
        """A text, told by the language model or by the whole.

        Raises:
            ModelError: it is something else.
        """
        return self.fields.get_text(key) or self.whole.get_text(key)


def read_architecture(config: object) -> Architecture:
    """The language model in a parsed config.json.

    Raises:
        ModelError: it is no object, or does not say what kind of model it is.
    """
    if not isinstance(config, Mapping):
        raise ModelError("config.json: expected an object")
    whole = fields = JsonFields(config, "config.json: ")
    towers = any(fields.get(key) is not None for key in _TOWERS)
    for key in _NESTED:
        section = fields.get_section(key)
        if section is not None:
            fields = section
            towers = towers or any(section.get(tower) is not None for tower in _TOWERS)
    model_type = fields.get_text("model_type") or whole.get_text("model_type")
    if model_type is None:
        raise fields.error("model_type", "missing; expected the name of an architecture")
    fields = JsonFields(fields.values, fields.place, _DEFAULTS.get(model_type, {}))
    return Architecture(model_type, fields, whole, nested=fields.values is not whole.values, towers=towers)


def is_empty(value: object) -> bool:
    """Whether a value says that a model has nothing of the kind: null, false, 0, an empty list."""
    return value is None or value is False or value == 0 or value in ([], {}, "")


def read_dtype_bytes(model: Architecture) -> float:
    """Bytes of a number in the data type that the model computes in: 16 bits, as servers take what does not say.

    Raises:
        ModelError: it is of another size.
    """
    name = model.get_text("dtype") or model.get_text("torch_dtype")
    if name is not None and name.removeprefix("torch.") not in _MODEL_BYTES:
        raise model.fields.error("dtype", f"expected bfloat16 or float16, found {shorten(name)}")
    return 2.0
