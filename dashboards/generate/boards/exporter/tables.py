"""Exporter: tables of exporters, targets and firing alerts, and of the models that servers have."""

from typing import Final

from dashboards.generate.boards.exporter.queries import (
    CONFIG_IN_FORCE,
    EXPORTER_ABSENT,
    MAX_SCRAPE_AGE,
    NO_TARGET_CONFIGURED,
    SCRAPE_AGE,
    TARGET_UP,
    keep_exporters,
    query_failed_scrapes,
    query_missed_scrapes,
    query_scrape_age,
    query_unknown_targets,
    query_up,
)
from dashboards.generate.colours import BAD, WARNING, ZERO_OR_WARNING
from dashboards.generate.model import RANGE, Column, Query, Table, ValueMapping
from dashboards.generate.pack import OVERVIEW
from dashboards.generate.queries import BY_EXPORTER, EXPORTER_MATCHERS, TARGET_MATCHERS, select_targets
from dashboards.generate.states import UP

_FIRING: Final = (
    f'max by (alertname, severity, target, model_name, engine) (ALERTS{{{EXPORTER_MATCHERS}, target=~"$target|", '
    'alertname=~"LLM.+", alertstate="firing", severity=~"critical|warning"})'
)


def build_exporters() -> Table:
    """Each PhaseWatch that Prometheus scrapes."""
    configured = (
        f"max by ({BY_EXPORTER}) (phasewatch_config_last_reload_success_timestamp_seconds{{{EXPORTER_MATCHERS}}})"
    )
    return Table(
        title="Each exporter",
        description=(
            "A row for each PhaseWatch that Prometheus scrapes; those that do not answer are first. Configuration in force since: when it was last loaded. More than one row "
            "with different versions: an update that is not finished. Restarts over and over show as a short time running."
        ),
        queries=(
            Query(query_up(), ref_id="up"),
            Query(f"max by ({BY_EXPORTER}, version) (phasewatch_build_info{{{EXPORTER_MATCHERS}}})", ref_id="build"),
            Query(
                f"max by ({BY_EXPORTER}) (phasewatch_config_last_reload_successful{{{EXPORTER_MATCHERS}}})",
                ref_id="reloaded",
            ),
            Query(f"time() - {configured}", ref_id="configured"),
            Query(
                keep_exporters(f"max by ({BY_EXPORTER}) (time() - process_start_time_seconds{{{EXPORTER_MATCHERS}}})"),
                ref_id="running",
            ),
            Query(
                f"{query_missed_scrapes(RANGE)} and on ({BY_EXPORTER}) phasewatch_build_info{{{EXPORTER_MATCHERS}}}",
                ref_id="missed",
            ),
            Query(
                keep_exporters(f"max by ({BY_EXPORTER}) (scrape_samples_scraped{{{EXPORTER_MATCHERS}}})"),
                ref_id="samples",
            ),
            Query(
                keep_exporters(f"max by ({BY_EXPORTER}) (process_resident_memory_bytes{{{EXPORTER_MATCHERS}}})"),
                ref_id="memory",
            ),
        ),
        columns=(
            Column("instance", "Instance"),
            Column("job", "Job", width=130),
            Column("up", "Answers", width=90, mappings=UP),
            Column("version", "Version", width=110),
            Column("running", "Running for", unit="s", width=120),
            Column("reloaded", "Configuration", width=120, mappings=CONFIG_IN_FORCE),
            Column("configured", "in force for", unit="s", width=120),
            Column("missed", "Missed in this time", decimals=0, width=140, thresholds=ZERO_OR_WARNING),
            Column("samples", "Samples", decimals=0, width=100),
            Column("memory", "Memory", unit="bytes", decimals=0, width=100),
        ),
        width=24,
        height=5,
        sort_by=("Answers", False),
        no_value=f"{EXPORTER_ABSENT}: see scrape_configs, and docs/alerts.md, Install",
    )


def build_targets() -> Table:
    """Each server, and how its scrapes go."""
    return Table(
        title="Targets",
        description=(
            f"Every server that is watched, or was in the last hour; those that are not known or down are first. Newest news: red from {MAX_SCRAPE_AGE / 60:g} minutes on. Scrape: how long the "
            "newest took; vLLM answers more slowly the busier it is. Failed: how many scrapes in the shown time, with any reason."
        ),
        queries=(
            Query(
                f"max by (target, backend) (llm_target_up{{{TARGET_MATCHERS}}})\nor 0 * {query_unknown_targets()} - 1",
                ref_id="up",
            ),
            Query(query_scrape_age(), ref_id="age"),
            Query(select_targets("llm_target_scrape_duration_seconds"), ref_id="took"),
            Query(
                f"round(sum by (target) ({query_failed_scrapes(RANGE)})) and on (target) llm_target_up{{{TARGET_MATCHERS}}}",
                ref_id="failed",
            ),
            Query(f"max by (target, version) (llm_target_info{{{TARGET_MATCHERS}}})", ref_id="info"),
        ),
        columns=(
            Column("target", "Target", link_to=OVERVIEW),
            Column("backend", "Kind", width=70),
            Column("version", "Version", width=80),
            Column("up", "Answers", width=90, mappings=TARGET_UP),
            Column("age", "Newest news", unit="s", width=105, thresholds=SCRAPE_AGE),
            Column("took", "Scrape", unit="s", width=75),
            Column("failed", "Failed in this time", decimals=0, width=135, thresholds=ZERO_OR_WARNING),
        ),
        width=13,
        height=8,
        sort_by=("Answers", False),
        no_value=NO_TARGET_CONFIGURED,
    )


def build_firing_alerts() -> Table:
    """Alerts of the pack that fire now."""
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
                mappings={"critical": ValueMapping("critical", BAD), "warning": ValueMapping("warning", WARNING)},
            ),
            Column("target", "Target", width=100),
            Column("model_name", "Model", width=100),
            Column("engine", "Engine", width=65),
        ),
        width=11,
        height=8,
        sort_by=("Severity", False),
        no_value="Nothing fires, if the rules are loaded (docs/alerts.md, Install)",
    )


def build_versions() -> Table:
    """What servers report about their models."""
    labels = "target, backend, model_name, root, max_model_len, parameter_size, quantization, family"
    return Table(
        title="Models",
        description="What the servers tell of the models that they serve or have on disk. A vLLM with --api-key tells it only to a target with `authorization`.",
        queries=(Query(f"max by ({labels}) (llm_model_info{{{TARGET_MATCHERS}}})", ref_id="info"),),
        columns=(
            Column("target", "Target", width=150),
            Column("backend", "Kind", width=90),
            Column("model_name", "Model"),
            Column("root", "Loaded from"),
            Column("max_model_len", "Context", width=110),
            Column("parameter_size", "Parameters", width=110),
            Column("quantization", "Quantization", width=120),
            Column("family", "Family", width=110),
        ),
        width=24,
        height=8,
        no_value="No server tells: an API key may guard it",
    )
