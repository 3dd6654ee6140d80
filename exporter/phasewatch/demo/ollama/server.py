"""A simulated Ollama: the API of a server whose models are loaded, reloaded and unloaded.

Pure: it is given the time, in nanoseconds of a clock, and never waits. `request` returns an exchange; `advance` lets
time pass until its response is complete. The rules are those of Ollama 0.33; an older `version` only omits the fields
that it lacked. The server is bound to loopback and checks the Host header.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from ipaddress import ip_address
from typing import Any, Final

from phasewatch.demo.llamacpp.endpoints import LlamaResponse, respond
from phasewatch.demo.ollama.api import (
    GenerateRequest,
    Refusal,
    build_error_response,
    build_json_response,
    build_text_response,
    check_option_types,
    is_at_least,
    parse_generate_request,
    parse_object,
)
from phasewatch.demo.ollama.child import Child, ChildAtMoment
from phasewatch.demo.ollama.go_time import SECOND, format_timestamp
from phasewatch.demo.ollama.harm_ledger import Harm, HarmLedger
from phasewatch.demo.ollama.model import Model
from phasewatch.demo.ollama.scheduler import LOAD_OVERHEAD, Exchange, LlmRequest, Runner, Scheduler
from phasewatch.scrape.http import Response

_METHODS: Final = {
    "/": "GET",
    "/api/version": "GET",
    "/api/tags": "GET",
    "/api/ps": "GET",
    "/api/show": "POST",
    "/api/generate": "POST",
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as received.

    Attributes:
        at: when it was received, nanoseconds of the server's clock.
        method: HTTP method.
        path: path without a query.
        headers: headers by lower-case name.
        body: the body.
    """

    at: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class SimulatedOllama:
    """The server.

    Args:
        models: the models on its disk.
        version: what /api/version reports.
        zone: time zone of the machine, used by /api/ps for expiry.
        epoch: Unix nanoseconds at which its clock is 0.
        num_ctx: default context length (OLLAMA_CONTEXT_LENGTH).
        keep_alive: default time for which an idle model stays loaded, seconds (OLLAMA_KEEP_ALIVE).
        max_loaded: number of models loaded at once (OLLAMA_MAX_LOADED_MODELS).
        max_queue: number of requests that may wait for a load (OLLAMA_MAX_QUEUE).
        token_repeats: whether every reply hits the limit of repeated tokens.
        child_metrics: whether the llama-servers that it starts have /metrics (LLAMA_ARG_ENDPOINT_METRICS).
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
        child_metrics: bool = False,
    ) -> None:
        self.token_repeats = token_repeats
        self._models = {model.name: model for model in models}
        self._version = version
        self._zone = zone
        self._epoch = epoch
        self._pulled = epoch
        self._num_ctx = num_ctx
        self._scheduler = Scheduler(
            self._build_generate_response,
            keep_alive=round(keep_alive * SECOND),
            max_loaded=max_loaded,
            max_queue=max_queue,
            child_metrics=child_metrics,
        )

    @property
    def ledger(self) -> HarmLedger:
        """What the requests did to each other."""
        return self._scheduler.ledger

    def list_children(self) -> list[Child]:
        """The llama-servers that it runs: one for each GGUF model that is loaded or loading, none before 0.30."""
        children = self._scheduler.list_children() if is_at_least(self._version, 0, 30) else []
        return [child for child in children if child.model.format == "gguf"]

    def respond_as_child(self, now: int, child: Child, method: str, path: str) -> LlamaResponse:
        """The response of one of its children to a request to the child's own port."""
        self.advance(now)
        return respond(ChildAtMoment(child, now, self.wall_clock(now)), method, path)

    def wall_clock(self, now: int) -> float:
        """Unix seconds of this server's clock."""
        return (self._epoch + now) / SECOND

    def advance_wall_clock(self, nanoseconds: int) -> None:
        """Advance the wall clock without advancing simulated time (the host was suspended)."""
        self._epoch += nanoseconds

    def pull(self, model: Model) -> None:
        """Add a model to the disk. A loaded one of the same name stays loaded under its old digest."""
        self._models[model.name] = model

    def remove(self, name: str) -> None:
        """Remove a model from the disk."""
        del self._models[name]

    def request(self, now: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
        """Receive a request. The response is complete at once unless the request runs a model."""
        self.advance(now)
        request = HttpRequest(now, method, path, {name.lower(): value for name, value in headers.items()}, body)
        if not _is_local(request.headers.get("host", "")):
            return Exchange(response=build_text_response(403, b""))
        if path not in _METHODS:
            return Exchange(response=build_text_response(404, b"404 page not found"))
        if method != _METHODS[path]:
            return Exchange(response=build_text_response(405, b"405 method not allowed"))
        try:
            if path == "/api/generate":
                return self._generate(request)
            return Exchange(response=self._build_inventory_response(request))
        except Refusal as refusal:
            return Exchange(response=refusal.response)

    def cancel(self, now: int, exchange: Exchange) -> None:
        """Handle a connection that its client has closed."""
        self.advance(now)
        if isinstance(exchange, LlmRequest):
            self._scheduler.cancel(now, exchange)

    def find_next_event(self) -> int | None:
        """Time of the next event; None if there is none."""
        return self._scheduler.find_next_event()

    def advance(self, now: int) -> None:
        """Process all events up to `now`."""
        self._scheduler.advance(now)

    def _build_inventory_response(self, request: HttpRequest) -> Response:
        if request.path == "/":
            return build_text_response(200, b"Ollama is running")
        if request.path == "/api/version":
            return build_json_response({"version": self._version})
        modified_at = format_timestamp(self._pulled, self._zone)
        if request.path == "/api/tags":
            tags = [model.build_tag(self._version, modified_at) for model in self._models.values()]
            return build_json_response({"models": tags})
        if request.path == "/api/ps":
            return build_json_response({"models": self._list_loaded(request.at)})
        model = self._find_model(str(parse_object(request.body).get("model", "")))
        return build_json_response(model.build_show(modified_at))

    def _list_loaded(self, now: int) -> list[dict[str, Any]]:
        def compute_expiry(runner: Runner) -> int:
            return self._epoch + (now + runner.session if runner.expires is None else runner.expires)

        runners = sorted(
            self._scheduler.runners.values(), key=lambda runner: compute_expiry(runner) // SECOND, reverse=True
        )
        return [
            {
                "name": runner.model.name,
                "model": runner.model.name,
                "size": runner.model.resident_bytes,
                "digest": runner.model.digest,
                "details": runner.model.build_details(),
                "expires_at": format_timestamp(compute_expiry(runner), self._zone),
                "size_vram": runner.model.vram_bytes,
                **({"context_length": runner.options.num_ctx} if is_at_least(self._version, 0, 10) else {}),
            }
            for runner in runners
        ]

    def _find_model(self, name: str) -> Model:
        model = self._models.get(name if ":" in name else f"{name}:latest")
        if model is None:
            raise Refusal(404, f"model '{name}' not found")
        return model

    def _generate(self, http_request: HttpRequest) -> Exchange:
        generate, now = parse_generate_request(http_request.body), http_request.at
        model = self._find_model(generate.model)
        request = LlmRequest(
            model=model,
            generate=generate,
            options=generate.options.resolve(self._num_ctx, model.train_context),
            by_probe=http_request.headers.get("user-agent", "").startswith("phasewatch/"),
            arrived=now,
        )
        self.ledger.probes += request.by_probe
        if model.remote_model is not None:
            detail = f"it is {model.remote_model} at {model.remote_host}"
            self._scheduler.record_harm(now, Harm.REMOTE, request, detail)
            return Exchange(
                response=build_json_response(self._build_body(generate, now, "stop", "words from elsewhere"))
            )
        if not generate.words and generate.keep_alive == 0:
            self._scheduler.unload(now, request)
            return Exchange(response=build_json_response(self._build_body(generate, now, "unload")))
        if "completion" not in model.capabilities:
            raise Refusal(400, f'"{generate.model}" does not support generate')
        if generate.think and "thinking" not in model.capabilities:
            raise Refusal(400, f'"{generate.model}" does not support thinking')
        check_option_types(http_request.body)
        if generate.words and generate.stream:
            message = "this simulated server does not stream; send stream: false"
            return Exchange(response=build_error_response(501, message))
        if generate.words and generate.num_predict < 1:
            self._scheduler.record_harm(now, Harm.UNBOUNDED, request, "num_predict is missing, 0 or negative")
        self._scheduler.submit(now, request)
        return request

    def _build_body(self, generate: GenerateRequest, now: int, done_reason: str, response: str = "") -> dict[str, Any]:
        """The body of a response without counts and durations."""
        return {
            "model": generate.model,
            "created_at": format_timestamp(self._epoch + now, UTC),
            "response": response,
            "done": True,
            "done_reason": done_reason,
        }

    def _build_generate_response(self, request: LlmRequest) -> Response:
        completion = request.completion
        if completion is None:
            return build_json_response(self._build_body(request.generate, request.assigned, "load"))
        body = self._build_body(request.generate, request.ends, completion.done_reason, " ".join(completion.reply))
        if self.token_repeats:
            del body["done_reason"]
            return build_json_response({**body, "done": False})
        if not request.generate.raw:
            body["context"] = list(range(completion.prompt_count + completion.eval_count))
        timings = {
            "total_duration": request.ends - request.arrived,
            "load_duration": request.assigned - request.arrived + LOAD_OVERHEAD,
            "prompt_eval_count": completion.prompt_count,
            "prompt_eval_duration": completion.prompt_duration,
            "eval_count": completion.eval_count,
            "eval_duration": completion.eval_duration,
        }
        # The fields are `omitempty`: zero values are left out.
        return build_json_response({**body, **{name: value for name, value in timings.items() if value}})


def _is_local(host: str) -> bool:
    """Whether a server on loopback accepts a Host header (routes.go, `allowedHostsMiddleware`)."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return name in {"", "localhost"} or name.endswith((".localhost", ".local", ".internal"))
    return True
