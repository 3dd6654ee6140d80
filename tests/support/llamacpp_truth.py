"""What the clients of a recorded llama-server saw, token by token, and when each of its scrapes was complete."""

import json
import lzma
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.paths import RECORDINGS

LLAMACPP = RECORDINGS / "llamacpp"

BUNDLE = 4
"""Tokens of one request that come within `BUNDLED` seconds from which its client was late: the server needs longer."""
BUNDLED = 0.002
LATE = 0.6
"""Most seconds by which such a client was seen to be late."""


@dataclass(frozen=True)
class Request:
    """One streamed request: when it was sent and had ended, and when each token came, on the clock of the recording.

    `computed` is the part of its prompt that the server computed; None if the client was never told.
    """

    sent: float
    done: float
    tokens: tuple[float, ...]
    computed: int | None


@dataclass(frozen=True)
class Clients:
    """All requests of a recording, and what they say about an interval (start, end]."""

    requests: tuple[Request, ...]

    def count_tokens(self, start: float, end: float) -> int:
        return sum(_count(request.tokens, start, end) for request in self.requests)

    def stream_speed(self, start: float, end: float) -> tuple[float, float]:
        """Tokens after the first of each stream, and the seconds that streams spent on them."""
        tokens = sum(_count(request.tokens[1:], start, end) for request in self.requests)
        streams = [request.tokens for request in self.requests if len(request.tokens) > 1]
        return tokens, sum(max(0.0, min(end, times[-1]) - max(start, times[0])) for times in streams)

    def count_prompt_tokens(self, start: float, end: float) -> int:
        """Computed tokens of the prompts that were complete in the interval."""
        return sum(
            request.computed or 0 for request in self.requests if request.tokens and start < request.tokens[0] <= end
        )

    def mean_in_flight(self, start: float, end: float) -> float:
        spans = (max(0.0, min(end, request.done) - max(start, request.sent)) for request in self.requests)
        return sum(spans) / (end - start)

    def is_blurred(self, time: float) -> bool:
        """Whether a client was late at a time: then tokens that came after it had been generated before."""
        for request in self.requests:
            first = bisect_right(request.tokens, time)
            soon = request.tokens[first : bisect_right(request.tokens, time + LATE)]
            if any(later - earlier <= BUNDLED for earlier, later in zip(soon, soon[BUNDLE - 1 :], strict=False)):
                return True
        return False


def _count(times: tuple[float, ...], start: float, end: float) -> int:
    return bisect_right(times, end) - bisect_right(times, start)


@cache
def read_clients(name: str) -> Clients:
    """What the clients of a recorded server saw."""
    return Clients(tuple(_read_requests(name)))


def _read_requests(name: str) -> Iterator[Request]:
    with lzma.open(LLAMACPP / f"{name}.requests.jsonl.xz", "rt") as file:
        for line in file:
            request = json.loads(line)
            timings, usage = request.get("timings"), request.get("usage")
            computed = usage["prompt_tokens"] - usage["cached_tokens"] if usage else None
            if timings and "prompt_n" in timings:
                computed = timings["prompt_n"]
            yield Request(request["sent"], request["done"], tuple(request["tokens"]), computed)


def list_lines(name: str, folder: Path = LLAMACPP) -> list[dict[str, object]]:
    """The lines of a recording after its header."""
    with lzma.open(folder / f"{name}.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file][1:]


def find_start(ends: list[float], end: float, window: float) -> float:
    """The scrape at which a window that ends with the scrape at `end` begins: the nearest to its nominal start."""
    index = bisect_left(ends, end - window)
    return min(ends[max(0, index - 1) : index + 1], key=lambda time: abs(time - (end - window)))
