"""Ground truth of a simulated llama-server: its steps, and what woke it, against which the exporter is tested."""

from dataclasses import dataclass, field

from phasewatch.demo.common.step_ledger import StepLedger


@dataclass(frozen=True, slots=True)
class LlamaStep:
    """One call of `llama_decode`.

    Attributes:
        end: when it ended, in seconds of the simulation.
        seconds: its duration.
        read_bytes: weights and KV cache read.
        prompt_tokens: prompt tokens computed.
        first_tokens: streams whose first token it produced.
        token_gaps: for each other token, the seconds since the previous one of its stream.
        processing: busy slots when it began.
        deferred: requests that waited for a slot when it began.
    """

    end: float
    seconds: float
    read_bytes: float
    prompt_tokens: int
    first_tokens: int
    token_gaps: tuple[float, ...]
    processing: int
    deferred: int

    @property
    def tokens(self) -> int:
        """Tokens generated, first ones included."""
        return self.first_tokens + len(self.token_gaps)


TruthLedger = StepLedger[LlamaStep]
"""The steps of the last `KEPT_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Wake:
    """A wake from sleep.

    Attributes:
        at: seconds of the simulation.
        read: path of the page whose read woke the server; None if a request did.
    """

    at: float
    read: str | None


@dataclass(slots=True)
class SleepLedger:
    """What an observer did to the sleep of a server.

    Attributes:
        sleeps: when it fell asleep, seconds of the simulation.
        wakes: what woke it.
        kept_awake: reads that restarted the idle time of a server without work.
    """

    sleeps: list[float] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    kept_awake: int = 0

    def list_wakes_by_reads(self) -> list[Wake]:
        """The wakes that an observer is to blame for."""
        return [wake for wake in self.wakes if wake.read is not None]
