"""Exporter: the large numbers at the top."""

from typing import Final

from dashboards.generate.boards.exporter.queries import (
    CONFIG_IN_FORCE,
    EXPORTER_ABSENT,
    MAX_SCRAPE_AGE,
    SCRAPE_AGE,
    query_failed_scrapes,
    query_missed_scrapes,
    query_scrape_age,
    query_unknown_targets,
    query_up,
)
from dashboards.generate.colours import BAD, ZERO_OR_BAD, ZERO_OR_WARNING
from dashboards.generate.model import RANGE, Override, Query, Stat, Thresholds
from dashboards.generate.no_value import NO_EXPORTER
from dashboards.generate.overrides import fix_colour
from dashboards.generate.queries import EXPORTER_MATCHERS, select_targets
from dashboards.generate.states import STATES, UNKNOWN, UP

_MISSING: Final[Thresholds] = ((None, BAD),)
"""Colour of a number that is missing though it has to be there."""

_NO_TARGET_KNOWN: Final = "No target is known"


def build_stats() -> tuple[Stat, ...]:
    """Exporters, configuration, targets, and failed and missed scrapes."""
    return (
        Stat(
            title="Exporters",
            description=(
                "Whether Prometheus reaches every chosen exporter. Down: it does not run, starts over and over, or listens on an "
                "address that Prometheus cannot reach; by itself it listens on loopback alone. While it is down, nothing is known of its servers."
            ),
            queries=(Query(f"min({query_up()})"),),
            mappings=UP,
            thresholds=_MISSING,
            no_value=EXPORTER_ABSENT,
            colour_background=True,
        ),
        Stat(
            title="Config",
            description=(
                "Whether the newest configuration is in force at every exporter. Invalid: it could not be loaded, and the one before is "
                "still in force. `phasewatch check --config.file` names every problem."
            ),
            queries=(Query(f"min(phasewatch_config_last_reload_successful{{{EXPORTER_MATCHERS}}})"),),
            mappings=CONFIG_IN_FORCE,
            thresholds=_MISSING,
            no_value=NO_EXPORTER,
            colour_background=True,
        ),
        Stat(
            title="Targets down",
            description=(
                "Servers whose newest scrape failed. The reason is in the table below, and with a message in the log of the exporter "
                "and on its page. Not known: an exporter told of them in the last hour and none does now, because it is down, or "
                "because they were removed."
            ),
            queries=(
                Query(f"sum({select_targets('llm_target_up')} == bool 0)", "down", ref_id="down"),
                Query(f"count({query_unknown_targets()})", "not known", ref_id=UNKNOWN),
            ),
            decimals=0,
            thresholds=ZERO_OR_BAD,
            overrides=(Override(fix_colour(STATES[UNKNOWN].colour), by_query=UNKNOWN),),
            no_value=_NO_TARGET_KNOWN,
            show_names=True,
        ),
        Stat(
            title="Oldest news",
            description=(
                "Time since the newest complete scrape, of the target with the oldest. A few seconds are good: up to an interval of the "
                f"exporter and one of Prometheus. Red from {MAX_SCRAPE_AGE / 60:g} minutes on, as in the alert LLMCollectionStale: a server that is down, "
                "an exporter that is held up or gone, or clocks that disagree."
            ),
            queries=(Query(f"max({query_scrape_age()})"),),
            unit="s",
            thresholds=SCRAPE_AGE,
            no_value="No target answered in the last hour",
        ),
        Stat(
            title="Failed",
            description=(
                "Scrapes of servers that failed in the shown time. One now and then is harmless: the alerts look at minutes. Many with "
                "the reason timeout: the server is overloaded, or `timeout` is too short. The other reasons are below."
            ),
            queries=(Query(f"round(sum({query_failed_scrapes(RANGE)}))", "in this time"),),
            decimals=0,
            thresholds=ZERO_OR_WARNING,
            no_value=_NO_TARGET_KNOWN,
            show_names=True,
        ),
        Stat(
            title="Missed",
            description=(
                "Scrapes of servers that were not made in the shown time, because the one before was still under way: a target takes longer to "
                "answer than its `interval`. Set `timeout` below it, or a longer interval."
            ),
            queries=(Query(f"round(sum({query_missed_scrapes(RANGE)}))", "in this time"),),
            decimals=0,
            thresholds=ZERO_OR_WARNING,
            no_value=NO_EXPORTER,
            show_names=True,
        ),
    )
