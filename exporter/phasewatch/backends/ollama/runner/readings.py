"""The figures of a model in memory: of its users' requests where its child is read, otherwise of probes. Pure."""

from dataclasses import replace

from phasewatch.analysis.phases import Phases
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.saturation import SaturationState
from phasewatch.analysis.window import PageWindow
from phasewatch.backends.llamacpp.process import ProcessState
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource


def fold_probe(process: ProcessState) -> ProcessState:
    """The state without a window that holds a probe of ours: its tokens are not those of users."""
    return replace(process, pages=replace(process.pages, window=PageWindow(), engines={}))


def serves_metrics(process: ProcessState) -> bool | None:
    """Whether a child shows its page of metrics; None before it was read."""
    return None if process.tracking is None else process.tracking.page != EngineSample()


def combine_engines(probed: EngineSnapshot, watched: EngineSnapshot | None) -> EngineSnapshot:
    """The engine of a model in memory.

    The speeds of phases are those of users as long as the window has any, and those of the newest probes while users
    are idle; throughput, load and stalls are always those of users.

    Args:
        probed: the engine as probes see it.
        watched: the engine as its child shows it; None if it cannot be read.
    """
    if watched is None:
        return probed
    # Whether requests wait is not known, so neither is what limits them; that nothing moves is.
    state = watched.state if watched.state is SaturationState.STUCK else None
    watched = replace(watched, key=probed.key, state=state)
    if probed.measurement_source is None or _has_speeds(watched.phases):
        return watched
    phases = replace(
        probed.phases,
        prefill_throughput_tokens_per_second=watched.phases.prefill_throughput_tokens_per_second,
        decode_throughput_tokens_per_second=watched.phases.decode_throughput_tokens_per_second,
        decode_streams=watched.phases.decode_streams,
        engine_steps_per_second=watched.phases.engine_steps_per_second,
    )
    return replace(
        watched,
        phases=phases,
        latencies=probed.latencies,
        ceiling=probed.ceiling,
        measurement_source=MeasurementSource.PROBE,
    )


def _has_speeds(phases: Phases) -> bool:
    """Whether users' requests have been worked on in the window."""
    return bool(phases.decode_throughput_tokens_per_second or phases.prefill_throughput_tokens_per_second)
