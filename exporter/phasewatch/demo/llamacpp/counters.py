"""The counters of a simulated llama-server. They move when those of a real one do (llama.cpp b10434)."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What /metrics shows, but for the gauges of requests, which are the slots' and the queue's.

    Attributes:
        prompt_tokens: computed prompt tokens; a prompt's are added when it is done.
        cached_tokens: prompt tokens taken from the cache; added when a prompt begins.
        prompt_seconds: time of the batches with prompt tokens, each batch once; added with `prompt_tokens`.
        predicted_tokens: generated tokens; a request's are added when it ends.
        predicted_seconds: time from first to last token; added with `predicted_tokens`.
        decodes: calls of `llama_decode`.
        busy_slots: slots that took part in them, summed over the calls.
        longest_sequence: most tokens that a slot has held.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    decodes: int = 0
    busy_slots: int = 0
    longest_sequence: int = 0


class AverageGauges:
    """The two average gauges, which cover the time since the last scrape by anyone."""

    def __init__(self) -> None:
        self._reset()

    def count_prompt(self, tokens: int, seconds: float) -> None:
        """Count a prompt that is done."""
        self._prompt_tokens += tokens
        self._prompt_seconds += seconds

    def count_stream(self, tokens: int, seconds: float) -> None:
        """Count a request that has ended. Its first token belongs to the prompt."""
        self._later_tokens += max(0, tokens - 1)
        self._stream_seconds += seconds

    def take(self) -> tuple[float, float]:
        """Tokens per second of prompts and of streams since the last call; 0 if nothing has ended."""
        prompts = self._prompt_tokens / self._prompt_seconds if self._prompt_seconds else 0.0
        streams = self._later_tokens / self._stream_seconds if self._stream_seconds else 0.0
        self._reset()
        return prompts, streams

    def _reset(self) -> None:
        self._prompt_tokens = self._later_tokens = 0
        self._prompt_seconds = self._stream_seconds = 0.0
