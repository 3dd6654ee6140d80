"""Advice on states and complaints: what it means, what to change and what to avoid."""
