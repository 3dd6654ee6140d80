"""What advice is held against: the states that need none, and the flags of the servers."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.saturation import SaturationState

CALM: Final = {SaturationState.IDLE, SaturationState.HEALTHY}
"""States in which nothing has to be changed."""

SETTINGS: Final = {
    "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_MAX_LOADED_MODELS",
    "OLLAMA_MAX_QUEUE",
    "OLLAMA_NUM_PARALLEL",
}
"""Settings of Ollama that the advice raises or lowers."""

VLLM_FLAGS: Final = {
    "--gpu-memory-utilization",
    "--kv-cache-dtype",
    "--max-loras",
    "--max-model-len",
    "--max-num-active-seqs",
    "--max-num-batched-tokens",
    "--max-num-queued-reqs",
    "--max-num-queued-tokens",
    "--max-num-seqs",
    "--prefill-schedule-interval",
    "--tensor-parallel-size",
    "--watermark",
}
"""Flags of `vllm serve` 0.33.0."""

LLAMACPP_FLAGS: Final = {
    "--batch-size",
    "--cache-type-k",
    "--cache-type-v",
    "--ctx-size",
    "--n-gpu-layers",
    "--parallel",
    "--threads-http",
    "--ubatch-size",
}
"""Flags of `llama-server` b10434 that the advice names."""

FLAGS: Final[Mapping[str, set[str]]] = {"vllm": VLLM_FLAGS, "llamacpp": LLAMACPP_FLAGS, "ollama": set()}
"""Flags of each kind of server; an Ollama is set by its environment."""
