"""Advice on each state of a vLLM. Pages, runbooks and alerts quote this table. The flags are those of `vllm serve`."""

from collections.abc import Mapping
from typing import Final

from phasewatch.analysis.advice.handbook import CALM_ADVICE, STATE_TITLES
from phasewatch.analysis.advice.remedy import (
    CACHE_MEMORY,
    CACHE_QUANTISATION,
    PREFILL_COMPUTE,
    PREFIX_SHARING,
    WEIGHT_QUANTISATION,
    Advice,
    Condition,
    Releases,
    Remedy,
)
from phasewatch.analysis.saturation import SaturationState

RELEASES: Final = Releases(
    "vLLM",
    (0, 8),
    {
        "--watermark": (0, 24),
        # 0.24 to 0.32 have the flag too, but only data-parallel mixtures of experts obey it.
        "--prefill-schedule-interval": (0, 33),
        "--max-num-queued-reqs": (0, 29),
        "--max-num-queued-tokens": (0, 29),
        "--max-num-active-seqs": (0, 31),
    },
)

_HELD_BACK: Final = "look at --prefill-schedule-interval: above 1 it holds prompts back while slots and cache are free. Set it back to 1 unless that is intended."

ADVICE: Final[Mapping[SaturationState, Advice]] = {
    **CALM_ADVICE,
    SaturationState.KV_CACHE_FULL: Advice(
        STATE_TITLES[SaturationState.KV_CACHE_FULL],
        "Requests wait because their prompts find no room in the KV cache. It need not be at 100 %: a request is admitted when its whole prompt fits.",
        (
            Remedy("send less, shorten prompts and the tokens asked for, or add a replica.", at_once=True),
            Remedy(
                "Give the cache more memory: raise --gpu-memory-utilization, if nothing else needs the device.",
                restart=True,
                raises=frozenset({"--gpu-memory-utilization", CACHE_MEMORY}),
            ),
            Remedy(
                "Make each token smaller: --kv-cache-dtype fp8 halves it.",
                restart=True,
                raises=frozenset({CACHE_QUANTISATION}),
            ),
            Remedy(
                "Start prompts alike and keep prefix caching on: the shared part is stored once.",
                raises=frozenset({PREFIX_SHARING}),
            ),
            Remedy(
                "Make the weights smaller: a quantised model leaves more memory for the cache. Or use more devices, with "
                "--tensor-parallel-size.",
                restart=True,
                raises=frozenset({WEIGHT_QUANTISATION, CACHE_MEMORY}),
            ),
            Remedy(
                "Limit what one request may hold: lower --max-model-len.",
                restart=True,
                lowers=frozenset({"--max-model-len"}),
            ),
        ),
        (
            Remedy(
                "Do not raise --max-num-seqs: more requests would share the same cache, and preemptions begin.",
                raises=frozenset({"--max-num-seqs"}),
            ),
        ),
        frozenset({Condition.CACHE_SHORT}),
    ),
    SaturationState.PREEMPTING: Advice(
        STATE_TITLES[SaturationState.PREEMPTING],
        "The KV cache overflows while requests run, so some are thrown out and computed again later. Work is done twice, and their streams stand still meanwhile. vLLM counts a preemption only when the request goes on.",
        (
            Remedy("send less, ask for fewer tokens per request, or add a replica.", at_once=True),
            Remedy(
                "Keep some of the cache free for what runs: set --watermark, to 0.05 for a start (0 by default).",
                restart=True,
                releases=RELEASES,
            ),
            Remedy(
                "Admit fewer at once: lower --max-num-seqs to what the cache holds at full length.",
                restart=True,
                lowers=frozenset({"--max-num-seqs"}),
            ),
            Remedy(
                "Give the cache more memory: raise --gpu-memory-utilization, or use --kv-cache-dtype fp8 or quantised weights.",
                restart=True,
                raises=frozenset({"--gpu-memory-utilization", CACHE_MEMORY, CACHE_QUANTISATION, WEIGHT_QUANTISATION}),
            ),
            Remedy(
                "Limit what one request may grow to: lower --max-model-len.",
                restart=True,
                lowers=frozenset({"--max-model-len"}),
            ),
        ),
        (
            Remedy(
                "Do not raise --max-num-seqs or --max-num-batched-tokens: both let more in.",
                raises=frozenset({"--max-num-seqs", "--max-num-batched-tokens"}),
            ),
        ),
        frozenset({Condition.CACHE_SHORT}),
    ),
    SaturationState.CONCURRENCY_LIMITED: Advice(
        STATE_TITLES[SaturationState.CONCURRENCY_LIMITED],
        "Requests wait although the KV cache has room: as many run as the server may run at once.",
        (
            Remedy("send less, or add a replica.", at_once=True),
            Remedy(
                "raise --max-num-seqs. While llm_kv_cache_headroom_requests is above 0, the cache can hold all that wait, and "
                "that many more, until they finish. Each more request in a batch slows all of them a little.",
                restart=True,
                raises=frozenset({"--max-num-seqs"}),
                conditions=(Condition.CACHE_FREE, Condition.TOKENS_FAST),
            ),
            Remedy(
                "raise --max-num-active-seqs, where it is set below --max-num-seqs.",
                restart=True,
                releases=RELEASES,
                raises=frozenset({"--max-num-active-seqs"}),
                conditions=(Condition.CACHE_FREE, Condition.TOKENS_FAST),
            ),
        ),
        (
            Remedy(
                "Do not give the KV cache more memory to shorten the queue: it is not what they wait for.",
                raises=frozenset({CACHE_MEMORY}),
            ),
        ),
        frozenset({Condition.SLOTS_TAKEN, Condition.CACHE_FREE}),
    ),
    SaturationState.PREFILL_LIMITED: Advice(
        STATE_TITLES[SaturationState.PREFILL_LIMITED],
        "Requests wait although slots and KV cache have room: reading prompts takes up the steps of the engine.",
        (
            Remedy("send less, shorten prompts, or add a replica.", at_once=True),
            Remedy(
                _HELD_BACK,
                restart=True,
                releases=RELEASES,
                lowers=frozenset({"--prefill-schedule-interval"}),
                conditions=(Condition.TOKENS_FAST,),
            ),
            Remedy(
                "Compute less: keep prefix caching on, and put what prompts share at their beginning.",
                raises=frozenset({PREFIX_SHARING}),
            ),
            Remedy(
                "raise --max-num-batched-tokens for more prompt tokens a step; streams then stall longer in each.",
                restart=True,
                raises=frozenset({"--max-num-batched-tokens"}),
                conditions=(Condition.TOKENS_FAST, Condition.CACHE_FREE),
            ),
            Remedy(
                "Use faster devices, or prefill on servers of its own (disaggregated prefill).",
                restart=True,
                raises=frozenset({PREFILL_COMPUTE}),
            ),
        ),
        (
            Remedy(
                "do not raise --max-num-seqs: slots are not what they wait for.",
                raises=frozenset({"--max-num-seqs"}),
                conditions=(Condition.SLOTS_FREE,),
            ),
            Remedy(
                "Do not quantise the KV cache to shorten the queue: prefill is limited by compute.",
                raises=frozenset({CACHE_QUANTISATION}),
            ),
        ),
        frozenset({Condition.SLOTS_FREE, Condition.CACHE_FREE}),
    ),
    SaturationState.DEFERRED: Advice(
        STATE_TITLES[SaturationState.DEFERRED],
        "Requests wait for something other than capacity: KV cache from another server, a LoRA adapter, a grammar to be compiled, a server that has been paused, or something that the page does not show.",
        (
            Remedy("send new requests to another replica until the cause is known.", at_once=True),
            Remedy(
                "Paused: resume it (/resume) or wake it up (/wake_up); both endpoints exist only with VLLM_SERVER_DEV_MODE=1."
            ),
            Remedy("KV cache from another server: look at the connector, the network, and the server that sends."),
            Remedy(
                "LoRA: raise --max-loras if more adapters are in use than fit, or divide adapters among replicas.",
                restart=True,
                raises=frozenset({"--max-loras"}),
            ),
            Remedy("Grammar: keep schemas few and small; each new one is compiled first."),
            Remedy(
                _HELD_BACK,
                restart=True,
                releases=RELEASES,
                lowers=frozenset({"--prefill-schedule-interval"}),
                conditions=(Condition.TOKENS_FAST,),
            ),
            Remedy(
                "None of these: the scheduler may admit nothing more. Keep its log, record it (phasewatch record), and "
                "restart it if the queue does not move.",
                restart=True,
            ),
        ),
        (
            Remedy(
                "Do not change --max-num-seqs or the memory of the KV cache to shorten the queue: capacity is there.",
                raises=frozenset({"--max-num-seqs", CACHE_MEMORY}),
                lowers=frozenset({"--max-num-seqs", CACHE_MEMORY}),
            ),
        ),
    ),
    SaturationState.STUCK: Advice(
        STATE_TITLES[SaturationState.STUCK],
        "Requests run or wait, and no counter of work has moved for half a minute: the server is paused or asleep, or its scheduler or a device hangs. /health says 200 all the same.",
        (
            Remedy("take the server out of the load balancer.", at_once=True),
            Remedy(
                "Asleep or paused on purpose: wake it up (/wake_up) or resume it (/resume); both endpoints exist only with VLLM_SERVER_DEV_MODE=1."
            ),
            Remedy(
                "Otherwise it hangs: keep its log, record it (phasewatch record) and restart it. If running and deferred "
                "requests together have reached --max-num-seqs, its scheduler is wedged (vllm-project/vllm#53130).",
                restart=True,
            ),
        ),
        (Remedy("Do not wait for it to recover, and do not send it more."),),
    ),
    SaturationState.SHEDDING: Advice(
        STATE_TITLES[SaturationState.SHEDDING],
        'The server answers 503 to new requests because those it holds, waiting and running together, have reached --max-num-queued-reqs, or their prompts --max-num-queued-tokens. Refused requests are never queued; llm_http_requests_per_second{status="5xx"} and llm_request_error_ratio show them.',
        (
            Remedy("add replicas, or send less.", at_once=True),
            Remedy("Find the real bottleneck (slots, KV cache or prefill) as for the other states."),
            Remedy(
                "Raise the queue limit only if waiting longer is better for clients than a quick refusal.", restart=True
            ),
        ),
        (Remedy("Do not take a short queue for a good sign: it is short because requests are turned away."),),
    ),
}

ASLEEP: Final = Advice(
    "Asleep",
    "The engine was put to sleep (/sleep): its weights are out of the device's memory, and requests wait until it is woken up.",
    (
        Remedy(
            "send requests elsewhere, or wake it up (/wake_up; the endpoint exists only with VLLM_SERVER_DEV_MODE=1).",
            at_once=True,
        ),
    ),
)
