"""Advice on what users of a vLLM complain about, a slow first token and slow tokens, with the causes of each."""

from typing import Final

from phasewatch.analysis.advice.remedy import (
    CACHE_QUANTISATION,
    PREFILL_COMPUTE,
    PREFIX_SHARING,
    WEIGHT_QUANTISATION,
    Advice,
    Cause,
    Condition,
    Remedy,
)

SLOW_FIRST_TOKEN: Final = Advice(
    "The first token is slow",
    "Time to first token is queue time and prefill time. Look at the queue before blaming the model: if llm_queue_time_mean_seconds is most of it, the state says what requests wait for.",
    (
        Remedy("send less, or add a replica.", at_once=True),
        Remedy(
            "follow the advice for the state that is shown; if none waits now, requests come in bursts: spread them.",
            cause=Cause.QUEUE,
        ),
        Remedy(
            "shorten prompts, put what they share at their beginning, and keep prefix caching on.",
            raises=frozenset({PREFIX_SHARING}),
            cause=Cause.PREFILL,
        ),
        Remedy(
            "raise --max-num-batched-tokens for more prompt tokens a step.",
            restart=True,
            raises=frozenset({"--max-num-batched-tokens"}),
            conditions=(Condition.TOKENS_FAST, Condition.CACHE_FREE),
            cause=Cause.PREFILL,
        ),
        Remedy(
            "use faster devices, or prefill on servers of its own.",
            restart=True,
            raises=frozenset({PREFILL_COMPUTE}),
            cause=Cause.PREFILL,
        ),
    ),
    (
        Remedy(
            "do not quantise the weights for the first token: prefill is limited by compute, decode by memory.",
            raises=frozenset({WEIGHT_QUANTISATION}),
            cause=Cause.PREFILL,
        ),
    ),
)

SLOW_STREAM: Final = Advice(
    "The stream is slow",
    "Time between tokens is decode. Each step reads all weights and the KV cache of every stream, and it waits for prompt tokens that are computed in the same step.",
    (
        Remedy("send less, or add a replica: fewer streams and prompts then share a step.", at_once=True),
        Remedy(
            "lower --max-num-batched-tokens, so that steps are shorter. Prompts then take more steps: as long as tokens are "
            "slow, this goes before raising it for the first token.",
            restart=True,
            lowers=frozenset({"--max-num-batched-tokens"}),
            cause=Cause.SHARED_STEPS,
        ),
        Remedy(
            "lower --max-num-seqs. More requests then wait: as long as tokens are slow, this goes before raising it for the "
            "queue.",
            restart=True,
            lowers=frozenset({"--max-num-seqs"}),
            cause=Cause.MANY_STREAMS,
        ),
        Remedy("shorten prompts and answers.", cause=Cause.LONG_CONTEXTS),
        Remedy(
            "quantise the KV cache (--kv-cache-dtype fp8).",
            restart=True,
            raises=frozenset({CACHE_QUANTISATION}),
            cause=Cause.LONG_CONTEXTS,
        ),
        Remedy(
            "quantise weights, use speculative decoding or a device with more memory bandwidth.",
            restart=True,
            raises=frozenset({WEIGHT_QUANTISATION}),
            cause=Cause.FEW_STREAMS,
        ),
        Remedy("follow the advice for the state Preempting.", cause=Cause.PREEMPTIONS),
    ),
    (
        Remedy(
            "Do not raise --max-num-batched-tokens for this: longer steps are longer stalls.",
            raises=frozenset({"--max-num-batched-tokens"}),
        ),
    ),
    frozenset({Condition.TOKENS_SLOW}),
)
