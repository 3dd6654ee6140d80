"""A simulated vLLM: its pages, and behind them users, a scheduler and the roofline of an 8B on one L40S."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from phasewatch.demo.ledger import Ledger
from phasewatch.demo.roofline import machine
from phasewatch.demo.vllm.engine import Engine
from phasewatch.demo.vllm.page import VERSION, metrics_page, models, server_info
from phasewatch.demo.vllm.script import Act, act_at
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.workload import Crowd

DEVICE: Final = "NVIDIA L40S"

MODEL: Final = Path(__file__).parent / "model"
"""A folder with the config.json of Llama-3.1-8B, and no weights."""

SETTINGS: Final = Settings()

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request for one of the server's pages."""

    status: int
    content_type: str
    body: bytes


class SimulatedVllm:
    """One simulated vLLM server.

    Args:
        seed: the same seed gives the same server, second by second.
        started: Unix time at which it has loaded its model and begins to answer.
        offset: seconds into the scripted cycle at which it begins.
    """

    def __init__(self, seed: int, started: float, offset: float = 0.0) -> None:
        self._started = started
        self._offset = offset
        self._now = 0.0
        self._crowd = Crowd(Random(seed))  # noqa: S311  # a simulation must be repeatable
        self._engine = Engine(SETTINGS, machine(DEVICE, MODEL), self._crowd)
        self._begin_act()

    @property
    def act(self) -> Act:
        """What the script does now."""
        return self._act

    @property
    def truth(self) -> Ledger:
        """What truly happened."""
        return self._engine.ledger

    def advance(self, now: float) -> None:
        """Let time pass up to `now`, in seconds since the start. Time does not go back."""
        while self._end <= now:
            self._engine.advance(self._end)
            self._engine.abort_all()
            self._now = self._end
            self._begin_act()
        if now > self._now:
            self._now = now
            self._engine.advance(now)

    def answer(self, method: str, path: str) -> Answer:
        """What the server answers to a request; `path` may have a query, which makes no difference."""
        page = path.partition("?")[0]
        if page == "/metrics":
            text = metrics_page(self._engine.counters, SETTINGS, self._started)
            found = Answer(200, _TEXT, text.encode())
        elif page == "/health":
            found = Answer(200, _JSON, b"")
        elif page == "/version":
            found = _json(200, {"version": VERSION})
        elif page == "/v1/models":
            found = _json(200, models(SETTINGS, self._started + self._now))
        elif page == "/server_info":
            found = _json(200, server_info(SETTINGS))
        else:
            return _json(404, {"detail": "Not Found"})
        return found if method == "GET" else _json(405, {"detail": "Method Not Allowed"})

    def _begin_act(self) -> None:
        position = self._offset + self._now
        self._act, end = act_at(position)
        self._end = end - self._offset
        self._engine.paused = self._act.paused
        self._crowd.begin(self._act.workloads, self._now)


def target_keys() -> dict[str, Any]:
    """Keys of the configuration of a target that is such a server: `device`, `model` and `server`."""
    return {
        "device": {"name": DEVICE},
        "model": {"path": str(MODEL)},
        "server": {
            "max_num_seqs": SETTINGS.max_num_seqs,
            "max_num_batched_tokens": SETTINGS.max_num_batched_tokens,
        },
    }


def _json(status: int, value: Any) -> Answer:
    return Answer(status, _JSON, json.dumps(value).encode())
