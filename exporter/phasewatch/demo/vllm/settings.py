"""How the simulated vLLM was started."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person sets on a vLLM's command line, by its names there, and what it makes of that at start.

    Attributes:
        served_model_name: label of everything on its page; it says that nothing here is real.
        max_num_seqs: requests that run at once.
        max_num_batched_tokens: tokens of a step.
        max_model_len: tokens of a prompt and its answer together.
        max_num_queued_reqs: requests that wait or run, from which new ones are answered with 503; None for no limit.
        gpu_memory_utilization: share of the device's memory that the server may take.
        block_size: tokens in a block of the KV cache.
        num_gpu_blocks: blocks of the KV cache; one of them is never used (vLLM's null block).
    """

    served_model_name: str = "simulated-llama-3.1-8b"
    max_num_seqs: int = 24
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    max_num_queued_reqs: int | None = 64
    gpu_memory_utilization: float = 0.5
    block_size: int = 16
    num_gpu_blocks: int = 3200

    @property
    def kv_cache_size_tokens(self) -> int:
        """Tokens that the KV cache holds, as vLLM tells it: the null block is counted."""
        return self.num_gpu_blocks * self.block_size
