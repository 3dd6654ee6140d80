"""Synthetic requests: prompts that no cache can hold, and bodies that change nothing on the server."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from phasewatch.backends.ollama.inventory import LoadedModel, ModelKey

OUTPUT_TOKENS: Final = 48
SHORT_TOKENS: Final = 200
LONG_TOKENS: Final = 2000
SHORTEST_LONG: Final = 3 * SHORT_TOKENS
"""Least tokens of a long prompt: one that is hardly longer than the short one adds no information."""

_MARGIN_TOKENS: Final = 64
_PREFIX_LENGTH: Final = 24
_WORD_BYTES: Final = 8
"""Longest word with its blank, bytes: each byte may be a token, and each word is at least one."""
_TOKENS_PER_WORD: Final = 1.3
_SAFETY: Final = 1.1
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_WORDS: Final = (
    "anchor", "basket", "candle", "desert", "engine", "forest", "garden", "harbor", "island", "jacket", "kettle",
    "ladder", "marble", "needle", "orange", "pencil", "quarry", "ribbon", "saddle", "temple", "urchin", "valley",
    "window", "yellow", "zipper", "autumn", "bridge", "copper", "dragon", "empire", "falcon", "gravel", "hammer",
    "insect", "jungle", "kernel", "lumber", "mirror", "nectar", "oyster", "pepper", "quiver", "rocket", "silver",
    "timber", "useful", "velvet", "walnut", "yonder", "zenith", "blue", "cold", "deep", "fast", "gold", "high",
    "iron", "just", "kind", "long", "many", "near", "open", "pale", "quick", "round", "slow", "tall", "under", "very",
)  # fmt: skip


class RequestKind(StrEnum):
    """Purpose of a request."""

    SHORT = "short"
    LONG = "long"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One synthetic request: its purpose, the model, the number of words of its prompt, and its JSON body."""

    kind: RequestKind
    key: ModelKey
    words: int
    body: Mapping[str, object]


def build_probe_request(
    kind: RequestKind, model: LoadedModel, words: int, options: Mapping[str, int | bool], random: Random
) -> ProbeRequest:
    """A request that a loaded model completes without a reload.

    `num_ctx` is sent because the server reloads a model whose context differs from the requested one, and a request
    without it asks for the default. `keep_alive` is not sent, because it would stay in force for all later requests;
    nor is any other option of the runner, unless the operator's `options` say that the model is loaded with it.

    Args:
        kind: short or long.
        model: its current entry of /api/ps.
        words: length of the prompt, see `choose_prompt_words`.
        options: the operator's options for this model; they override /api/ps.
        random: source of random numbers for prompt and seed.
    """
    context = {} if model.context_length is None else {"num_ctx": model.context_length}
    body = {
        "model": model.name,
        "prompt": _draw_prompt(words, random),
        "raw": True,
        "stream": False,
        "truncate": False,
        "options": {
            **context,
            **options,
            "num_predict": OUTPUT_TOKENS,
            "temperature": 0.8,
            "seed": random.randrange(1, 2**31),
        },
    }
    return ProbeRequest(kind, model.key, words, body)


def build_load_request(name: str, digest: str, options: Mapping[str, int | bool]) -> ProbeRequest:
    """A request that loads a model without output; for models that the operator allows to be loaded."""
    body = {"model": name, "prompt": "", "stream": False, **({"options": dict(options)} if options else {})}
    return ProbeRequest(RequestKind.LOAD, (name, digest), 0, body)


def choose_prompt_words(kind: RequestKind, context_length: int, tokens_per_word: float | None) -> int | None:
    """Number of words of a prompt of about 200 or 2000 tokens that never exceeds the context.

    Args:
        kind: short or long.
        context_length: context that the model was loaded with, tokens.
        tokens_per_word: tokens per word of our prompts, from a response of this model; None before the first.

    Returns:
        The number of words; None if no prompt of this kind fits.
    """
    room = context_length - OUTPUT_TOKENS - _MARGIN_TOKENS
    if kind is RequestKind.SHORT and tokens_per_word is None:
        return _truncate_words(min(SHORT_TOKENS / _TOKENS_PER_WORD, (room - _PREFIX_LENGTH) / _WORD_BYTES))
    if tokens_per_word is None:
        return None
    wanted = min(SHORT_TOKENS if kind is RequestKind.SHORT else LONG_TOKENS, room / _SAFETY)
    if kind is RequestKind.LONG and wanted < SHORTEST_LONG:
        return None
    return _truncate_words(wanted / tokens_per_word)


def _truncate_words(words: float) -> int | None:
    return int(words) if words >= 1 else None


def _draw_prompt(words: int, random: Random) -> str:
    """A prompt with a unique beginning: the server caches the common beginning of two prompts."""
    prefix = "".join(random.choices(_ALPHABET, k=_PREFIX_LENGTH))
    return " ".join([prefix, *random.choices(_WORDS, k=words)])
