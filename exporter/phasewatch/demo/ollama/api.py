"""HTTP API of a simulated Ollama: parsing of requests, the wording of errors, and versions.

Facts and file names are those of Ollama 0.33 (api/types.go, server/routes.go) and of responses recorded from it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from phasewatch.demo.ollama.go_time import LONGEST_DURATION, SECOND, parse_duration
from phasewatch.scrape.http import Response

_INTEGERS: Final = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict")
_OTHER_INTEGERS: Final = ("num_predict", "num_keep", "seed", "top_k")
_FIELDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("model", "prompt", "system", "template"), str),
    **dict.fromkeys(("raw", "stream", "truncate", "shift"), bool),
    "options": dict,
    "context": list,
}
_GO_KINDS: Final = {str: "string", bool: "bool", dict: "object", list: "array", int: "number", float: "number"}
_GO_TYPES: Final = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]int"}


def build_json_response(body: Mapping[str, Any], status: int = 200) -> Response:
    """A response with a JSON object."""
    return Response(status, "application/json; charset=utf-8", json.dumps(body).encode())


def build_text_response(status: int, body: bytes) -> Response:
    """One of the few responses that are plain text."""
    return Response(status, "text/plain; charset=utf-8", body)


def build_error_response(status: int, message: str) -> Response:
    """An error in Ollama's format."""
    return build_json_response({"error": message}, status)


class Refusal(Exception):  # noqa: N818  # a response of the simulated server, not an error of ours
    """A request is answered with an error.

    Attributes:
        response: the response.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.response = build_error_response(status, message)


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """The options that a runner is started with (api/types.go, `Runner`); None where the request sets none."""

    num_ctx: int | None = None
    num_batch: int | None = None
    num_gpu: int = -1
    main_gpu: int | None = None
    use_mmap: bool | None = None
    num_thread: int = 0
    draft_num_predict: int | None = None
    shift: bool = True

    def resolve(self, default_num_ctx: int, train_context: int) -> "RunnerOptions":
        """These options with the server's defaults. The context is limited to the one the model was trained with."""
        return replace(
            self, num_ctx=min(self.num_ctx or default_num_ctx, train_context), num_batch=self.num_batch or 512
        )

    def needs_reload(self, requested: "RunnerOptions") -> bool:
        """Whether a runner started with these must be restarted for the requested ones (sched.go, `needsReload`)."""
        return self != (replace(requested, num_gpu=self.num_gpu) if requested.num_gpu < 0 else requested)


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A request to /api/generate.

    Attributes:
        model: name, possibly without a tag.
        words: words of the prompt after templating; empty for a request that only loads or unloads.
        raw: whether the prompt is used without a template.
        stream: whether the response is streamed.
        truncate: whether a prompt that is too long is cut.
        think: whether thinking is requested.
        keep_alive: how long the model stays loaded, nanoseconds; None if not given.
        num_predict: limit on the reply, tokens; below 1 for none.
        num_keep: tokens kept at the beginning of a prompt that is cut.
        options: options of the runner.
    """

    model: str
    words: tuple[str, ...]
    raw: bool
    stream: bool
    truncate: bool
    think: bool
    keep_alive: int | None
    num_predict: int
    num_keep: int
    options: RunnerOptions


def parse_generate_request(body: bytes) -> GenerateRequest:
    """Parse a request as Ollama does; unknown fields and options are ignored.

    Raises:
        Refusal: it is not a JSON object, or a field has a wrong type or value.
    """
    fields = parse_object(body)
    for key, field_type in _FIELDS.items():
        value = fields.get(key)
        if value is not None and type(value) is not field_type:
            where = f"Go struct field GenerateRequest.{key} of type {_GO_TYPES[field_type]}"
            raise Refusal(400, f"json: cannot unmarshal {_GO_KINDS[type(value)]} into {where}")
    keep_alive = _parse_keep_alive(fields.get("keep_alive"))
    raw = bool(fields.get("raw"))
    if raw and any(fields.get(field) for field in ("system", "template", "context")):
        raise Refusal(400, "raw mode does not support template, system, or context")
    options = fields.get("options") or {}
    prompt = (fields.get("prompt") or "").split()
    system = ["<|user|>", *fields["system"].split()] if fields.get("system") else []
    return GenerateRequest(
        model=fields.get("model") or "",
        words=tuple(prompt if raw or not prompt else [*system, "<|user|>", *prompt, "<|asst|>"]),
        raw=raw,
        stream=fields.get("stream") is not False,
        truncate=fields.get("truncate") is not False,
        think=bool(fields.get("think")),
        keep_alive=keep_alive,
        num_predict=_parse_integer(options, "num_predict", -1),
        num_keep=_parse_integer(options, "num_keep", 4),
        options=RunnerOptions(
            num_ctx=_parse_integer(options, "num_ctx", 0) or None,
            num_batch=_parse_integer(options, "num_batch", 0) or None,
            num_gpu=_parse_integer(options, "num_gpu", -1),
            main_gpu=options.get("main_gpu"),
            use_mmap=options.get("use_mmap"),
            num_thread=_parse_integer(options, "num_thread", 0),
            draft_num_predict=options.get("draft_num_predict"),
            shift=fields.get("shift") is not False,
        ),
    )


def check_option_types(body: bytes) -> None:
    """Check the options' types, which Ollama does only when it is about to run the model.

    Raises:
        Refusal: an option has a wrong type.
    """
    for name, value in (parse_object(body).get("options") or {}).items():
        if name in (*_INTEGERS, *_OTHER_INTEGERS) and type(value) not in {int, float}:
            raise Refusal(500, f'option "{name}" must be of type integer')
        if name == "use_mmap" and type(value) is not bool:
            raise Refusal(500, f'option "{name}" must be of type boolean')


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a request.

    Raises:
        Refusal: it is not one.
    """
    if not body:
        raise Refusal(400, "missing request body")
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Refusal(400, f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(400, "json: cannot unmarshal into Go value of type api.GenerateRequest")
    return value


def _parse_integer(options: Mapping[str, Any], name: str, default: int) -> int:
    """An option, or the default if its type is wrong; `check_option_types` refuses it later."""
    value: Any = options.get(name)
    return int(value) if type(value) in {int, float} else default


def _parse_keep_alive(value: Any) -> int | None:
    """Nanoseconds; a negative value keeps the model loaded for the longest duration that Go knows."""
    if value is None:
        return None
    if isinstance(value, bool | dict | list):
        go_type = {bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}[type(value)]
        raise Refusal(400, f"Unsupported type: '{go_type}'")
    nanoseconds = _parse_keep_alive_text(value) if isinstance(value, str) else round(value * SECOND)
    return LONGEST_DURATION if nanoseconds < 0 else nanoseconds


def _parse_keep_alive_text(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Refusal(400, str(error)) from None


def is_at_least(version: str, *minimum: int) -> bool:
    """Whether a version is this one or newer. A server built from source reports 0.0.0, which counts as newest."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return numbers == (0, 0, 0) or numbers >= minimum
