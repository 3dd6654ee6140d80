"""Default thresholds of the alerts, so that colours change where alerts begin."""

from functools import cache

from alerts.generate.thresholds import THRESHOLDS, read_thresholds


@cache
def read_threshold(name: str) -> float:
    """The default of a threshold of alerts/thresholds.yml, in the unit that its name says.

    Raises:
        KeyError: there is no threshold of this name.
    """
    return {threshold.name: threshold.value for threshold in read_thresholds(THRESHOLDS)}[name]
