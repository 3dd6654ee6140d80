"""Ollama: models in memory, their speed, and the probes."""
