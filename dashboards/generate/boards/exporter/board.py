"""Exporter: the health of PhaseWatch itself, and of what Prometheus sees of it."""

from typing import Final

from dashboards.generate.boards.exporter.charts import (
    AGE,
    ANSWERS,
    NO_TARGET,
    UP,
    details,
    failed,
    missed,
    news_age,
    of_exporters,
    untold,
)
from dashboards.generate.model import Board, Column, Override, Query, Section, Shown, Steps, Table, Tile
from dashboards.generate.pack import (
    BAD,
    CARE,
    GOOD,
    INSTANCE,
    JOB,
    NEUTRAL,
    OF_EXPORTER,
    OF_TARGET,
    TARGET,
    board,
    of_target,
)
from dashboards.generate.states import STATES, UNKNOWN

_IN_FORCE: Final = {"1": Shown("In force", GOOD), "0": Shown("Invalid", BAD)}
_NONE_ALLOWED: Final[Steps] = ((None, NEUTRAL), (0.0, GOOD), (0.5, BAD))
_NONE_WANTED: Final[Steps] = ((None, NEUTRAL), (0.0, GOOD), (0.5, CARE))

_MISSING: Final[Steps] = ((None, BAD),)
"""The colour of a tile without a value, where there has to be one."""

_FIRING: Final = (
    f'max by (alertname, severity, target, model_name, engine) (ALERTS{{{OF_EXPORTER}, target=~"$target|", '
    'alertname=~"LLM.+", alertstate="firing", severity=~"critical|warning"})'
)

_NO_EXPORTER: Final = "Prometheus knows no exporter"


def exporter() -> Board:
    """The board of the pack itself."""
    return board(
        "phasewatch-exporter",
        "Does PhaseWatch itself work: is it up, are its servers reached, and is what it shows fresh?",
        Section("Now", (*_tiles(), _exporters(), _targets(), _firing())),
        *details(),
        variables=(JOB, INSTANCE, TARGET),
    )


def _up() -> str:
    """Also of an exporter that has never answered, under the name of the job that the alerts ask for."""
    found = f"up{{{OF_EXPORTER}}}"
    expected = 'label_replace(vector(1), "job", "phasewatch", "", "")'
    return f"max by (job, instance) (\n  {found} and on (job) {expected}\n  or {of_exporters(found)}\n)"


def _tiles() -> tuple[Tile, ...]:
    return (
        Tile(
            title="Exporters",
            description=(
                "Whether Prometheus reaches every chosen exporter. Down: it does not run, starts over and over, or listens on an "
                "address that Prometheus cannot reach; by itself it listens on loopback alone. While it is down, nothing is known of its servers."
            ),
            queries=(Query(f"min({_up()})"),),
            mappings=UP,
            steps=_MISSING,
            empty=_NO_EXPORTER,
            filled=True,
        ),
        Tile(
            title="Config",
            description=(
                "Whether the newest configuration is in force at every exporter. Invalid: it could not be loaded, and the one before is "
                "still in force. `phasewatch check --config.file` names every problem."
            ),
            queries=(Query(f"min(phasewatch_config_last_reload_successful{{{OF_EXPORTER}}})"),),
            mappings=_IN_FORCE,
            steps=_MISSING,
            empty="No exporter answers",
            filled=True,
        ),
        Tile(
            title="Targets down",
            description=(
                "Servers whose newest scrape failed. The reason is in the table below, and with a message in the log of the exporter "
                "and on its page. Not known: an exporter told of them in the last hour and none does now, because it is down, or "
                "because they were removed."
            ),
            queries=(
                Query(f"sum({of_target('llm_target_up')} == bool 0)", "down", name="down"),
                Query(f"count({untold()})", "not known", name=UNKNOWN),
            ),
            decimals=0,
            steps=_NONE_ALLOWED,
            overrides=(
                Override(
                    {"color": {"mode": "fixed", "fixedColor": STATES[UNKNOWN].colour}},
                    query=UNKNOWN,
                ),
            ),
            empty="No target is known",
            named=True,
        ),
        Tile(
            title="Oldest news",
            description=(
                "Time since the newest complete scrape, of the target with the oldest. A few seconds are good: up to an interval of the "
                "exporter and one of Prometheus. Red from 5 minutes on, as in the alert LLMCollectionStale: a server that is down, "
                "an exporter that is held up or gone, or clocks that disagree."
            ),
            queries=(Query(f"max({news_age()})"),),
            unit="s",
            steps=AGE,
            empty="No target answered in the last hour",
        ),
        Tile(
            title="Failed",
            description=(
                "Scrapes of servers that failed in the shown time. One now and then is harmless: the alerts look at minutes. Many with "
                "the reason timeout: the server is overloaded, or `timeout` is too short. The other reasons are below."
            ),
            queries=(Query(f"round(sum({failed('$__range')}))", "in this time"),),
            decimals=0,
            steps=_NONE_WANTED,
            empty="No target is known",
            named=True,
        ),
        Tile(
            title="Missed",
            description=(
                "Scrapes of servers that were not made in the shown time, because the one before was still under way: a target takes longer to "
                "answer than its `interval`. Set `timeout` below it, or a longer interval."
            ),
            queries=(Query(f"round(sum({missed('$__range')}))", "in this time"),),
            decimals=0,
            steps=_NONE_WANTED,
            empty="No exporter answers",
            named=True,
        ),
    )


def _exporters() -> Table:
    configured = f"max by (job, instance) (phasewatch_config_last_reload_success_timestamp_seconds{{{OF_EXPORTER}}})"
    return Table(
        title="Each exporter",
        description=(
            "A row for each PhaseWatch that Prometheus scrapes; those that do not answer are first. Configuration in force since: when it was last loaded. More than one row "
            "with different versions: an update that is not finished. Restarts over and over show as a short time running."
        ),
        queries=(
            Query(_up(), name="up"),
            Query(f"max by (job, instance, version) (phasewatch_build_info{{{OF_EXPORTER}}})", name="build"),
            Query(
                f"max by (job, instance) (phasewatch_config_last_reload_successful{{{OF_EXPORTER}}})", name="reloaded"
            ),
            Query(f"time() - {configured}", name="configured"),
            Query(
                of_exporters(f"max by (job, instance) (time() - process_start_time_seconds{{{OF_EXPORTER}}})"),
                name="running",
            ),
            Query(f"{missed('$__range')} and on (job, instance) phasewatch_build_info{{{OF_EXPORTER}}}", name="missed"),
            Query(of_exporters(f"max by (job, instance) (scrape_samples_scraped{{{OF_EXPORTER}}})"), name="samples"),
            Query(
                of_exporters(f"max by (job, instance) (process_resident_memory_bytes{{{OF_EXPORTER}}})"), name="memory"
            ),
        ),
        columns=(
            Column("instance", "Instance"),
            Column("job", "Job", width=130),
            Column("up", "Answers", width=90, mappings=UP),
            Column("version", "Version", width=110),
            Column("running", "Running for", unit="s", width=120),
            Column(
                "reloaded",
                "Configuration",
                width=120,
                mappings=_IN_FORCE,
            ),
            Column("configured", "in force for", unit="s", width=120),
            Column("missed", "Missed in this time", unit="none", decimals=0, width=140, steps=_NONE_WANTED),
            Column("samples", "Samples", unit="none", decimals=0, width=100),
            Column("memory", "Memory", unit="bytes", decimals=0, width=100),
        ),
        width=24,
        height=5,
        sorted_by=("Answers", False),
        empty=f"{_NO_EXPORTER}: see scrape_configs, and docs/alerts.md, Install",
    )


def _targets() -> Table:
    return Table(
        title="Targets",
        description=(
            "Every server that is watched, or was in the last hour; those that are not known or down are first. Newest news: red from 5 minutes on. Scrape: how long the "
            "newest took; vLLM answers more slowly the busier it is. Failed: how many scrapes in the shown time, with any reason."
        ),
        queries=(
            Query(f"max by (target, backend) (llm_target_up{{{OF_TARGET}}})\nor 0 * {untold()} - 1", name="up"),
            Query(news_age(), name="age"),
            Query(of_target("llm_target_scrape_duration_seconds"), name="took"),
            Query(
                f"round(sum by (target) ({failed('$__range')})) and on (target) llm_target_up{{{OF_TARGET}}}",
                name="failed",
            ),
            Query(f"max by (target, version) (llm_target_info{{{OF_TARGET}}})", name="info"),
        ),
        columns=(
            Column("target", "Target", linked="phasewatch-overview"),
            Column("backend", "Kind", width=70),
            Column("version", "Version", width=80),
            Column("up", "Answers", width=90, mappings=ANSWERS),
            Column("age", "Newest news", unit="s", width=105, steps=AGE),
            Column("took", "Scrape", unit="s", width=75),
            Column("failed", "Failed in this time", unit="none", decimals=0, width=135, steps=_NONE_WANTED),
        ),
        width=13,
        height=8,
        sorted_by=("Answers", False),
        empty=NO_TARGET,
    )


def _firing() -> Table:
    return Table(
        title="Alerts that fire",
        description=(
            "Alerts of the pack that fire now, of the chosen jobs, instances and targets. Critical pages somebody, a warning is a ticket. Each has "
            "a runbook, docs/runbooks, with how to confirm it and what to change. Alerts about no exporter in particular, such as "
            "LLMExporterAbsent, are in Alertmanager alone. Empty is good only where the rules are loaded: LLMWatchdog fires there."
        ),
        queries=(Query(_FIRING),),
        columns=(
            Column("alertname", "Alert"),
            Column(
                "severity",
                "Severity",
                width=90,
                mappings={"critical": Shown("critical", BAD), "warning": Shown("warning", CARE)},
            ),
            Column("target", "Target", width=100),
            Column("model_name", "Model", width=100),
            Column("engine", "Engine", width=65),
        ),
        width=11,
        height=8,
        sorted_by=("Severity", False),
        empty="Nothing fires, if the rules are loaded (docs/alerts.md, Install)",
    )
