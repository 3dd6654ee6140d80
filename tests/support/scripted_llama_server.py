"""A llama-server whose every number is known: requests as scripted, pages as b10434 prints them, a sleep timer.

Everything is a function of the time, so the two reads of a scrape may be any time apart. Requests of one slot must not
overlap. A token is a step of its own with one busy slot, unless `streams_per_step` says otherwise.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

WRITTEN = "the quick brown fox of a user's prompt"
"""What users wrote, wherever a build may show it."""


@dataclass(frozen=True)
class Job:
    """A request: sent, computing its prompt from `begin` to `first`, then `output` tokens `pause` seconds apart."""

    begin: float
    first: float
    output: int
    pause: float
    slot: int = 0
    prompt: int = 100

    @property
    def end(self) -> float:
        return self.first + (self.output - 1) * self.pause

    def count_decoded(self, time: float) -> int:
        if time < self.first:
            return 0
        return min(self.output, 1 + math.floor((time - self.first) / self.pause + 1e-9))


@dataclass
class ScriptedLlamaServer:
    """The server. `start` identifies its process; `before` are tokens that it generated, and computed, earlier, each
    stream at `speed_before`; `path` is the file of its model.
    """

    jobs: tuple[Job, ...] = ()
    slots: int = 2
    start: str = "1000"
    before: int = 0
    speed_before: float = 50.0
    streams_per_step: float = 1.0
    sleep_after: float | None = None
    can_sleep: bool = True
    path: str = "/models/tiny.gguf"
    disabled: frozenset[str] = frozenset()
    statuses: dict[str, int] = field(default_factory=dict)
    hanging: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)
    wakes: int = 0
    slept: bool = False
    touched: float = 0.0

    def count_tokens(self, time: float) -> int:
        return sum(job.count_decoded(time) for job in self.jobs)

    def count_stream_seconds(self, time: float) -> float:
        return sum(max(0.0, min(time, job.end) - job.first) for job in self.jobs)

    def list_live(self, time: float) -> list[Job]:
        return [job for job in self.jobs if job.begin <= time < job.end]

    def render_page(self, time: float) -> str:
        ended = [job for job in self.jobs if job.end <= time]
        tokens = self.count_tokens(time)
        samples = {
            "prompt_tokens_total": self.before + sum(job.prompt for job in self.jobs if job.first <= time),
            "prompt_tokens_cached_total": 0,
            "prompt_seconds_total": self.before / 500
            + sum(job.first - job.begin for job in self.jobs if job.first <= time),
            "tokens_predicted_total": self.before + sum(job.output for job in ended),
            "tokens_predicted_seconds_total": self.before / self.speed_before
            + sum(job.end - job.first for job in ended),
            "n_decode_total": (self.before + tokens) / self.streams_per_step,
            "n_busy_slots_per_decode": self.streams_per_step,
            "requests_processing": len(self.list_live(time)),
            "requests_deferred": 0,
        }
        return "".join(
            f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value:.6g}\n" for name, value in samples.items()
        )

    def list_slots(self, time: float) -> list[dict[str, Any]]:
        return [self._describe_slot(index, time) for index in range(self.slots)]

    def render_slots(self, time: float) -> bytes:
        return json.dumps(self.list_slots(time)).encode()

    def _describe_slot(self, index: int, time: float) -> dict[str, Any]:
        begun = [number for number, job in enumerate(self.jobs) if job.slot == index and job.begin <= time]
        slot: dict[str, Any] = {"id": index, "n_ctx": 2048, "speculative": False, "is_processing": False}
        if not begun:
            return slot
        job = self.jobs[begun[-1]]
        busy = time < job.end
        decoded = job.count_decoded(time) if busy else 0
        return {
            **slot,
            "is_processing": busy,
            "id_task": begun[-1],
            "n_prompt_tokens": job.prompt + decoded,
            "n_prompt_tokens_processed": job.prompt if busy and decoded else 0,
            "n_prompt_tokens_cache": 0,
            "prompt": WRITTEN,
            "params": {"grammar": WRITTEN, "stop": [WRITTEN]},
            "next_token": [{"n_decoded": decoded, "n_remain": -1, "has_next_token": busy}],
        }

    def is_asleep(self, time: float) -> bool:
        if self.sleep_after is None or self.list_live(time):
            return False
        newest = max([self.touched, *(job.end for job in self.jobs if job.end <= time)])
        return time - newest >= self.sleep_after

    def describe_props(self, time: float) -> dict[str, Any]:
        sleeping = self.is_asleep(time)
        self.slept |= sleeping
        return {
            "build_info": "b10434-abc",
            "total_slots": self.slots,
            "model_alias": "tiny",
            "model_path": self.path,
            "default_generation_settings": {"n_ctx": 2048, "params": {"grammar": WRITTEN}},
            "chat_template": WRITTEN,
            **({"is_sleeping": sleeping} if self.can_sleep else {}),
        }

    def answer(self, path: str, time: float) -> tuple[int, str | bytes]:
        """Status and body of a GET, which may wake the server or keep it awake."""
        self.asked.append(path)
        if path in self.statuses:
            return self.statuses[path], b""
        if path in self.disabled:
            return 501, b'{"error":{"type":"not_supported_error"}}'
        if path in {"/metrics", "/slots"}:
            self.wakes += self.is_asleep(time)
            self.touched = time
            return 200, self.render_page(time) if path == "/metrics" else self.render_slots(time)
        if path == "/props":
            return 200, json.dumps(self.describe_props(time))
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": "tiny", "meta": {"size": 101_000_000}}]})
        return (200, '{"status":"ok"}') if path == "/health" else (404, b"")

    def create_transport(self, clock: Callable[[], float]) -> httpx.MockTransport:
        """A network with this server alone."""

        def handle(request: httpx.Request) -> httpx.Response:
            path = request.url.path
            if path in self.hanging:
                self.asked.append(path)
                raise httpx.ReadTimeout("hangs")
            status, body = self.answer(path, clock())
            content = body.encode() if isinstance(body, str) else body
            headers = {"Process-Start-Time-Unix": self.start} if path == "/metrics" else {}
            return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))

        return httpx.MockTransport(handle)


def record_line(server: ScriptedLlamaServer, time: float, delay: float = 0.002) -> dict[str, Any]:
    """A line of a recording of the server."""
    page = {"kind": "scrape", "t": time, "took": 0.001, "status": 200, "start": server.start}
    slots = {"t": time + delay, "took": 0.001, "status": 200, "body": server.render_slots(time + delay).decode()}
    return {**page, "body": server.render_page(time), "slots": slots}


def hang_line(time: float, *, alive: bool, took: float = 4.0) -> dict[str, Any]:
    """A line of a scrape that got no answer in time, with what /health answered after it."""
    health = {"t": time + took, "took": 0.002, "status": 200 if alive else 0, "body": ""}
    return {"kind": "scrape", "t": time, "took": took, "error": "timeout", "health": health}


def write_recording(lines: Iterable[dict[str, Any]]) -> str:
    """The text of a recording of the scripted server."""
    props = ScriptedLlamaServer().describe_props(0.0)
    header = {"kind": "header", "engine": "llamacpp", "props": props, "models": {"data": [{"id": "tiny"}]}}
    return "".join(f"{json.dumps(line)}\n" for line in (header, *lines))
