"""Costs of a model: bytes that an engine step reads and operations that a token takes, with their sources."""
