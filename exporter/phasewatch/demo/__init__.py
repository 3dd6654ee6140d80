"""Simulated servers with the exporter on top: `phasewatch demo`."""
