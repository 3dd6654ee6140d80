"""Exporter: health of PhaseWatch itself and freshness of its data."""
