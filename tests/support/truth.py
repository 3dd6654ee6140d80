"""What the clients of a recorded server saw, token by token: the truth that the exporter's numbers are held against."""

import json
import lzma
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from tests.support.paths import RECORDINGS


@dataclass(frozen=True)
class Request:
    """One streamed request: when it was sent, when each event came (seconds on the clock of the recording).

    An event can carry more than one token, so each one after the first stands for `weight` tokens. `prompt` is the
    computed part of it, where the server told the client how many tokens were `cached`.
    """

    sent: float
    events: tuple[float, ...]
    prompt: int
    generated: int
    cached: int = 0

    @property
    def weight(self) -> float:
        return (self.generated - 1) / (len(self.events) - 1) if len(self.events) > 1 else 0.0


@dataclass(frozen=True)
class Truth:
    """All requests of a recording, and what they say about an interval (start, end]; 0 where nothing happened."""

    requests: tuple[Request, ...]

    @cached_property
    def gaps(self) -> list[tuple[float, float, float]]:
        """Arrival, time since the event before, and tokens of every event after the first of its request."""
        return [
            (event, event - before, request.weight)
            for request in self.requests
            for before, event in zip(request.events, request.events[1:], strict=False)
        ]

    def _gaps_in(self, start: float, end: float) -> list[tuple[float, float, float]]:
        return [gap for gap in self.gaps if start < gap[0] <= end]

    def _first_in(self, start: float, end: float) -> list[Request]:
        return [request for request in self.requests if request.events and start < request.events[0] <= end]

    def decode_tokens_per_second(self, start: float, end: float) -> float:
        gaps = self._gaps_in(start, end)
        return _quotient(sum(tokens for _, _, tokens in gaps), sum(gap for _, gap, _ in gaps))

    def decode_throughput_tokens_per_second(self, start: float, end: float) -> float:
        return sum(tokens for _, _, tokens in self._gaps_in(start, end)) / (end - start)

    def prefill_throughput_tokens_per_second(self, start: float, end: float) -> float:
        return sum(request.prompt for request in self._first_in(start, end)) / (end - start)

    def time_to_first_token_mean_seconds(self, start: float, end: float) -> float:
        waits = [request.events[0] - request.sent for request in self._first_in(start, end)]
        return statistics.mean(waits) if waits else 0.0

    def inter_token_latency_mean_seconds(self, start: float, end: float) -> float:
        gaps = self._gaps_in(start, end)
        return _quotient(sum(gap for _, gap, _ in gaps), sum(tokens for _, _, tokens in gaps))

    def inter_token_latencies(self, start: float, end: float) -> list[float]:
        return sorted(gap for _, gap, _ in self._gaps_in(start, end))


def _quotient(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


@cache
def truth(name: str) -> Truth:
    """What the clients of a recorded server saw."""
    return Truth(tuple(_requests(name)))


def _requests(name: str) -> Iterator[Request]:
    with lzma.open(RECORDINGS / f"{name}.requests.jsonl.xz", "rt") as file:
        for line in file:
            document = json.loads(line)
            usage = document.get("usage")
            if usage and document["tokens"]:
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                computed = usage["prompt_tokens"] - cached
                yield Request(document["sent"], tuple(document["tokens"]), computed, usage["completion_tokens"], cached)
