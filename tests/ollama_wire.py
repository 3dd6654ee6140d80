"""What goes over the wire of an Ollama server: requests as its API reads them, models as it shows them.

Facts and file names are those of Ollama 0.33 (api/types.go, server/routes.go) and of answers recorded from it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import cache
from typing import Any, Final

from pages import RECORDINGS
from timeline import SECOND

FOREVER: Final = 2**63 - 1
"""The longest Go duration, 292 years of nanoseconds: the session of a negative keep_alive."""

_UNITS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION: Final = re.compile(r"([+-]?)((?:\d+\.?\d*(?:ns|us|µs|ms|s|m|h))+|0)")
_PART: Final = re.compile(r"([\d.]+)(ns|us|µs|ms|s|m|h)")
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


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes

    @property
    def content_type(self) -> str:
        """As Ollama has it: JSON but for its few texts."""
        return "application/json; charset=utf-8" if self.body.startswith(b"{") else "text/plain; charset=utf-8"


def answer(body: Mapping[str, Any], status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode())


def failure(status: int, message: str) -> Answer:
    return answer({"error": message}, status)


class Refusal(Exception):  # noqa: N818  # it is the server's word for a request, not a mistake of the test
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = failure(status, message)


@dataclass(frozen=True, slots=True)
class Model:
    """A model on disk, and how fast it is once it runs.

    `reply_tokens` is where its replies end by themselves, with the end-of-sequence token counted; None: nowhere.
    `cold_factor` tells how much slower the first prompt after a load is. A prompt has `tokens_per_word` tokens a word,
    and one for its beginning.
    """

    name: str
    digest: str
    size: int = 72_948_737
    resident_bytes: int = 115_941_047
    vram_bytes: int = 0
    format: str = "gguf"
    capabilities: tuple[str, ...] = ("completion",)
    train_context: int = 32_768
    remote_model: str | None = None
    remote_host: str | None = None
    load_seconds: float = 2.0
    prefill_fixed_seconds: float = 0.004
    prefill_seconds_per_token: float = 0.0005
    decode_seconds_per_token: float = 0.003
    cold_factor: float = 5.0
    tokens_per_word: float = 1.4
    reply_tokens: int | None = None

    def details(self) -> dict[str, Any]:
        """As in /api/ps and /api/show."""
        return {
            "parent_model": "",
            "format": self.format,
            "family": "llama",
            "families": ["llama"],
            "parameter_size": "36.46M",
            "quantization_level": "F16",
        }

    def tag(self, version: str, modified_at: str) -> dict[str, Any]:
        """The entry in /api/tags."""
        details, entry = self.details(), {"name": self.name, "model": self.name}
        if self.remote_model is not None and at_least(version, 0, 12):
            entry |= {"remote_model": self.remote_model, "remote_host": self.remote_host or ""}
        shown = {**entry, "modified_at": modified_at, "size": self.size, "digest": self.digest, "details": details}
        if at_least(version, 0, 30):
            details |= {"context_length": self.train_context, "embedding_length": 512}
            shown["capabilities"] = list(self.capabilities)
        return shown

    def show(self) -> dict[str, Any]:
        """The answer of /api/show: the recorded one, with this model's facts in it."""
        shown = {**_recorded_show(), "details": self.details(), "capabilities": list(self.capabilities)}
        shown["model_info"] = {**shown["model_info"], "llama.context_length": self.train_context}
        if self.remote_model is not None:
            shown |= {"remote_model": self.remote_model, "remote_host": self.remote_host or ""}
        return shown


@cache
def _recorded_show() -> dict[str, Any]:
    body: dict[str, Any] = json.loads((RECORDINGS / "ollama-0.33" / "show.json").read_text())["body"]
    return body


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """The options that a runner is started with (api/types.go, `Runner`); None where nobody chose."""

    num_ctx: int | None = None
    num_batch: int | None = None
    num_gpu: int = -1
    main_gpu: int | None = None
    use_mmap: bool | None = None
    num_thread: int = 0
    draft_num_predict: int | None = None
    shift: bool = True

    def resolved(self, default_num_ctx: int, train_context: int) -> "RunnerOptions":
        """With what the server chooses where nobody did; no context is longer than the model was trained for."""
        return replace(
            self, num_ctx=min(self.num_ctx or default_num_ctx, train_context), num_batch=self.num_batch or 512
        )

    def needs_reload(self, asked: "RunnerOptions") -> bool:
        """Whether a runner started with these must be started anew for others (sched.go, `needsReload`)."""
        return self != (replace(asked, num_gpu=self.num_gpu) if asked.num_gpu < 0 else asked)


@dataclass(frozen=True, slots=True)
class Generate:
    """A request to /api/generate. `keep_alive` in nanoseconds, None if not given."""

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


def read_generate(body: bytes) -> Generate:
    """A request as Ollama reads it: unknown fields and options are passed over.

    Raises:
        Refusal: it is no JSON object, or a field has a wrong type or value.
    """
    sent = read_object(body)
    for field, kind in _FIELDS.items():
        value = sent.get(field)
        if value is not None and type(value) is not kind:
            where = f"Go struct field GenerateRequest.{field} of type {_GO_TYPES[kind]}"
            raise Refusal(400, f"json: cannot unmarshal {_GO_KINDS[type(value)]} into {where}")
    keep_alive = _keep_alive(sent.get("keep_alive"))
    raw = bool(sent.get("raw"))
    if raw and any(sent.get(field) for field in ("system", "template", "context")):
        raise Refusal(400, "raw mode does not support template, system, or context")
    options = sent.get("options") or {}
    prompt = (sent.get("prompt") or "").split()
    system = ["<|user|>", *sent["system"].split()] if sent.get("system") else []
    return Generate(
        model=sent.get("model") or "",
        words=tuple(prompt if raw or not prompt else [*system, "<|user|>", *prompt, "<|asst|>"]),
        raw=raw,
        stream=sent.get("stream") is not False,
        truncate=sent.get("truncate") is not False,
        think=bool(sent.get("think")),
        keep_alive=keep_alive,
        num_predict=_number(options, "num_predict", -1),
        num_keep=_number(options, "num_keep", 4),
        options=RunnerOptions(
            num_ctx=_number(options, "num_ctx", 0) or None,
            num_batch=_number(options, "num_batch", 0) or None,
            num_gpu=_number(options, "num_gpu", -1),
            main_gpu=options.get("main_gpu"),
            use_mmap=options.get("use_mmap"),
            num_thread=_number(options, "num_thread", 0),
            draft_num_predict=options.get("draft_num_predict"),
            shift=sent.get("shift") is not False,
        ),
    )


def check_option_types(body: bytes) -> None:
    """What Ollama does only once it is about to run the model.

    Raises:
        Refusal: an option has a wrong type.
    """
    for name, value in (read_object(body).get("options") or {}).items():
        if name in (*_INTEGERS, *_OTHER_INTEGERS) and type(value) not in {int, float}:
            raise Refusal(500, f'option "{name}" must be of type integer')
        if name == "use_mmap" and type(value) is not bool:
            raise Refusal(500, f'option "{name}" must be of type boolean')


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a request.

    Raises:
        Refusal: it is none.
    """
    if not body:
        raise Refusal(400, "missing request body")
    try:
        sent = json.loads(body)
    except ValueError as error:
        raise Refusal(400, f"invalid JSON: {error}") from None
    if not isinstance(sent, dict):
        raise Refusal(400, "json: cannot unmarshal into Go value of type api.GenerateRequest")
    return sent


def _number(options: Mapping[str, Any], name: str, default: int) -> int:
    """An option of a right type; one of a wrong type is refused later, by `check_option_types`."""
    value: Any = options.get(name)
    return int(value) if type(value) in {int, float} else default


def _keep_alive(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool | dict | list):
        kind = {bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}[type(value)]
        raise Refusal(400, f"Unsupported type: '{kind}'")
    nanoseconds = go_duration(value) if isinstance(value, str) else round(value * SECOND)
    return FOREVER if nanoseconds < 0 else nanoseconds


def go_duration(text: str) -> int:
    """Nanoseconds of a Go duration such as 1m30s.

    Raises:
        Refusal: it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        problem = "missing unit in" if re.fullmatch(r"[+-]?\d+\.?\d*", text) else "invalid"
        raise Refusal(400, f'time: {problem} duration "{text}"')
    nanoseconds = sum(round(float(number) * _UNITS[unit]) for number, unit in _PART.findall(found[2]))
    return -nanoseconds if found[1] == "-" else nanoseconds


def timestamp(nanoseconds: int, zone: tzinfo) -> str:
    """A moment as Go writes it: RFC 3339 with the zone's offset and up to nine digits, no zeros at their end."""
    seconds, fraction = divmod(nanoseconds, SECOND)
    moment = datetime.fromtimestamp(seconds, zone)
    date = moment.replace(tzinfo=None).isoformat()
    offset = moment.isoformat().removeprefix(date).replace("+00:00", "Z")
    return date + f".{fraction:09d}".rstrip("0").rstrip(".") + offset


def at_least(version: str, *wanted: int) -> bool:
    """Whether a server's version has come so far. One built from source says 0.0.0 and is the newest."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return numbers == (0, 0, 0) or numbers >= wanted
