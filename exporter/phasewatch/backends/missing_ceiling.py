"""Explanations of why an engine has no ceiling, with the key of the configuration that would provide it."""

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot


def explain_missing_decode_ceiling(engine: EngineSnapshot, _: ModelSnapshot | None) -> str:
    """Why decode has no ceiling, for a server whose device and model may have to be configured."""
    ceiling = engine.ceiling
    device = bool(ceiling.device_memory_bandwidth_bytes_per_second)
    keys = [key for key, is_known in (("`device`", device), ("`model`", knows_weights(ceiling))) if not is_known]
    return f"no ceiling: set {' and '.join(keys or ['`model`'])} in the configuration"


def explain_missing_prefill_ceiling(engine: EngineSnapshot) -> str:
    """Why prefill has no ceiling, for a server whose device and model may have to be configured."""
    ceiling = engine.ceiling
    compute, weights = bool(ceiling.device_flops_per_second), knows_weights(ceiling)
    if not compute and not ceiling.device_memory_bandwidth_bytes_per_second:
        return f"no ceiling: set `device`{'' if weights else ' and `model`'} in the configuration"
    if not weights:
        return "no ceiling: set `model` in the configuration"
    if not compute:
        return "no ceiling: set `device.flops` in the configuration"
    if engine.phases.prefill_tokens_per_second is None:
        return "no ceiling while no prompt is read"
    return "no ceiling: set `model.path` in the configuration"


def knows_weights(ceiling: Ceiling) -> bool:
    """Whether the size of all weights, or of those that a step reads, is known."""
    return ceiling.weight_read_bytes is not None or bool(ceiling.weight_bytes)
