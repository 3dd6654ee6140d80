"""Advice on each state: what it means, what to change and what to avoid. Pages, runbooks and alerts quote this table.

The flags are those of `vllm serve` 0.32; the settings of Ollama are environment variables of its server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.analysis.saturation import SaturationState


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on one condition.

    Attributes:
        title: the condition in a few words.
        meaning: what is going on.
        change: remedies, the cheapest first.
        avoid: changes that look like a remedy but are not.
    """

    title: str
    meaning: str
    change: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()


ADVICE: Final[Mapping[SaturationState, Advice]] = {
    SaturationState.IDLE: Advice("Idle", "No request runs or waits, and none did a moment ago."),
    SaturationState.HEALTHY: Advice("Healthy", "Requests are served as they come; what waits does not wait for long."),
    SaturationState.KV_CACHE_FULL: Advice(
        "KV cache full",
        "Requests wait because their prompts find no room in the KV cache. It need not be at 100 %: a request is admitted when its whole prompt fits.",
        (
            "Give the cache more memory: raise --gpu-memory-utilization, if nothing else needs the device.",
            "Make each token smaller: --kv-cache-dtype fp8 halves it.",
            "Make the weights smaller: a quantised model leaves more memory for the cache.",
            "Hold fewer tokens: shorten prompts, lower --max-model-len and the tokens asked for, keep prefix caching on for prompts that share a beginning.",
            "Add replicas, or devices with --tensor-parallel-size.",
        ),
        ("Do not raise --max-num-seqs: more requests would share the same cache, and preemptions begin.",),
    ),
    SaturationState.PREEMPTING: Advice(
        "Preempting",
        "The KV cache overflows while requests run, so some are thrown out and computed again later. Work is done twice, and their streams stand still meanwhile. vLLM counts a preemption only when the request goes on.",
        (
            "Keep some of the cache free for what runs: --watermark (0 by default).",
            "Admit fewer at once: lower --max-num-seqs to what the cache holds at full length.",
            "Give the cache more memory: raise --gpu-memory-utilization, or --kv-cache-dtype fp8, or quantised weights.",
            "Shorten what each request may grow to: the tokens asked for, and --max-model-len.",
            "Add replicas.",
        ),
        ("Do not raise --max-num-seqs or --max-num-batched-tokens: both let more in.",),
    ),
    SaturationState.CONCURRENCY_LIMITED: Advice(
        "All slots taken",
        "Requests wait although the KV cache has room: as many run as the server may run at once.",
        (
            "Raise --max-num-seqs (and --max-num-active-seqs, if it is set) while the KV cache has room; llm_kv_cache_headroom_requests says how many more fit.",
            "Add replicas if streams are too slow already: each more request in a batch slows all of them a little.",
        ),
        ("Do not give the KV cache more memory: it is not what they wait for.",),
    ),
    SaturationState.PREFILL_LIMITED: Advice(
        "Prefill limited",
        "Requests wait although slots and KV cache have room: reading prompts takes up the steps of the engine.",
        (
            "Compute less: keep prefix caching on, and put what prompts share at their beginning; shorten prompts.",
            "Raise --max-num-batched-tokens for more prompt tokens a step; streams then stall longer in each.",
            "Add replicas or faster devices, or prefill on servers of its own (disaggregated prefill).",
        ),
        (
            "Do not raise --max-num-seqs: slots are not what they wait for.",
            "Do not quantise the KV cache for this: prefill is limited by compute.",
        ),
    ),
    SaturationState.DEFERRED: Advice(
        "Deferred",
        "Requests wait for something other than capacity: KV cache from another server, a LoRA adapter, a grammar to be compiled, or a server that has been paused.",
        (
            "LoRA: raise --max-loras if more adapters are in use than fit.",
            "KV transfer: look at the connector and at the server that sends.",
            "Structured output: keep schemas few and small; each new one is compiled first.",
        ),
        ("Do not change --max-num-seqs or memory: capacity is there.",),
    ),
    SaturationState.STUCK: Advice(
        "Stuck",
        "Requests wait, nothing runs, and no token has come for half a minute: the server is paused or asleep, or its scheduler hangs. /health says 200 all the same.",
        (
            "Asleep or paused on purpose: wake it up (/wake_up) or resume it (/resume), which it answers in development mode only.",
            "Otherwise keep its log, record it (phasewatch record) and restart it.",
            "Take it out of the load balancer until then.",
        ),
        ("Do not wait for it to recover by itself, and do not send it more.",),
    ),
    SaturationState.SHEDDING: Advice(
        "Shedding load",
        "The server answers 503 to new requests because those it holds, waiting and running together, have reached --max-num-queued-reqs, or their prompts --max-num-queued-tokens. What it refuses is in no other metric.",
        (
            "See what would limit it without the queue limit: running, KV cache and prefill tell, as in the other states.",
            "Add replicas, or send less.",
            "Raise the queue limit only if waiting longer is better for clients than a quick refusal.",
        ),
        ("Do not take a short queue for a good sign: it is short because requests are turned away.",),
    ),
}

ASLEEP: Final = Advice(
    "Asleep",
    "The engine was put to sleep (/sleep): its weights are out of the device's memory, and requests wait until it is woken up.",
    ("Wake it up: POST /wake_up (development mode), or send requests elsewhere.",),
)

COMPLAINTS: Final[Mapping[str, Advice]] = {
    "slow_first_token": Advice(
        "The first token is slow",
        "Time to first token is queue time and prefill time. Look at the queue before blaming the model: if llm_queue_time_mean_seconds is most of it, the state says what requests wait for.",
        (
            "Queue: follow the advice for the state that is shown.",
            "Prefill: shorten prompts, keep prefix caching on, raise --max-num-batched-tokens, use faster devices.",
        ),
        ("Do not quantise the weights for this alone: prefill is limited by compute, decode by memory.",),
    ),
    "slow_stream": Advice(
        "The stream is slow",
        "Time between tokens is decode. Each step reads all weights and the KV cache of every stream, and it waits for prompt tokens that are computed in the same step.",
        (
            "Few streams: quantise weights, use speculative decoding or a device with more memory bandwidth.",
            "Many streams or long contexts: lower --max-num-seqs, quantise the KV cache, add replicas.",
            "High p99 with a good mean: prompts of others stall the steps; lower --max-num-batched-tokens.",
            "Preemptions: follow the advice for that state.",
        ),
        ("Do not raise --max-num-batched-tokens for this: longer steps are longer stalls.",),
    ),
}

OLLAMA_ADVICE: Final[Mapping[str, Advice]] = {
    "partial_offload": Advice(
        "Model partly on the CPU",
        "Some layers did not fit into the device's memory and run on the CPU, which sets the pace of every token.",
        (
            "Use a smaller quantisation or model, or a shorter context (OLLAMA_CONTEXT_LENGTH, num_ctx).",
            "Lower OLLAMA_NUM_PARALLEL: each slot reserves a context of its own.",
            "Set OLLAMA_KV_CACHE_TYPE=q8_0 with OLLAMA_FLASH_ATTENTION=1.",
            "Unload other models (OLLAMA_MAX_LOADED_MODELS).",
        ),
    ),
    "all_slots_taken": Advice(
        "Requests queue",
        "As many requests run as OLLAMA_NUM_PARALLEL allows, and the others wait.",
        (
            "Raise OLLAMA_NUM_PARALLEL while the model stays wholly on the device.",
            "Add a server, or use one that batches continuously.",
        ),
    ),
    "queue_full": Advice(
        "Requests are refused",
        "The queue has reached OLLAMA_MAX_QUEUE, and new requests get 503.",
        ("Send less, add a server, or raise OLLAMA_MAX_QUEUE if clients would rather wait.",),
    ),
    "context_too_short": Advice(
        "Prompts are cut",
        "Prompts longer than the context that the model was loaded with lose their beginning.",
        ("Raise OLLAMA_CONTEXT_LENGTH or num_ctx if the device's memory allows, or shorten prompts.",),
    ),
}


def choose_advice(state: SaturationState, *, asleep: bool) -> Advice:
    """The advice on the state of an engine. A sleeping engine without running requests gets the advice on sleep."""
    return (
        ASLEEP
        if asleep and state in {SaturationState.STUCK, SaturationState.DEFERRED, SaturationState.IDLE}
        else ADVICE[state]
    )
