"""The dashboards, one package each."""
