"""Carries out probes: confirms that the model is still in memory, sends the request, records and logs the result."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from phasewatch.backends.ollama.client import OllamaClient
from phasewatch.backends.ollama.inventory import Inventory, parse_version
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.response import (
    ProbeError,
    ProbeTimings,
    RequestOverhead,
    extract_timings,
    measure_overhead,
    parse_final_object,
)
from phasewatch.backends.ollama.probes.result import ProbeResult, record_result
from phasewatch.backends.ollama.probes.scheduling import choose_probe, is_loaded
from phasewatch.backends.ollama.state import OllamaState, record_skips
from phasewatch.backends.ollama.tracker import StateTracker
from phasewatch.base.errors import ScrapeError
from phasewatch.base.log import get_logger
from phasewatch.config.settings import Target
from phasewatch.snapshot.probes import ProbeReason, SkipReason

LOAD_TIMEOUT_SECONDS: Final = 600.0
"""Deadline of a load that the operator allowed: giving up would undo it (Ollama's own limit is 5 minutes)."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read from a response, as far as it could be; `error` says why not all of it."""

    overhead: RequestOverhead | None = None
    timings: ProbeTimings | None = None
    error: ProbeError | None = None


class ProbeRunner:
    """Carries out the probes of one Ollama, one at a time.

    Args:
        target: the server.
        client: HTTP client of the server.
        tracker: holds its state.
        clock: monotonic seconds.
        wall_clock: Unix seconds.
        random: source of random numbers for jitter and prompts.
    """

    def __init__(
        self,
        target: Target,
        client: OllamaClient,
        tracker: StateTracker,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._target = target
        self._client = client
        self._tracker = tracker
        self._clock = clock
        self._wall_clock = wall_clock
        self._random = random
        self._retry_at = 0.0

    def is_ready(self) -> bool:
        """Whether the server is up, and an interval has passed since its inventory could not be read before a probe."""
        return bool(self._tracker.state.health.up) and self._clock() >= self._retry_at

    def take_request(self) -> ProbeRequest | None:
        """Choose the request that is due, and count the probes that are skipped."""
        now, settings = self._clock(), self._target.probe
        decision = choose_probe(self._tracker.state, settings, now, self._wall_clock(), self._random)
        self._tracker.state = record_skips(self._tracker.state, decision.skips, now, settings.interval)
        return decision.request

    async def run(self) -> None:
        """Carry out the due probe, if it is still due after the inventory was read again."""
        try:
            request = await self._confirm()
            if request is not None:
                self._tracker.probing = request.key
                await self._carry_out(request)
        except ScrapeError as error:
            self._retry_at = self._clock() + self._target.interval
            get_logger().debug("no probe", target=self._target.name, error=error.message)
        except Exception:  # noqa: BLE001  # a mistake of ours must not end the watch
            get_logger().error("probe broke", target=self._target.name, exc_info=True)
        finally:
            self._tracker.probing = None

    async def _confirm(self) -> ProbeRequest | None:
        """The request that is still due by a fresh inventory: the model may have been unloaded since the last scrape.

        Raises:
            ScrapeError: the inventory could not be read.
        """
        intended = self.take_request()
        self._tracker.observe(await self._tracker.read_fresh_inventory())
        state = self._tracker.state
        if intended is not None and intended.kind is not RequestKind.LOAD and not is_loaded(state, intended.key):
            skip = (intended.key, SkipReason.UNLOADED)
            self._tracker.state = record_skips(state, [skip], self._clock(), self._target.probe.interval)
        return self.take_request()

    async def _carry_out(self, request: ProbeRequest) -> None:
        before = self._tracker.state.inventory or Inventory(())
        sent = self._clock()
        reading = await self._send(request, before)
        ended, wall = self._clock(), self._wall_clock()
        self._tracker.probe_ended = ended
        try:
            after = await self._tracker.read_inventory()
        except ScrapeError:
            after = None
        result = ProbeResult(
            request, reading.overhead, reading.timings, reading.error, sent, ended, wall, before=before, after=after
        )
        previous = self._tracker.state
        self._tracker.state = record_result(previous, result, self._target.probe, self._random)
        self._tracker.probing = None
        if after is not None:
            self._tracker.observe(after)
        self._log(result, previous, self._tracker.state)

    async def _send(self, request: ProbeRequest, before: Inventory) -> _Reading:
        deadline = LOAD_TIMEOUT_SECONDS if request.kind is RequestKind.LOAD else self._target.probe.timeout
        overhead: RequestOverhead | None = None
        try:
            payload = parse_final_object(await self._client.generate(request.body, deadline))
            if request.kind is RequestKind.LOAD:
                return _Reading()
            formats = {model.key: model.details.format for model in before.loaded}
            version, model_format = parse_version(self._tracker.state.version), formats.get(request.key, "")
            overhead = measure_overhead(payload)
            return _Reading(overhead, extract_timings(payload, version=version, model_format=model_format))
        except ScrapeError as error:
            return _Reading(error=ProbeError(ProbeReason(error.reason.value), error.message))
        except ProbeError as error:
            return _Reading(overhead, error=error)
        except Exception as error:  # noqa: BLE001  # as above; counted, or the same probe would be due again at once
            get_logger().error("probe broke", target=self._target.name, exc_info=True)
            defect = f"a defect of the exporter: {type(error).__name__}"
            return _Reading(error=ProbeError(ProbeReason.INTERNAL, defect))

    def _log(self, result: ProbeResult, before: OllamaState, after: OllamaState) -> None:
        """Log when probes of a model begin to fail, when they succeed again, and when they are given up."""
        key = result.request.key
        log = get_logger().bind(target=self._target.name, model=key[0])
        model = after.models.get(key)
        record = before.records.get(key[0])
        succeeded = record is None or record.success is not False
        if result.error is not None and succeeded:
            log.warning("probe failed", reason=result.error.reason.value, error=result.error.message)
        elif result.error is None and not succeeded:
            log.info("probes are answered again")
        if model is not None and model.quarantine is not None:  # for the first time: it was probed
            hint = "set probe.models[].enabled: false"
            if result.error is None:
                hint = f"give the options it is loaded with as probe.models[].options, or {hint}"
            log.warning("model no longer probed", why=model.quarantine, hint=hint)
