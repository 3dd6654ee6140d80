"""Immutable snapshots of targets, engines, models and probes, the same for every kind of server."""
