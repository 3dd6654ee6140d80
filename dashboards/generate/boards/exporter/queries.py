"""Exporter: PromQL, colours and texts that several parts of the dashboard share."""

from collections.abc import Mapping
from typing import Final

from dashboards.generate.colours import BAD, GOOD, NEUTRAL
from dashboards.generate.model import Thresholds, ValueMapping
from dashboards.generate.queries import BY_EXPORTER, EXPORTER_MATCHERS, TARGET_MATCHERS
from dashboards.generate.states import STATES, TARGET_LOOKBACK, UNKNOWN, UP
from dashboards.generate.thresholds import read_threshold

CONFIG_IN_FORCE: Final = {"1": ValueMapping("In force", GOOD), "0": ValueMapping("Invalid", BAD)}
"""Values of phasewatch_config_last_reload_successful."""

TARGET_UP: Final[Mapping[str, ValueMapping]] = {"-1": STATES[UNKNOWN], **UP}
"""Values of llm_target_up, and -1 for a target without samples."""

MAX_SCRAPE_AGE: Final = read_threshold("collection_age_seconds")
SCRAPE_AGE: Final[Thresholds] = ((None, NEUTRAL), (MAX_SCRAPE_AGE, BAD))

EXPORTER_ABSENT: Final = "Prometheus knows no exporter"
NO_TARGET_CONFIGURED: Final = "No target is known: does the configuration of the exporter name any?"


def keep_exporters(expr: str) -> str:
    """PromQL without the samples of other jobs, which the variables let pass when all are chosen."""
    return f"{expr} and on ({BY_EXPORTER}) last_over_time(phasewatch_build_info{{{EXPORTER_MATCHERS}}}[1d])"


def query_up() -> str:
    """PromQL: `up` of each exporter, also of one that has never answered if its job has the name that the alerts expect."""
    up = f"up{{{EXPORTER_MATCHERS}}}"
    expected = 'label_replace(vector(1), "job", "phasewatch", "", "")'
    return f"max by ({BY_EXPORTER}) (\n  {up} and on (job) {expected}\n  or {keep_exporters(up)}\n)"


def query_failed_scrapes(time_range: str) -> str:
    """PromQL: failed scrapes of each target by reason."""
    return f"max by (target, reason) (increase(llm_target_scrape_errors_total{{{TARGET_MATCHERS}}}[{time_range}]))"


def query_missed_scrapes(time_range: str) -> str:
    """PromQL: missed scrapes of each exporter."""
    return f"max by ({BY_EXPORTER}) (increase(phasewatch_scrapes_missed_total{{{EXPORTER_MATCHERS}}}[{time_range}]))"


def query_scrape_age() -> str:
    """PromQL: seconds since the newest complete scrape of each target, unknown ones included."""
    newest = f"last_over_time(llm_target_last_success_timestamp_seconds{{{TARGET_MATCHERS}}}[{TARGET_LOOKBACK}])"
    return f"time() - max by (target) ({newest})"


def query_unknown_targets() -> str:
    """PromQL: targets that an exporter reported within TARGET_LOOKBACK and none reports now."""
    recent = f"max by (target, backend) (last_over_time(llm_target_up{{{TARGET_MATCHERS}}}[{TARGET_LOOKBACK}]))"
    return f"({recent}\n  unless on (target) llm_target_up{{{TARGET_MATCHERS}}})"
