"""Exporter: charts of its scrapes and of its process."""

from typing import Final

from dashboards.generate.boards.exporter.queries import (
    NO_TARGET_CONFIGURED,
    SCRAPE_AGE,
    keep_exporters,
    query_failed_scrapes,
    query_missed_scrapes,
    query_scrape_age,
)
from dashboards.generate.colours import BAD, GOOD, WARNING
from dashboards.generate.model import (
    NO_THRESHOLDS,
    RATE_INTERVAL,
    Override,
    Panel,
    Query,
    StateTimeline,
    Thresholds,
    TimeSeries,
)
from dashboards.generate.no_value import NO_EVENTS, NO_EXPORTER
from dashboards.generate.queries import BY_EXPORTER, EXPORTER_LEGEND, EXPORTER_MATCHERS, TARGET_LEGEND, select_targets
from dashboards.generate.states import UP

_OPEN_FILES: Final[Thresholds] = ((None, GOOD), (0.8, WARNING), (0.95, BAD))

_SMALL_COUNTS: Final = (Override({"custom.axisSoftMax": 2}, by_regexp=".+"),)
"""Grafana ends the axis of a chart at 100 when all its values are 0."""


def build_scrapes() -> tuple[Panel, ...]:
    """Scrapes of the servers: results, age, duration and misses."""
    return (
        StateTimeline(
            title="Targets that answered",
            description="Green: the newest scrape gave metrics; dark red: it failed. A gap: the exporter itself did not answer.",
            queries=(Query(select_targets("llm_target_up"), TARGET_LEGEND),),
            width=12,
            height=8,
            mappings=UP,
            no_value=NO_TARGET_CONFIGURED,
        ),
        TimeSeries(
            title="Failed scrapes by reason",
            description=(
                "About how many in the moments before each point. connect: the server does not run, or the address is wrong; timeout: "
                "overloaded, or hung; auth and tls: credentials and certificates; the others: see docs/metrics.md, Reasons of failed scrapes."
            ),
            queries=(Query(f"{query_failed_scrapes(RATE_INTERVAL)} > 0", "{{target}} {{reason}}"),),
            width=12,
            height=8,
            unit="none",
            minimum=0,
            bars=True,
            no_value=NO_EVENTS,
        ),
        TimeSeries(
            title="Age of the newest news",
            description=(
                "Seconds since the newest complete scrape of each target. A saw of a few seconds is good; a line that climbs is a server "
                "without news, or an exporter that is gone. Above the dashed line the alert LLMCollectionStale follows."
            ),
            queries=(Query(query_scrape_age(), TARGET_LEGEND),),
            width=8,
            height=8,
            unit="s",
            minimum=0,
            thresholds=SCRAPE_AGE,
            show_thresholds=True,
            no_value="No target answered in this time, or in the hour before",
        ),
        TimeSeries(
            title="Duration of a scrape",
            description=(
                "How long the newest scrape of each target took. vLLM answers on the loop that streams tokens, so this grows with its load; "
                "near `timeout` scrapes begin to fail: raise `timeout`, and `interval` with it."
            ),
            queries=(Query(select_targets("llm_target_scrape_duration_seconds"), TARGET_LEGEND),),
            width=8,
            height=8,
            unit="s",
            minimum=0,
            no_value=NO_TARGET_CONFIGURED,
        ),
        TimeSeries(
            title="Missed scrapes",
            description=(
                "Scrapes that were not made because the one before was still under way, about how many in the moments before each point. 0 "
                "is good. Otherwise a target takes longer than its `interval`: set `timeout` below it, or a longer interval."
            ),
            queries=(Query(query_missed_scrapes(RATE_INTERVAL), EXPORTER_LEGEND),),
            width=8,
            height=8,
            unit="none",
            minimum=0,
            no_value=NO_EXPORTER,
            overrides=_SMALL_COUNTS,
        ),
    )


def build_process() -> tuple[TimeSeries, ...]:
    """Resources of the process, and the scrapes by Prometheus."""
    cpu = f"max by ({BY_EXPORTER}) (rate(process_cpu_seconds_total{{{EXPORTER_MATCHERS}}}[{RATE_INTERVAL}]))"
    files = f"max by ({BY_EXPORTER}) (process_open_fds{{{EXPORTER_MATCHERS}}} / process_max_fds{{{EXPORTER_MATCHERS}}})"
    charts = (
        (
            "CPU",
            "Seconds of CPU per second; 0.01 is one percent of one core. It grows with the number of targets, and falls with a longer interval.",
            cpu,
            "suffix: cores",
            (),
        ),
        (
            "Resident memory",
            "Memory of the process. It grows with targets and `window` and then stays; a line that never stops to rise is a defect to report.",
            f"max by ({BY_EXPORTER}) (process_resident_memory_bytes{{{EXPORTER_MATCHERS}}})",
            "bytes",
            (),
        ),
        (
            "Open files of the limit",
            "Open files and connections / what the process may have. Near 100 % new connections fail: raise the limit (LimitNOFILE).",
            files,
            "percentunit",
            _OPEN_FILES,
        ),
        (
            "Scrape by Prometheus",
            "How long the exporter took to answer Prometheus. Milliseconds are good: it answers from what it knows and asks no server meanwhile.",
            f"max by ({BY_EXPORTER}) (scrape_duration_seconds{{{EXPORTER_MATCHERS}}})",
            "s",
            (),
        ),
        (
            "Samples of a scrape",
            "How many samples Prometheus got. It follows the number of targets, engines and models; 0 is a failed scrape.",
            f"max by ({BY_EXPORTER}) (scrape_samples_scraped{{{EXPORTER_MATCHERS}}})",
            "none",
            (),
        ),
        (
            "Restarts",
            "How often the exporter was started anew in the hour before. It should stay at 0 but for updates: counters and windows begin anew each time.",
            f"max by ({BY_EXPORTER}) (changes(process_start_time_seconds{{{EXPORTER_MATCHERS}}}[1h]))",
            "none",
            (),
        ),
    )
    return tuple(
        TimeSeries(
            title=title,
            description=description,
            queries=(Query(keep_exporters(expr), EXPORTER_LEGEND),),
            width=8,
            height=7,
            unit=unit,
            minimum=0,
            thresholds=thresholds or NO_THRESHOLDS,
            no_value=NO_EXPORTER,
            overrides=_SMALL_COUNTS if unit == "none" else (),
        )
        for title, description, expr, unit, thresholds in charts
    )
