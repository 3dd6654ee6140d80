"""Settings of a simulated llama-server and facts about its model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LlamaServerSettings:
    """What the pages of a llama-server say of how it was started, and of its model.

    Attributes:
        alias: name of the model.
        model_path: path of its file.
        ftype: name of its quantization.
        parameters: number of its parameters.
        weight_bytes: size of all its tensors.
        train_context: context length that it was trained with, tokens.
        width: size of the hidden state.
        vocabulary: number of tokens in the vocabulary.
        slots: requests that run at once (`--parallel`).
        slot_context: tokens of a prompt and its output together, per slot.
        batch: tokens in one call of `llama_decode` (`--batch-size`).
        has_metrics: whether /metrics is on (`--metrics`).
        sleep_idle_seconds: idle time after which the server sleeps (`--sleep-idle-seconds`); None for never.
    """

    alias: str
    model_path: str
    ftype: str
    parameters: int
    weight_bytes: int
    train_context: int
    width: int
    vocabulary: int
    slots: int = 4
    slot_context: int = 16_384
    batch: int = 2048
    has_metrics: bool = True
    sleep_idle_seconds: float | None = None
