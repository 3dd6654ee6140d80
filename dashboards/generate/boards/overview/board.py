"""Overview: assembles the dashboard."""

from dashboards.generate.boards.overview.history import build_history
from dashboards.generate.boards.overview.servers import build_servers
from dashboards.generate.boards.overview.stats import build_stats
from dashboards.generate.model import Dashboard, Row
from dashboards.generate.pack import OVERVIEW, build_dashboard


def build_overview() -> Dashboard:
    """The dashboard to open first: the state of every server, and how close it is to its hardware."""
    return build_dashboard(
        OVERVIEW,
        "Is it prefill, decode, the queue or the cache, and how close to the hardware is each server?",
        Row("Now", (*build_stats(), build_servers())),
        Row("Over time", build_history()),
    )
