"""Advice for a llama-server. Pages, runbooks and alerts quote it. The flags are those of `llama-server`.

It counts neither refusals nor preemptions, so the states of these do not occur.
"""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.advice.handbook import CALM_ADVICE, STATE_TITLES, Handbook
from phasewatch.analysis.advice.remedy import (
    CACHE_MEMORY,
    CACHE_QUANTISATION,
    PREFILL_COMPUTE,
    PREFIX_SHARING,
    WEIGHT_QUANTISATION,
    Advice,
    Cause,
    Condition,
    Remedy,
)
from phasewatch.analysis.saturation import SaturationState

STATES: Final[Mapping[SaturationState, Advice]] = {
    **CALM_ADVICE,
    SaturationState.KV_CACHE_FULL: Advice(
        STATE_TITLES[SaturationState.KV_CACHE_FULL],
        "All slots share one KV cache (a unified one, the default without --parallel), and it is nearly full while requests wait. When it overflows, running requests break off with an error, although their answers began with HTTP 200.",
        (
            Remedy("send less, shorten prompts and the tokens asked for, or add a server.", at_once=True),
            Remedy(
                "Give the cache more memory: raise --ctx-size, if the device has it.",
                restart=True,
                raises=frozenset({"--ctx-size", CACHE_MEMORY}),
            ),
            Remedy(
                "Make each token smaller: --cache-type-k q8_0 and --cache-type-v q8_0 nearly halve it; the latter needs flash attention.",
                restart=True,
                raises=frozenset({CACHE_QUANTISATION}),
            ),
            Remedy(
                "Let fewer requests share the cache: lower --parallel.",
                restart=True,
                lowers=frozenset({"--parallel"}),
            ),
        ),
        (
            Remedy(
                "Do not raise --parallel: more requests would share the same cache.",
                raises=frozenset({"--parallel"}),
            ),
        ),
        frozenset({Condition.CACHE_SHORT}),
    ),
    SaturationState.CONCURRENCY_LIMITED: Advice(
        STATE_TITLES[SaturationState.CONCURRENCY_LIMITED],
        "Requests wait because every slot is busy: the server runs no more than --parallel requests at once.",
        (
            Remedy("send less, or add a server.", at_once=True),
            Remedy(
                "raise --parallel (-np). --ctx-size is divided among the slots, so raise it in proportion, which costs memory of the device, or the context of each slot shrinks. Each more request in a batch slows all of them a little.",
                restart=True,
                raises=frozenset({"--parallel", "--ctx-size"}),
                conditions=(Condition.CACHE_FREE, Condition.TOKENS_FAST),
            ),
        ),
        (
            Remedy(
                "Do not raise --threads-http to shorten the queue: it lets more requests in, and none of them run.",
                raises=frozenset({"--threads-http"}),
            ),
        ),
        frozenset({Condition.SLOTS_TAKEN, Condition.CACHE_FREE}),
    ),
    SaturationState.PREFILL_LIMITED: Advice(
        STATE_TITLES[SaturationState.PREFILL_LIMITED],
        "Requests wait, and most of what runs is still reading its prompt. While a batch of prompt tokens is computed, all streams stand still.",
        (
            Remedy("send less, shorten prompts, or add a server.", at_once=True),
            Remedy(
                "Compute less: put what prompts share at their beginning, so that the prompt cache has it already.",
                raises=frozenset({PREFIX_SHARING}),
            ),
            Remedy(
                "raise --ubatch-size, and raise --batch-size to no less, for more prompt tokens a step; streams then stand still for longer in each.",
                restart=True,
                raises=frozenset({"--ubatch-size", "--batch-size"}),
                conditions=(Condition.TOKENS_FAST, Condition.CACHE_FREE),
            ),
            Remedy(
                "Use faster devices, or a second server.",
                restart=True,
                raises=frozenset({PREFILL_COMPUTE}),
            ),
        ),
        (
            Remedy(
                "Do not raise --parallel to shorten the queue: more slots would share the same compute.",
                raises=frozenset({"--parallel"}),
            ),
        ),
        frozenset({Condition.CACHE_FREE}),
    ),
    SaturationState.DEFERRED: Advice(
        STATE_TITLES[SaturationState.DEFERRED],
        "Requests wait although slots are free and no prompt is being read. Nothing that the server shows explains it.",
        (
            Remedy("send new requests to another server until the cause is known.", at_once=True),
            Remedy(
                "Keep its log, record it (phasewatch record), and restart it if the queue does not move.", restart=True
            ),
        ),
        (
            Remedy(
                "Do not raise --parallel to shorten the queue: slots are free.",
                raises=frozenset({"--parallel"}),
            ),
        ),
    ),
    SaturationState.STUCK: Advice(
        STATE_TITLES[SaturationState.STUCK],
        "Requests run or wait, and for half a minute no counter of work has moved, or /metrics and /slots have not answered for a minute while streams were decoding: the server hangs. /health says ok all the same.",
        (
            Remedy("take the server out of the load balancer.", at_once=True),
            Remedy(
                "Keep its log and restart it. It may ignore SIGTERM, and then only SIGKILL ends it; ggml-org/llama.cpp#27388 has reports of such hangs.",
                restart=True,
            ),
        ),
        (Remedy("Do not wait for it to recover, and do not rely on /health to notice it."),),
    ),
}

SLOW_STREAM: Final = Advice(
    "The stream is slow",
    "Time between tokens is decode. Each step reads all weights and the KV cache of every stream, and all streams stand still while a batch of prompt tokens is computed.",
    (
        Remedy("send less, or add a server: fewer streams and prompts then share a step.", at_once=True),
        Remedy(
            "lower --batch-size, so that streams stand still for a shorter time. Prompts then take more steps: as long as tokens are slow, this goes before raising it for prefill.",
            restart=True,
            lowers=frozenset({"--batch-size"}),
            cause=Cause.SHARED_STEPS,
        ),
        Remedy(
            "lower --parallel. More requests then wait: as long as tokens are slow, this goes before raising it for the queue.",
            restart=True,
            lowers=frozenset({"--parallel"}),
            cause=Cause.MANY_STREAMS,
        ),
        Remedy("shorten prompts and answers.", cause=Cause.LONG_CONTEXTS),
        Remedy(
            "quantise the KV cache (--cache-type-k q8_0 and --cache-type-v q8_0).",
            restart=True,
            raises=frozenset({CACHE_QUANTISATION}),
            cause=Cause.LONG_CONTEXTS,
        ),
        Remedy(
            "use quantised weights, keep all layers on the device (--n-gpu-layers), use speculative decoding or a device with more memory bandwidth.",
            restart=True,
            raises=frozenset({WEIGHT_QUANTISATION}),
            cause=Cause.FEW_STREAMS,
        ),
    ),
    (
        Remedy(
            "Do not raise --batch-size for this: streams would stand still for longer in each step.",
            raises=frozenset({"--batch-size"}),
        ),
    ),
    frozenset({Condition.TOKENS_SLOW}),
)

LLAMACPP_HANDBOOK: Final = Handbook(STATES, SLOW_STREAM)
