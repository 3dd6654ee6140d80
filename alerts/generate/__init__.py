"""Generates alerts/rules from the sources in alerts/: `make alerts`, or `python -m alerts.generate` in an export."""
