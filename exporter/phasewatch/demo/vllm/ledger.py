"""Ground truth of a simulated engine, step by step, against which the exporter's figures are tested.

Events are recorded when they happen, not when the server counts them: prompt tokens as they are computed, preemptions
as they occur, latencies as clients observe them.
"""

from dataclasses import dataclass

from phasewatch.demo.common.step_ledger import StepLedger


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first token of a request.

    Attributes:
        latency: seconds since the request was sent.
        computed_tokens: prompt tokens that were computed.
        cached_tokens: prompt tokens that came from the prefix cache.
    """

    latency: float
    computed_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that ran to its end.

    Attributes:
        latency: seconds from its arrival to its last token.
        prompt_tokens: length of its prompt.
        output_tokens: length of its output.
    """

    latency: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class EngineStep:
    """One step of the engine.

    Attributes:
        end: when it ended, in seconds of the simulation.
        seconds: its duration.
        prompt_tokens: prompt tokens computed for the first time.
        recomputed_tokens: tokens computed again after a preemption.
        read_bytes: weights and KV cache read.
        operations: floating point operations.
        running: admitted requests.
        waiting: requests not yet admitted when the step began.
        preempted: requests preempted when the step began.
        first_tokens: the first tokens of requests that it produced.
        token_gaps: gaps before all other tokens: (seconds since the previous token of the stream, number of tokens).
        finished: the requests that ended with it.
    """

    end: float
    seconds: float
    prompt_tokens: int
    recomputed_tokens: int
    read_bytes: float
    operations: float
    running: int
    waiting: int
    preempted: int
    first_tokens: tuple[FirstToken, ...]
    token_gaps: tuple[tuple[float, int], ...]
    finished: tuple[FinishedRequest, ...] = ()


TruthLedger = StepLedger[EngineStep]
"""The steps of the last `KEPT_SECONDS`."""
