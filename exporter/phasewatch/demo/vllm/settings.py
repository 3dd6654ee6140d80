"""Settings of the simulated vLLM."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulatedVllmSettings:
    """Command-line settings of a vLLM under its own names, and the block count it derives from them.

    Attributes:
        served_model_name: `model_name` label of its metrics; says that the server is simulated.
        max_num_seqs: requests that run at once.
        max_num_batched_tokens: tokens per step.
        max_model_len: tokens of a prompt and its output together.
        max_num_queued_reqs: waiting and running requests at which new ones are answered with 503; None for no limit.
        gpu_memory_utilization: share of the device's memory that the server may use.
        block_size: tokens per block of the KV cache.
        num_gpu_blocks: blocks of the KV cache, including vLLM's null block, which holds no tokens.
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
        """Capacity of the KV cache in tokens. Like vLLM's own figure, it includes the null block."""
        return self.num_gpu_blocks * self.block_size
