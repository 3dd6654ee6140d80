"""Metrics about the exporter itself."""

from typing import Final

from phasewatch.metrics.descriptor import SelfMetric, describe_self_metric

SELF_METRICS: Final = (
    SelfMetric(
        "phasewatch_build_info",
        "1, with the version of the exporter.",
        "gauge",
        ("version",),
        lambda status: [({"version": status.version}, 1.0)],
    ),
    describe_self_metric(
        "phasewatch_config_last_reload_successful",
        "gauge",
        "1 if the newest attempt to load the configuration succeeded, 0 if the one before is still in force.",
        lambda status: float(status.reload_successful),
    ),
    describe_self_metric(
        "phasewatch_config_last_reload_success_timestamp_seconds",
        "gauge",
        "Unix time at which the configuration in force was loaded.",
        lambda status: status.reload_success_time,
    ),
    describe_self_metric(
        "phasewatch_scrapes_missed_total",
        "counter",
        "Scrapes that were not made because the one before was still under way.",
        lambda status: float(status.scrapes_missed),
    ),
)
