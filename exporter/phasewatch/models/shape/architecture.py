"""The language model of a Hugging Face config.json, including transformers' defaults for missing keys.

A multimodal model nests the language model in `text_config` (Qwen-omni: `thinker_config.text_config`). Nested sections
omit keys that equal the default of their class, so a missing key stands for that default, if the table below has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.models.errors import ModelError, shorten
from phasewatch.models.fields import JsonFields

_NESTED: Final = ("thinker_config", "text_config")

_TOWERS: Final = ("vision_config", "audio_config", "visual", "talker_config")

_SIXTEEN_BIT_TYPES: Final = frozenset({"bfloat16", "float16", "half"})

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
"""Defaults of transformers 4.40 to 5.19 for keys that a published config.json may omit, by `model_type`."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The language model of a config.json.

    Attributes:
        model_type: name of the architecture in the file.
        fields: keys of the language model.
        root: keys of the whole file, some of which apply to all its sections.
        nested: whether it is a section of the file, so that keys equal to a default are omitted.
        towers: whether the model also has vision or audio parts, which are not counted here.
    """

    model_type: str
    fields: JsonFields
    root: JsonFields
    nested: bool
    towers: bool

    def read_tied_embeddings(self) -> frozenset[bool]:
        """The values of `tie_word_embeddings` in the file: none, one, or both if its sections contradict each other.

        Raises:
            ModelError: a value is not a boolean.
        """
        sections = [JsonFields(section.values, section.place) for section in (self.fields, self.root)]
        key = "tie_word_embeddings"
        return frozenset(section.get_bool(key, default=False) for section in sections if section.get(key) is not None)

    def read_quantisation_config(self) -> JsonFields | None:
        """The quantisation section of the file; None if it has none.

        Older files of compressed-tensors name it `compression_config`, files of MLX `quantization`.

        Raises:
            ModelError: it is not an object.
        """
        for parent in (self.root, self.fields):
            for key in ("quantization_config", "compression_config", "quantization"):
                section = parent.get_section(key)
                if section is not None:
                    return section
        return None

    def get_text(self, key: str) -> str | None:
        """A string of the language model's section, or else of the whole file; None if missing in both.

        Raises:
            ModelError: it is not a string.
        """
        return self.fields.get_text(key) or self.root.get_text(key)


def read_architecture(config: object) -> Architecture:
    """The language model of a parsed config.json.

    Raises:
        ModelError: it is not an object, or has no `model_type`.
    """
    if not isinstance(config, Mapping):
        raise ModelError("config.json: expected an object")
    root = fields = JsonFields(config, "config.json: ")
    towers = any(fields.get(key) is not None for key in _TOWERS)
    for key in _NESTED:
        section = fields.get_section(key)
        if section is not None:
            fields = section
            towers = towers or any(section.get(tower) is not None for tower in _TOWERS)
    model_type = fields.get_text("model_type") or root.get_text("model_type")
    if model_type is None:
        raise fields.error("model_type", "missing; expected the name of an architecture")
    fields = JsonFields(fields.values, fields.place, _DEFAULTS.get(model_type, {}))
    return Architecture(model_type, fields, root, nested=fields.values is not root.values, towers=towers)


def is_empty(value: object) -> bool:
    """Whether the value of a key means that a model does not have the feature: null, false, 0, or empty."""
    return value is None or value is False or value == 0 or value in ([], {}, "")


def read_dtype_bytes(model: Architecture) -> float:
    """Bytes of an element in the model's data type: 2, which servers also assume if the file names no type.

    Raises:
        ModelError: the data type has another size.
    """
    name = model.get_text("dtype") or model.get_text("torch_dtype")
    if name is not None and name.removeprefix("torch.") not in _SIXTEEN_BIT_TYPES:
        raise model.fields.error("dtype", f"expected bfloat16 or float16, found {shorten(name)}")
    return 2.0
