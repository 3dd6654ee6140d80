"""Grafana dashboards of PhaseWatch: `generate/` builds the JSON files in `json/`."""
