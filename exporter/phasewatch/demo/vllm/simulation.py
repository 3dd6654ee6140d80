"""A simulated vLLM server: an 8B model on one L40S, its clients, and the responses to HTTP requests."""

import json
from pathlib import Path
from random import Random
from typing import Any, Final

from phasewatch.demo.common.acts import Act
from phasewatch.demo.common.roofline import build_roofline
from phasewatch.demo.common.workload import WorkloadGenerator
from phasewatch.demo.vllm.engine import Engine
from phasewatch.demo.vllm.ledger import TruthLedger
from phasewatch.demo.vllm.page import VERSION, build_model_list, build_server_info, render_metrics
from phasewatch.demo.vllm.script import find_act
from phasewatch.demo.vllm.settings import SimulatedVllmSettings
from phasewatch.scrape.http import Response

DEVICE: Final = "NVIDIA L40S"

MODEL: Final = Path(__file__).parent / "model"
"""Folder with the config.json of Llama-3.1-8B, without weights."""

SETTINGS: Final = SimulatedVllmSettings()

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; version=1.0.0; charset=utf-8"


class SimulatedVllm:
    """One simulated vLLM server.

    Args:
        seed: equal seeds give identical servers, second by second.
        created: Unix time at which it has loaded its model and starts to respond.
        offset: where in the scripted cycle it starts, seconds.
    """

    def __init__(self, seed: int, created: float, offset: float = 0.0) -> None:
        self._created = created
        self._offset = offset
        self._now = 0.0
        self._clients = WorkloadGenerator(Random(seed))  # noqa: S311  # a simulation must be repeatable
        self._engine = Engine(SETTINGS, build_roofline(DEVICE, MODEL), self._clients)
        self._begin_act()

    @property
    def act(self) -> Act:
        """The current act of the script."""
        return self._act

    @property
    def truth(self) -> TruthLedger:
        """What happened in the engine."""
        return self._engine.ledger

    def advance(self, now: float) -> None:
        """Advance the simulation to `now`, in seconds since the start. Time never goes back."""
        while self._act_end <= now:
            self._engine.advance(self._act_end)
            self._engine.abort_all()
            self._now = self._act_end
            self._begin_act()
        if now > self._now:
            self._now = now
            self._engine.advance(now)

    def respond(self, method: str, path: str) -> Response:
        """The response to a request; a query in `path` is ignored."""
        page = path.partition("?")[0]
        if page == "/metrics":
            text = render_metrics(self._engine.counters, SETTINGS, self._created)
            response = Response(200, _TEXT, text.encode())
        elif page == "/health":
            response = Response(200, _JSON, b"")
        elif page == "/version":
            response = _build_json_response(200, {"version": VERSION})
        elif page == "/v1/models":
            response = _build_json_response(200, build_model_list(SETTINGS, self._created + self._now))
        elif page == "/server_info":
            response = _build_json_response(200, build_server_info(SETTINGS))
        else:
            return _build_json_response(404, {"detail": "Not Found"})
        return response if method == "GET" else _build_json_response(405, {"detail": "Method Not Allowed"})

    def _begin_act(self) -> None:
        position = self._offset + self._now
        self._act, end = find_act(position)
        self._act_end = end - self._offset
        self._engine.paused = self._act.paused
        self._clients.start(self._act.workloads, self._now)


def build_target_keys() -> dict[str, Any]:
    """The keys `device`, `model` and `server` of a configured target that is such a server."""
    return {
        "device": {"name": DEVICE},
        "model": {"path": str(MODEL)},
        "server": {
            "max_num_seqs": SETTINGS.max_num_seqs,
            "max_num_batched_tokens": SETTINGS.max_num_batched_tokens,
        },
    }


def _build_json_response(status: int, value: Any) -> Response:
    return Response(status, _JSON, json.dumps(value).encode())
