"""Models for tests: small config.json files, and weight files whose data takes no disk space."""

import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

from phasewatch.models.errors import ModelError
from phasewatch.models.shape.architecture import Architecture, read_architecture
from tests.support.paths import MODELS

_BYTES_PER_ELEMENT: Final = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4, "I64": 8, "U8": 1}

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Data type and shape of each tensor, by name."""


def load_config(name: str, **changes: Any) -> dict[str, Any]:
    """The config.json of a model with some keys changed; a key that is changed to `...` is removed."""
    document: dict[str, Any] = json.loads((MODELS / f"{name}.json").read_text()) | changes
    return {key: value for key, value in document.items() if value is not ...}


def load_model(name: str, **changes: Any) -> Architecture:
    """The language model of `load_config`."""
    return read_architecture(load_config(name, **changes))


def refusal(function: Callable[..., object], *arguments: Any, **keywords: Any) -> str:
    """The message of the ModelError that a call raises; empty if it raises none."""
    try:
        function(*arguments, **keywords)
    except ModelError as error:
        return str(error)
    return ""


def write_json(path: Path, document: object) -> Path:
    """Write a JSON file; return its path."""
    path.write_text(json.dumps(document))
    return path


def write_header(path: Path, header: object, data_bytes: int = 0) -> Path:
    """Write a safetensors file with any header and a sparse data section; return its path."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(file.tell() + data_bytes)
    return path


def write_tensors(path: Path, shapes: Shapes) -> Path:
    """Write a safetensors file with these tensors, one after the other; return its path."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + _BYTES_PER_ELEMENT[dtype] * prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return write_header(path, header, end)


def build_llama_shapes(document: Mapping[str, Any], dtype: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of a Llama, with the names and shapes that transformers saves."""
    hidden, inner, rows = document["hidden_size"], document["intermediate_size"], document["vocab_size"]
    size = document.get("head_dim") or hidden // document["num_attention_heads"]
    queries, keys = size * document["num_attention_heads"], size * document["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (rows, hidden), "model.norm.weight": (hidden,)}
    if not document["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (rows, hidden)
    for layer in range(document["num_hidden_layers"]):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items()
        }
    return {name: (dtype, shape) for name, shape in shapes.items()}
