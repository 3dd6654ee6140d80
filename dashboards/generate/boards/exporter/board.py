"""Exporter: assembles the dashboard."""

from dashboards.generate.boards.exporter.charts import build_process, build_scrapes
from dashboards.generate.boards.exporter.stats import build_stats
from dashboards.generate.boards.exporter.tables import (
    build_exporters,
    build_firing_alerts,
    build_targets,
    build_versions,
)
from dashboards.generate.model import Dashboard, Row
from dashboards.generate.pack import EXPORTER, INSTANCE, JOB, TARGET, build_dashboard


def build_exporter() -> Dashboard:
    """Health of PhaseWatch itself, and of what Prometheus gets from it."""
    return build_dashboard(
        EXPORTER,
        "Does PhaseWatch itself work: is it up, are its servers reached, and is what it shows fresh?",
        Row("Now", (*build_stats(), build_exporters(), build_targets(), build_firing_alerts())),
        Row("Scrapes of the servers", build_scrapes()),
        Row("The process, and what Prometheus sees of it", build_process()),
        Row("Versions", (build_versions(),), collapsed=True),
        variables=(JOB, INSTANCE, TARGET),
    )
