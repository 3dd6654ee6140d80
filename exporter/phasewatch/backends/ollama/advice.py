"""Advice on what limits an Ollama. Its settings are environment variables of its server."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.advice.handbook import CALM_ADVICE, STATE_TITLES, Handbook
from phasewatch.analysis.advice.remedy import (
    CACHE_QUANTISATION,
    WEIGHT_QUANTISATION,
    Advice,
    Cause,
    Condition,
    Remedy,
)
from phasewatch.analysis.saturation import SaturationState

FINDINGS: Final[Mapping[str, Advice]] = {
    "partial_offload": Advice(
        "Model partly on the CPU",
        "Some layers did not fit into the device's memory and run on the CPU, which sets the pace of every token.",
        (
            Remedy("ask for a shorter context (num_ctx), or unload other models (ollama stop).", at_once=True),
            Remedy("Use a smaller quantisation or model."),
            Remedy(
                "Lower OLLAMA_NUM_PARALLEL, since each slot reserves a context of its own, or OLLAMA_CONTEXT_LENGTH.",
                restart=True,
                lowers=frozenset({"OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH"}),
            ),
            Remedy("Set OLLAMA_KV_CACHE_TYPE=q8_0 with OLLAMA_FLASH_ATTENTION=1.", restart=True),
            Remedy(
                "Keep fewer models loaded: lower OLLAMA_MAX_LOADED_MODELS.",
                restart=True,
                lowers=frozenset({"OLLAMA_MAX_LOADED_MODELS"}),
            ),
        ),
        holds=frozenset({Condition.MODEL_PARTLY_ON_CPU}),
    ),
    "all_slots_taken": Advice(
        "Requests queue",
        "As many requests run as OLLAMA_NUM_PARALLEL allows, and the others wait.",
        (
            Remedy("send less, or add a server.", at_once=True),
            Remedy(
                "raise OLLAMA_NUM_PARALLEL.",
                restart=True,
                raises=frozenset({"OLLAMA_NUM_PARALLEL"}),
                conditions=(Condition.MODEL_ON_DEVICE, Condition.TOKENS_FAST),
            ),
            Remedy("Use a server that batches continuously."),
        ),
    ),
    "queue_full": Advice(
        "Requests are refused",
        "The queue has reached OLLAMA_MAX_QUEUE, and new requests get 503.",
        (
            Remedy("send less, or add a server.", at_once=True),
            Remedy(
                "Raise OLLAMA_MAX_QUEUE if clients would rather wait.",
                restart=True,
                raises=frozenset({"OLLAMA_MAX_QUEUE"}),
            ),
        ),
    ),
    "context_too_short": Advice(
        "Prompts are cut",
        "Prompts longer than the context that the model was loaded with lose their beginning.",
        (
            Remedy("shorten prompts, or ask for a longer context (num_ctx).", at_once=True),
            Remedy(
                "raise OLLAMA_CONTEXT_LENGTH.",
                restart=True,
                raises=frozenset({"OLLAMA_CONTEXT_LENGTH"}),
                conditions=(Condition.MODEL_ON_DEVICE,),
            ),
        ),
    ),
}
"""What limits a server without being a state of one of its engines, by name."""

STATES: Final[Mapping[SaturationState, Advice]] = {
    **CALM_ADVICE,
    SaturationState.STUCK: Advice(
        STATE_TITLES[SaturationState.STUCK],
        "Requests run, and the llama-server that Ollama started for this model makes no progress or does not answer: it hangs.",
        (
            Remedy("send requests to another server.", at_once=True),
            Remedy(
                "Keep Ollama's log, stop the model (ollama stop), and restart Ollama if the process named llama-server is still there. It may ignore SIGTERM, and then only SIGKILL ends it; ggml-org/llama.cpp#27388 has reports of such hangs.",
                restart=True,
            ),
        ),
        (Remedy("Do not wait for it to recover: its requests stay open, and the model stays listed as loaded."),),
    ),
}
"""The states of a model. Its queue is not seen, so what limits it is not known; that it hangs is."""

SLOW_STREAM: Final = Advice(
    "The stream is slow",
    "Time between tokens is decode. Each step reads all weights and the KV cache of every stream, and all streams stand still while a batch of prompt tokens is computed.",
    (
        Remedy("send less, or add a server: fewer streams and prompts then share a step.", at_once=True),
        Remedy("spread prompts over time, and shorten them.", cause=Cause.SHARED_STEPS),
        Remedy(
            "lower OLLAMA_NUM_PARALLEL. More requests then wait: as long as tokens are slow, this goes before raising it for "
            "the queue.",
            restart=True,
            lowers=frozenset({"OLLAMA_NUM_PARALLEL"}),
            cause=Cause.MANY_STREAMS,
        ),
        Remedy("shorten prompts and answers.", cause=Cause.LONG_CONTEXTS),
        Remedy(
            "quantise the KV cache (OLLAMA_KV_CACHE_TYPE=q8_0 with OLLAMA_FLASH_ATTENTION=1).",
            restart=True,
            raises=frozenset({CACHE_QUANTISATION}),
            cause=Cause.LONG_CONTEXTS,
        ),
        Remedy(
            "use a model with quantised weights that fits on the device as a whole, or a device with more memory bandwidth.",
            raises=frozenset({WEIGHT_QUANTISATION}),
            cause=Cause.FEW_STREAMS,
        ),
    ),
    holds=frozenset({Condition.TOKENS_SLOW}),
)

OLLAMA_HANDBOOK: Final = Handbook(STATES, SLOW_STREAM)
