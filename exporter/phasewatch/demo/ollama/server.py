"""A simulated Ollama: the API of a server whose models come, stay, are reloaded and leave.

Pure: it is told the time, in nanoseconds of a clock, and never waits. `request` gives a ticket; `advance` lets time
pass until its answer is there. The rules are those of Ollama 0.33; an older `version` only hides the fields that it
does not have. The server is bound to loopback and minds the Host header.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from ipaddress import ip_address
from typing import Any, Final

from phasewatch.demo.ollama.api import (
    Answer,
    Generate,
    Model,
    Refusal,
    answer,
    at_least,
    check_option_types,
    failure,
    read_generate,
    read_object,
)
from phasewatch.demo.ollama.go_time import SECOND, timestamp
from phasewatch.demo.ollama.harm_ledger import Harm, Ledger
from phasewatch.demo.ollama.scheduler import LOAD_OVERHEAD, Job, Runner, Scheduler, Ticket

_METHODS: Final = {
    "/": "GET",
    "/api/version": "GET",
    "/api/tags": "GET",
    "/api/ps": "GET",
    "/api/show": "POST",
    "/api/generate": "POST",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came; header names in lower case."""

    at: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class SimulatedOllama:
    """The server.

    Args:
        models: on its disk.
        version: what /api/version says.
        zone: of the machine; /api/ps tells expiry in it.
        epoch: Unix nanoseconds at which its clock shows 0.
        num_ctx: tokens of context where nobody chose (OLLAMA_CONTEXT_LENGTH).
        keep_alive: seconds a model stays where nobody chose (OLLAMA_KEEP_ALIVE).
        max_loaded: models resident at once (OLLAMA_MAX_LOADED_MODELS).
        max_queue: requests that wait for a load (OLLAMA_MAX_QUEUE).
        token_repeats: whether every reply runs into the limit of repeated tokens.
    """

    def __init__(
        self,
        *models: Model,
        version: str = "0.33.0",
        zone: tzinfo = UTC,
        epoch: int,
        num_ctx: int = 4096,
        keep_alive: float = 300.0,
        max_loaded: int = 3,
        max_queue: int = 512,
        token_repeats: bool = False,
    ) -> None:
        self.token_repeats = token_repeats
        self._models = {model.name: model for model in models}
        self._version = version
        self._zone = zone
        self._epoch = epoch
        self._pulled = epoch
        self._num_ctx = num_ctx
        self._scheduler = Scheduler(
            self._reply, keep_alive=round(keep_alive * SECOND), max_loaded=max_loaded, max_queue=max_queue
        )

    @property
    def ledger(self) -> Ledger:
        """What the requests did to each other."""
        return self._scheduler.ledger

    def wall(self, now: int) -> float:
        """Unix seconds by this server's clock."""
        return (self._epoch + now) / SECOND

    def stand_still(self, nanoseconds: int) -> None:
        """Let the clock on the wall go on while nothing else does: from now on its 0 is later."""
        self._epoch += nanoseconds

    def pull(self, model: Model) -> None:
        """Put a model on the disk. One of the same name that is resident stays, under its old digest."""
        self._models[model.name] = model

    def remove(self, name: str) -> None:
        """Take a model from the disk."""
        del self._models[name]

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Ticket:
        """A request comes in; one that only asks is answered at once."""
        self.advance(now)
        asked = Asked(now, method, path, {name.lower(): value for name, value in headers.items()}, body)
        if not _is_local(asked.headers.get("host", "")):
            return Ticket(answer=Answer(403, b""))
        if path not in _METHODS:
            return Ticket(answer=Answer(404, b"404 page not found"))
        if method != _METHODS[path]:
            return Ticket(answer=Answer(405, b"405 method not allowed"))
        try:
            return self._generate(asked) if path == "/api/generate" else Ticket(answer=self._inventory(asked))
        except Refusal as refusal:
            return Ticket(answer=refusal.answer)

    def cancel(self, now: int, ticket: Ticket) -> None:
        """The client of a ticket has closed its connection."""
        self.advance(now)
        if isinstance(ticket, Job):
            self._scheduler.cancel(now, ticket)

    def next_event(self) -> int | None:
        """When something happens by itself next."""
        return self._scheduler.next_event()

    def advance(self, now: int) -> None:
        """Let everything happen that happens until now."""
        self._scheduler.advance(now)

    def _inventory(self, asked: Asked) -> Answer:
        if asked.path == "/":
            return Answer(200, b"Ollama is running")
        if asked.path == "/api/version":
            return answer({"version": self._version})
        if asked.path == "/api/tags":
            modified_at = timestamp(self._pulled, self._zone)
            return answer({"models": [model.tag(self._version, modified_at) for model in self._models.values()]})
        if asked.path == "/api/ps":
            return answer({"models": self._resident(asked.at)})
        model = self._find(str(read_object(asked.body).get("model", "")))
        return answer(model.show(timestamp(self._pulled, self._zone)))

    def _resident(self, now: int) -> list[dict[str, Any]]:
        def expires(runner: Runner) -> int:
            return self._epoch + (now + runner.session if runner.expires is None else runner.expires)

        runners = sorted(self._scheduler.runners.values(), key=lambda runner: expires(runner) // SECOND, reverse=True)
        return [
            {
                "name": runner.model.name,
                "model": runner.model.name,
                "size": runner.model.resident_bytes,
                "digest": runner.model.digest,
                "details": runner.model.details(),
                "expires_at": timestamp(expires(runner), self._zone),
                "size_vram": runner.model.vram_bytes,
                **({"context_length": runner.options.num_ctx} if at_least(self._version, 0, 10) else {}),
            }
            for runner in runners
        ]

    def _find(self, name: str) -> Model:
        model = self._models.get(name if ":" in name else f"{name}:latest")
        if model is None:
            raise Refusal(404, f"model '{name}' not found")
        return model

    def _generate(self, asked: Asked) -> Ticket:
        request, now = read_generate(asked.body), asked.at
        model = self._find(request.model)
        job = Job(
            model=model,
            request=request,
            options=request.options.resolved(self._num_ctx, model.train_context),
            by_probe=asked.headers.get("user-agent", "").startswith("phasewatch/"),
            arrived=now,
        )
        self.ledger.probes += job.by_probe
        if model.remote_model is not None:
            self._scheduler.note(now, Harm.REMOTE, job, f"it is {model.remote_model} at {model.remote_host}")
            return Ticket(answer=answer(self._bare(request, now, "stop", "words from elsewhere")))
        if not request.words and request.keep_alive == 0:
            self._scheduler.unload(now, job)
            return Ticket(answer=answer(self._bare(request, now, "unload")))
        if "completion" not in model.capabilities:
            raise Refusal(400, f'"{request.model}" does not support generate')
        if request.think and "thinking" not in model.capabilities:
            raise Refusal(400, f'"{request.model}" does not support thinking')
        check_option_types(asked.body)
        if request.words and request.stream:
            return Ticket(answer=failure(501, "this simulated server does not stream; send stream: false"))
        if request.words and request.num_predict < 1:
            self._scheduler.note(now, Harm.UNBOUNDED, job, "num_predict is missing, 0 or negative")
        self._scheduler.submit(now, job)
        return job

    def _bare(self, request: Generate, now: int, done_reason: str, response: str = "") -> dict[str, Any]:
        """An answer without figures."""
        return {
            "model": request.model,
            "created_at": timestamp(self._epoch + now, UTC),
            "response": response,
            "done": True,
            "done_reason": done_reason,
        }

    def _reply(self, job: Job) -> Answer:
        if job.work is None:
            return answer(self._bare(job.request, job.handed, "load"))
        work = job.work
        body = self._bare(job.request, job.ends, work.done_reason, " ".join(work.reply))
        if self.token_repeats:
            del body["done_reason"]
            return answer({**body, "done": False})
        if not job.request.raw:
            body["context"] = list(range(work.prompt_count + work.eval_count))
        figures = {
            "total_duration": job.ends - job.arrived,
            "load_duration": job.handed - job.arrived + LOAD_OVERHEAD,
            "prompt_eval_count": work.prompt_count,
            "prompt_eval_duration": work.prompt_duration,
            "eval_count": work.eval_count,
            "eval_duration": work.eval_duration,
        }
        # The fields are `omitempty`: what is 0 is not there.
        return answer({**body, **{name: value for name, value in figures.items() if value}})


def _is_local(host: str) -> bool:
    """Whether a server on loopback lets a Host header in (routes.go, `allowedHostsMiddleware`)."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return name in {"", "localhost"} or name.endswith((".localhost", ".local", ".internal"))
    return True
