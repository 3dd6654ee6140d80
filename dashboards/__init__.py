"""The Grafana dashboards as code: `make dashboards` writes the JSON files beside these modules."""
