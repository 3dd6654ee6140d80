"""Ollama: what it says of its models, and what synthetic requests tell of their speed, without harm to anybody."""
