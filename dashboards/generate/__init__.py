"""Builds the dashboards as plain values and writes them as Grafana's JSON: `make dashboards`."""
